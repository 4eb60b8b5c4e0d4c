"""Restoring images with a model: remove noise, fill in what is missing (docs/explanation/restoration.md)."""

from whatwhere.restoration.denoise import denoise
from whatwhere.restoration.denoiser import Denoiser, load_denoiser
from whatwhere.restoration.inpaint import inpaint
from whatwhere.restoration.learn import adapt
from whatwhere.spec.restoration import INPAINTING, RestorationSpec

__all__ = ["INPAINTING", "Denoiser", "RestorationSpec", "adapt", "denoise", "inpaint", "load_denoiser"]
