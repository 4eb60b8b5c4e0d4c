"""Restoring images: remove noise, fill in what is missing."""

from whatwhere.tasks.restoration import (
    Denoiser,
    RestorationSpec,
    denoise,
    inpaint,
    load_denoiser,
    load_dictionary,
)

__all__ = ["Denoiser", "RestorationSpec", "denoise", "inpaint", "load_denoiser", "load_dictionary"]
