"""Restoring images: remove noise, fill in what is missing (docs/explanation/restoration.md)."""

from whatwhere.restoration.denoise import denoise, learn_dictionary
from whatwhere.restoration.denoiser import Denoiser, load_denoiser
from whatwhere.restoration.dictionary import Dictionary, load_dictionary
from whatwhere.restoration.inpaint import inpaint
from whatwhere.spec.tasks import RestorationSpec

__all__ = [
    "Denoiser",
    "Dictionary",
    "RestorationSpec",
    "denoise",
    "inpaint",
    "learn_dictionary",
    "load_denoiser",
    "load_dictionary",
]
