"""The page that shows what a model sees in an image, and where."""
