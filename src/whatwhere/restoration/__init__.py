"""Restoring images: remove noise, fill in what is missing (docs/explanation/restoration.md)."""

from whatwhere.restoration.denoiser import Denoiser, load_denoiser
from whatwhere.restoration.dictionary import load_dictionary
from whatwhere.restoration.restore import denoise, inpaint
from whatwhere.spec.tasks import RestorationSpec

__all__ = ["Denoiser", "RestorationSpec", "denoise", "inpaint", "load_denoiser", "load_dictionary"]
