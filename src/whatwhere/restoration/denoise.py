"""Noise removal, by the trained denoiser or a dictionary."""

from __future__ import annotations

import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.restoration.anscombe import PoissonGaussian
from whatwhere.restoration.checks import ImagesT, Model, as_images, like, read_noise
from whatwhere.restoration.denoiser import Denoiser, plane_restorer
from whatwhere.restoration.dictionary import Dictionary
from whatwhere.restoration.noise import estimate_noise
from whatwhere.restoration.planes import PLANE_NOISE, Progress, Restore, restore_images, to_opponent
from whatwhere.restoration.signals import restore_signals
from whatwhere.spec.tasks import RestorationSpec

Noise = float | str | tuple[float, float] | None


def denoise(
    model: Model | DeconvNet,
    images: ImagesT,
    noise: Noise = None,
    *,
    spec: RestorationSpec | None = None,
    progress: Progress | None = None,
) -> ImagesT:
    """Remove noise from images [N, C, H, W]; the result is of the same type, shape and units.

    model     the trained denoiser (`load_denoiser`), which is best for photographs; or a dictionary
              (`load_dictionary`), for pictures unlike photographs; or a `DeconvNet` of signals
    images    floats [N, C, H, W]; signals [N, C, T]
    noise     standard deviation of white noise, in units of the images; None estimates it for each image. 0 returns the
              images. "poisson": the images are counts. (gain, sigma): Poisson noise of counts of `gain` units each, and
              white noise of standard deviation sigma
    spec      how: see `RestorationSpec`
    progress  called with the number of pixels just done

    >>> model = ww.restoration.load_denoiser()
    >>> truth = torch.linspace(0, 1, 48).expand(1, 1, 48, 48)
    >>> noisy = truth + 0.1 * torch.randn(1, 1, 48, 48)
    >>> clean = ww.restoration.denoise(model, noisy, noise=0.1)
    >>> bool((clean - truth).square().mean() < 0.1 * (noisy - truth).square().mean())
    True
    >>> counts = torch.poisson(20 * truth)
    >>> clean = ww.restoration.denoise(model, counts, noise="poisson")
    >>> bool((clean - 20 * truth).square().mean() < 0.1 * (counts - 20 * truth).square().mean())
    True
    """
    level = read_noise(noise)
    if isinstance(model, DeconvNet):
        return restore_signals(model, images, level)
    y = as_images(model, images)
    restore = restorer_for(model, spec or RestorationSpec(), progress)
    with torch.no_grad():
        if isinstance(level, PoissonGaussian):
            clean = restore_images(restore, level.stabilise(y), [1.0] * len(y))
            return like(level.restore_units(clean), images)
        sigmas = [noise_of(image) if level is None else level for image in y]
        if not any(sigmas):
            return images  # to the bit
        return like(restore_images(restore, y, sigmas), images)


def restorer_for(model: Model, spec: RestorationSpec, progress: Progress | None = None) -> Restore:
    """What restores a plane with a model: learned steps or pursuit."""
    if isinstance(model, Denoiser):
        return plane_restorer(model, spec, progress)
    return lambda plane, noise, mask: model.denoise(plane, noise, progress)


def noise_of(image: Tensor) -> float:
    """The noise of an image [C, H, W], which is taken to be the same in all channels.

    Texture may be taken for noise, and differences of colour have little texture: so the plane with the least noise
    decides.
    """
    planes, factors = (to_opponent(image), PLANE_NOISE) if len(image) == 3 else (image, [1.0] * len(image))
    return min(estimate_noise(plane) / factor for plane, factor in zip(planes, factors, strict=True))


def learn_dictionary(start: Dictionary, image: Tensor, noise: Noise = None) -> Dictionary:
    """A dictionary adapted to one noisy image itself: to its brightness, or its first channel.

    start  where the atoms start
    image  floats [C, H, W]
    noise  as for `denoise`

    >>> noisy = 0.5 + 0.1 * torch.randn(1, 40, 40)
    >>> own = ww.restoration.learn_dictionary(ww.restoration.load_dictionary(), noisy, 0.1)
    """
    y, level = as_images(start, image[None])[0], read_noise(noise)
    if isinstance(level, PoissonGaussian):
        y, level = level.stabilise(y), 1.0
    sigma = noise_of(y) if level is None else level
    plane, factor = (to_opponent(y)[0], PLANE_NOISE[0]) if len(y) == 3 else (y[0], 1.0)
    return start.learn(plane, factor * sigma)
