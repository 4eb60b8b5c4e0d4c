"""Noise removal: what sparse features explain is kept, what is left over is noise."""

from __future__ import annotations

import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.restoration.checks import ImagesT, as_images, check_noise, like
from whatwhere.restoration.denoiser import Denoiser, TrainedRestorer
from whatwhere.restoration.noise import estimate_noise
from whatwhere.restoration.planes import PLANE_NOISE, PlaneRestorer, Progress, restore_planes, to_opponent
from whatwhere.restoration.scales import Restorer
from whatwhere.spec.restoration import RestorationSpec


def denoise(
    model: DeconvNet | Denoiser,
    images: ImagesT,
    noise: float | None = None,
    *,
    spec: RestorationSpec | None = None,
    engine: str = "auto",
    progress: Progress | None = None,
) -> ImagesT:
    """Remove white Gaussian noise from images [N, C, H, W]; the result is of the same type, shape and units.

    model     the trained denoiser (`load_denoiser`), which is best for photographs; or a model of images like these,
              with as many channels or one. With one, colours are restored as brightness and differences of colour
    images    floats [N, C, H, W]; for the trained denoiser, white is 1
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
    restorer = restorer_for(model, spec or RestorationSpec(), engine, progress)
    with torch.no_grad():
        restored = [_denoise_one(restorer, image[None], noise) for image in y]
    if all(result is None for result in restored):
        return images  # to the bit
    return like(torch.cat([image[None] if r is None else r for image, r in zip(y, restored, strict=True)]), images)


def restorer_for(
    model: DeconvNet | Denoiser, spec: RestorationSpec, engine: str = "auto", progress: Progress | None = None
) -> PlaneRestorer:
    """What restores with a model: learned steps, or inference."""
    if isinstance(model, Denoiser):
        return TrainedRestorer(model, spec.shifts, spec.tile, progress)
    return Restorer(model, spec, engine, progress)


def _denoise_one(restorer: PlaneRestorer, image: Tensor, noise: float | None) -> Tensor | None:
    """One image [1, C, H, W] without its noise; None if it has none."""
    sigma = noise_of(image) if noise is None else noise
    return restore_planes(restorer, image, sigma) if sigma > 0 else None


def noise_of(image: Tensor) -> float:
    """The noise of an image [1, C, H, W], which is taken to be the same in all channels.

    Texture may be taken for noise, and differences of colour have little texture: so the plane with the least noise
    decides.
    """
    planes, factors = (to_opponent(image), PLANE_NOISE) if image.shape[1] == 3 else (image, [1.0] * image.shape[1])
    return min(estimate_noise(plane) / factor for plane, factor in zip(planes[0], factors, strict=True))
