"""Restoring images with a model: remove noise, fill in what is missing (docs/explanation/restoration.md)."""

from whatwhere.restoration.denoise import denoise
from whatwhere.restoration.inpaint import inpaint
from whatwhere.restoration.learn import adapt
from whatwhere.spec.restoration import INPAINTING, RestorationSpec

__all__ = ["INPAINTING", "RestorationSpec", "adapt", "denoise", "inpaint"]
