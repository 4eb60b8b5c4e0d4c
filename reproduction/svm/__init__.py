"""SVMs with squared hinge loss by their support vectors: kernels, few labels, virtual samples."""
