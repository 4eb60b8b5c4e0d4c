"""Noise removal: what sparse features explain is kept, what is left over is noise."""

from __future__ import annotations

import torch
from torch import Tensor

from whatwhere.inference import noise_level
from whatwhere.model import DeconvNet
from whatwhere.restoration.checks import ImagesT, as_images, check_noise, like
from whatwhere.restoration.colour import to_opponent
from whatwhere.restoration.planes import restore_planes
from whatwhere.restoration.scales import Restorer
from whatwhere.restoration.views import Progress
from whatwhere.spec.restoration import RestorationSpec


def denoise(
    model: DeconvNet,
    images: ImagesT,
    noise: float | None = None,
    *,
    spec: RestorationSpec | None = None,
    engine: str = "auto",
    progress: Progress | None = None,
) -> ImagesT:
    """Remove white Gaussian noise from images [N, C, H, W]; the result is of the same type, shape and units.

    model     with as many channels, or of one: then colours are restored as brightness and differences of colour
    images    floats [N, C, H, W]
    noise     its standard deviation, in units of the images; None estimates it for each image. 0 returns the images
    spec      how: see `RestorationSpec`
    engine    as `infer` takes it
    progress  called with the number of tiles just done

    >>> model = ww.load("photographs")
    >>> truth = torch.linspace(0, 1, 48).expand(1, 1, 48, 48)
    >>> noisy = truth + 0.1 * torch.randn(1, 1, 48, 48)
    >>> clean = ww.restoration.denoise(model, noisy, noise=0.1)
    >>> bool((clean - truth).square().mean() < 0.5 * (noisy - truth).square().mean())
    True
    """
    y = as_images(model, images)
    check_noise(noise)
    restorer = Restorer(model, spec or RestorationSpec(), engine, progress)
    with torch.no_grad():
        restored = [_denoise_one(restorer, image[None], noise) for image in y]
    if all(result is None for result in restored):
        return images  # to the bit
    return like(torch.cat([image[None] if r is None else r for image, r in zip(y, restored, strict=True)]), images)


def _denoise_one(restorer: Restorer, image: Tensor, noise: float | None) -> Tensor | None:
    """One image [1, C, H, W] without its noise; None if it has none."""
    sigma = estimate_noise(image) if noise is None else noise
    return restore_planes(restorer, image, sigma) if sigma > 0 else None


def estimate_noise(image: Tensor) -> float:
    """The noise of an image [1, C, H, W], which is taken to be the same in all channels.

    The median rule takes fine texture for noise, and differences of colour have little texture: so the plane with the
    least noise decides.
    """
    planes = to_opponent(image) if image.shape[1] == 3 else image
    return min(noise_level(planes[:, c : c + 1]) for c in range(planes.shape[1]))
