"""Restore images: remove noise, and fill in missing parts (docs/explanation/restoration.md)."""

from whatwhere.spec.tasks import RestorationSpec
from whatwhere.tasks.restoration.denoiser import Denoiser, load_denoiser
from whatwhere.tasks.restoration.dictionary import load_dictionary
from whatwhere.tasks.restoration.restore import denoise, inpaint

__all__ = ["Denoiser", "RestorationSpec", "denoise", "inpaint", "load_denoiser", "load_dictionary"]
