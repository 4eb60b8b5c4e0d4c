"""The input stage of a model: subtract a low-pass, even out the contrast, split the signs; and the
inverse of all this.

    image ── minus low-pass ──► divided by local contrast ──► ON and OFF channels ──► target
    image ◄── plus low-pass ◄── multiplied by contrast   ◄── ON minus OFF        ◄── reconstruction

The way up removes the `Background` of the images; the way down adds it back.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.latents import Background
from whatwhere.ops.baseline import baseline, baseline_reach
from whatwhere.ops.rise import louder, rise, rise_reach
from whatwhere.spec import InputSpec
from whatwhere.spec.model import RISES


@dataclass(frozen=True)
class InputStage:
    """The forward and the inverse direction of an `InputSpec`.

    Parameters
    ----------
    spec
        the settings of the stage

    Examples
    --------
    >>> stage = InputStage(InputSpec(kind="onoff", sigma=2.0))
    >>> images = torch.rand(2, 1, 12, 12)
    >>> target, background = stage.forward(images)
    >>> target.shape                             # ON and OFF as two channels
    torch.Size([2, 2, 12, 12])
    >>> torch.allclose(stage.inverse(target, background), images, atol=1e-6)
    True
    """

    spec: InputSpec

    @property
    def reach(self) -> int:
        """How far away, in pixels, a pixel of the image can influence the target."""
        low = 0
        if self.spec.kind == "baseline":
            low = baseline_reach(self.spec.span, self.spec.hum)
        elif self.spec.kind in RISES:
            low = rise_reach(self.spec.span)
        elif self.spec.kind != "none":
            low = radius(self.spec.sigma)
        return low + (radius(self.spec.contrast_sigma) if self.spec.contrast else 0)

    def forward(self, images: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Background]:
        """Compute the target that the model explains, and the background; unknown pixels (weight 0)
        become 0."""
        low = self.low_part(images, weight)
        detail = images if low is None else images - low
        if weight is not None:
            detail = torch.where(weight > 0, detail, 0)
        scale = None
        if self.spec.contrast:
            scale = local_contrast(detail, self.spec, weight)
            detail = detail / scale
        if self.spec.kind == "onoff":  # positive parts, then negative parts
            detail = torch.cat([detail.clamp(min=0), (-detail).clamp(min=0)], 1)
        return detail, Background(low, scale)

    def low_part(self, images: Tensor, weight: Tensor | None) -> Tensor | None:
        """Return what is subtracted from images; None: nothing."""
        if self.spec.kind == "none":
            return None
        if self.spec.kind == "baseline":
            return baseline(images, self.spec.span, self.spec.hum, weight)
        if self.spec.kind in RISES:
            known = images if weight is None else torch.where(weight > 0, images, 0)
            kept = rise if self.spec.kind == "rise" else louder
            return known - kept(images, self.spec.span, weight)
        return lowpass(images, self.spec.sigma, weight)

    def inverse(self, target: Tensor, background: Background) -> Tensor:
        """Compute the image that a target stands for, in the units that came in."""
        C = target.shape[1] // 2
        detail = target[:, :C] - target[:, C:] if self.spec.kind == "onoff" else target
        if background.scale is not None:
            detail = detail * background.scale
        return detail if background.low is None else detail + background.low

    def spread_mask(self, mask: Tensor) -> Tensor:
        """Compute the mask of the target's channels, from the mask of the pixels [N, 1 or C, H,
        W]."""
        return (
            torch.cat([mask, mask], 1) if self.spec.kind == "onoff" and mask.shape[1] > 1 else mask
        )


def local_contrast(detail: Tensor, spec: InputSpec, weight: Tensor | None = None) -> Tensor:
    """Compute (local mean square over all channels + floor²)^(strength / 2), [N, 1, H, W]."""
    power = detail.square().mean(1, keepdim=True)
    known = None if weight is None else weight.amax(1, keepdim=True)
    local = lowpass(power, spec.contrast_sigma, known).clamp(min=0)
    return (local + spec.contrast_floor**2) ** (spec.contrast / 2)


def radius(sigma: float) -> int:
    """Return how many pixels away a pixel can still have influence: the Gaussian ends at three
    standard deviations."""
    return math.ceil(3.0 * sigma)


def blur(x: Tensor, sigma: float) -> Tensor:
    """G(x), rows and columns one after the other; x [N, C, H, W], zero outside."""
    reach = radius(sigma)
    place = torch.arange(-reach, reach + 1, dtype=torch.float64, device="cpu")
    kernel = (torch.exp(-(place**2) / (2 * sigma**2))).to(x)
    kernel = kernel / kernel.sum()
    planes = x.flatten(0, 1)[:, None]
    planes = F.conv2d(planes, kernel.view(1, 1, -1, 1), padding=(reach, 0))
    return F.conv2d(planes, kernel.view(1, 1, 1, -1), padding=(0, reach)).view(x.shape)


def lowpass(x: Tensor, sigma: float, weight: Tensor | None = None) -> Tensor:
    """G(w x) / G(w), the weighted mean of the known pixels around each place of images [N, C, H,
    W].

    G is a convolution with a Gaussian of `sigma` pixels; `weight` [N, 1 or C, H, W] is 0 where a
    pixel is unknown. Outside the image it is 0, too, so that a constant image stays constant up to
    its border.

    Where no known pixel is within reach, it is the mean of the image's known pixels (0 where there
    are none).
    """
    known = torch.ones_like(x) if weight is None else (weight > 0).to(x).expand_as(x)
    x = torch.where(known > 0, x, 0)
    seen = blur(known[:1, :1] if weight is None else known, sigma)
    mean = x.sum((2, 3), keepdim=True) / known.sum((2, 3), keepdim=True).clamp(min=1)
    floor = torch.finfo(x.dtype).tiny
    return torch.where(seen > floor, blur(x, sigma) / seen.clamp(min=floor), mean)
