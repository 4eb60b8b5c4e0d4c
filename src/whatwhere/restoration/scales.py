"""From coarse to fine: the low-pass that the input stage takes off comes from the restored image of half the size.

A low-pass of the noisy image still holds the noise of low frequencies, and where large parts are missing it is a guess.
At half the size the noise is half as strong (the mean of four pixels), and holes are half as wide. So

    low = lowpass(enlarge(restore(halve(y)))),    result = low + what the model reconstructs of y - low

with the same model at every scale; at the smallest, low = lowpass(y). Where the number of steps is given, every smaller
scale takes a third as many.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.inference import infer, infer_tiled
from whatwhere.inference.tile_grid import TileGrid
from whatwhere.model import DeconvNet
from whatwhere.ops.lowpass import lowpass
from whatwhere.restoration.planes import Progress
from whatwhere.spec import InferenceSpec, InputSpec, LineSearch, RestorationSpec

FEWEST_STEPS, MOST_STEPS = 8, 60
POOLING_STEP = 1.0  # β_U
SMALLEST = 32  # pixels of a side below which no smaller scale is of use


@dataclass(frozen=True)
class Restorer:
    """A model with the settings of one task.

    spec      see `RestorationSpec`
    engine    as `infer` takes it
    progress  called with the number of tiles just done
    """

    model: DeconvNet
    spec: RestorationSpec
    engine: str = "auto"
    progress: Progress | None = None

    def restore(self, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor:
        """Images [N, C, H, W] restored; `noise` is the standard deviation, `mask` is 0 where a pixel is unknown."""
        if not self.has_lowpass:
            return self._explain(self.model, images, noise, mask)
        return self._at_scale(images, noise, mask, self.spec.scales)

    @property
    def channels(self) -> int:
        """Of the images that the model explains."""
        return self.model.spec.channels

    @property
    def has_lowpass(self) -> bool:
        """Does the model take off a low-pass and nothing else, so that another estimate can take its place?"""
        return self.model.spec.input.kind == "highpass" and not self.model.spec.input.contrast

    def detail_strength(self, images: Tensor, mask: Tensor) -> float:
        """The root mean square of what the model explains of the known pixels, before any of it is explained."""
        low = lowpass(images, self.model.spec.input.sigma, mask) if self.has_lowpass else 0
        return signal_strength(images - low, mask)

    def count_tiles(self, channels: int, height: int, width: int) -> int:
        """How many tiles the restoration of one image takes, over all scales."""
        planes = channels if self.model.spec.channels == 1 else 1
        tiles = 0
        for _ in range(self.spec.scales if self.has_lowpass else 1):
            tiles += planes * len(TileGrid.of(self.model.spec, height, width, self.spec.tile, self.spec.overlap))
            if min(height, width) < 2 * SMALLEST:
                break
            height, width = -(-height // 2), -(-width // 2)
        return tiles

    def _at_scale(self, images: Tensor, noise: float, mask: Tensor | None, scales: int) -> Tensor:
        sigma = self.model.spec.input.sigma
        if scales == 1 or min(images.shape[2:]) < 2 * SMALLEST:
            low = lowpass(images, sigma, mask)
        else:
            smaller = replace(self, spec=with_fewer_steps(self.spec))
            coarse = smaller._at_scale(*halve(images, noise, mask), scales - 1)
            large = enlarge(coarse, *images.shape[2:])
            low = lowpass(large if mask is None else torch.where(mask > 0, images, large), sigma)
        detail = images - low if mask is None else torch.where(mask > 0, images - low, 0)
        return low + self._explain(without_input_stage(self.model), detail, noise, mask)

    def _explain(self, model: DeconvNet, images: Tensor, noise: float, mask: Tensor | None) -> Tensor:
        """What a model reconstructs: small images together, so that they share the cores, large ones in tiles."""
        settings = inference_settings(self.spec, noise, signal_strength(images, mask))
        options: Any = {"engine": self.engine, "progress": self.progress}
        if max(images.shape[2:]) <= self.spec.tile:
            return infer(model, images, settings, mask=mask, **options).reconstruction
        options |= {"tile": self.spec.tile, "overlap": self.spec.overlap}
        masks = [None] * len(images) if mask is None else mask
        parts = (infer_tiled(model, v, settings, mask=M, **options) for v, M in zip(images, masks, strict=True))
        return torch.stack([part.reconstruction for part in parts])


def signal_strength(images: Tensor, mask: Tensor | None) -> float:
    """The root mean square of what is known of a signal, its noise included."""
    known = torch.ones_like(images) if mask is None else (mask > 0).to(images).expand_as(images)
    return float(((images * known).square().sum() / known.sum()).sqrt())


def inference_settings(spec: RestorationSpec, noise: float, strength: float) -> InferenceSpec:
    """λ and the number of steps for a noise σ in a signal of root mean square s: see `RestorationSpec`."""
    share = min(1.0, noise / strength) if strength > 0 else 1.0
    steps = min(MOST_STEPS, max(FEWEST_STEPS, round(5 / share**2))) if spec.steps is None else spec.steps
    lam = 1 / ((spec.threshold + share) * noise)
    return InferenceSpec(lam=lam, steps=steps, step=LineSearch(momentum=True), pooling_step=POOLING_STEP)


def with_fewer_steps(spec: RestorationSpec) -> RestorationSpec:
    """A third of them, for a smaller scale: only its low-pass is used."""
    return spec if spec.steps is None else replace(spec, steps=-(-spec.steps // 3))


def without_input_stage(model: DeconvNet) -> DeconvNet:
    """The same filters for a signal that was prepared already."""
    spec = replace(model.spec, input=InputSpec(), channels=model.spec.signal_channels)
    return DeconvNet.from_parts(spec, model.filters, model.connectivity)


def halve(images: Tensor, noise: float, mask: Tensor | None) -> tuple[Tensor, float, Tensor | None]:
    """Images of half the size, the mean of 2×2 pixels, with the noise that is left; a mask keeps the share known."""
    odd = (0, images.shape[3] % 2, 0, images.shape[2] % 2)
    images = F.pad(images, odd, mode="replicate")
    if mask is None:
        return F.avg_pool2d(images, 2), noise / 2, None
    known = (F.pad(mask, odd, mode="replicate") > 0).to(images).expand_as(images)
    share = F.avg_pool2d(known, 2)
    mean = F.avg_pool2d(torch.where(known > 0, images, 0), 2) / share.clamp(min=0.25)
    return mean, noise / 2, share.sqrt()  # the mean of n of 4 pixels has a variance of noise² / n


def enlarge(images: Tensor, height: int, width: int) -> Tensor:
    """Images of twice the size, cut to height × width."""
    return F.interpolate(images, scale_factor=2, mode="bicubic", align_corners=False)[:, :, :height, :width]
