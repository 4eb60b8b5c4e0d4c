"""Restore images: remove noise, and fill in missing parts."""

from whatwhere.tasks.restoration import (
    Denoiser,
    RestorationSpec,
    denoise,
    inpaint,
    load_denoiser,
    load_dictionary,
)

__all__ = ["Denoiser", "RestorationSpec", "denoise", "inpaint", "load_denoiser", "load_dictionary"]
