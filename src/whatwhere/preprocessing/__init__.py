"""Input stages: from an image to the signal that a model explains, and back."""

from whatwhere.preprocessing.stage import InputStage

__all__ = ["InputStage"]
