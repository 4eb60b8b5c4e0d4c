"""Signals without noise, or without gaps: what a model of their waveforms explains."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.inference import infer
from whatwhere.inference.target import check_mask
from whatwhere.model import DeconvNet
from whatwhere.restoration.anscombe import PoissonGaussian
from whatwhere.restoration.checks import ImagesT, as_tensor, like
from whatwhere.spec import AutoLam, InferenceSpec

THRESHOLD = 2.0  # 1/λ in standard deviations of the noise: chosen on simulated recordings
FAITHFUL = 0.02  # 1/λ without noise, as a share of the smallest that leaves no event


def restore_signals(
    model: DeconvNet,
    signals: ImagesT,
    noise: float | PoissonGaussian | None,
    known: Tensor | None = None,
) -> ImagesT:
    """Signals [N, C, T] as their waveforms explain them; where they are known and have no noise, as they are.

    noise  standard deviation; None estimates it
    known  [N, 1 or C, T], 0 where a sample is missing
    """
    if not model.spec.for_signals:
        raise SpecError("a model of pictures was given; expected one of signals, or a denoiser (load_denoiser)")
    if isinstance(noise, PoissonGaussian):
        raise SpecError("noise of counts was given for signals; expected a standard deviation, or None")
    given: Any = as_tensor(signals)  # which leaves alone what is neither tensor nor array
    if not isinstance(given, Tensor):
        kind = type(signals).__name__
        raise ImageError(f"a {kind} was given; expected floats [N, {model.spec.channels}, T]: of Signals, signals[:]")
    if given.ndim != 3:
        raise ImageError(f"signals of shape {list(given.shape)} were given; expected [N, {model.spec.channels}, T]")
    if noise == 0 and known is None:
        return signals
    if known is not None:
        check_mask(given.unsqueeze(2), known.unsqueeze(-2))
    lam = AutoLam(deviations=THRESHOLD) if noise is None else AutoLam(share=FAITHFUL)
    v = given if known is None else torch.where(known.to(given.device) > 0, given, 0)
    spec = InferenceSpec.coding(lam=1 / (THRESHOLD * noise) if noise else lam)
    clean = infer(model, v, spec, mask=known).reconstruction.to(given)
    if noise == 0 and known is not None:
        clean = torch.where(known.to(given.device) > 0, given, clean)
    return like(clean, signals)
