"""Input stages: from an image to the signal that a model explains, and back."""

from whatwhere.preprocessing.stage import Background, InputStage

__all__ = ["Background", "InputStage"]
