"""Missing pixels, filled in from the known ones around them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.restoration.checks import ImagesT, as_images, as_mask, check_level, keep_known, like
from whatwhere.restoration.denoise import restorer_for
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.planes import PlaneRestorer, Progress, restore_planes
from whatwhere.restoration.scales import Restorer
from whatwhere.spec.restoration import INPAINTING, RestorationSpec

LEAST_NOISE = 0.2  # of the strength of the known details: what a model of photographs leaves unexplained of them


def inpaint(
    model: DeconvNet | Denoiser,
    images: ImagesT,
    mask: Tensor | np.ndarray,
    noise: float = 0.0,
    *,
    spec: RestorationSpec | None = None,
    engine: str = "auto",
    progress: Progress | None = None,
) -> ImagesT:
    """Fill in the pixels of images [N, C, H, W] where the mask is 0; the result is of the same type, shape and units.

    model     the trained denoiser (`load_denoiser`), which is best; or a model with as many channels, or with one, as
              for `denoise`
    images    floats [N, C, H, W]
    mask      [N, 1 or C, H, W], 0 where a pixel is unknown; whatever the images hold there has no influence
    noise     standard deviation of the noise of the known pixels, in units of the images. With 0 they come out as they
              went in; otherwise they are denoised, too
    spec      how: see `RestorationSpec`; None: `INPAINTING`, which has 24 steps and 3 scales
    engine    as `infer` takes it
    progress  called with the number of tiles just done

    >>> model = ww.restoration.load_denoiser()
    >>> truth = torch.linspace(0, 1, 48).expand(1, 1, 48, 48)
    >>> known = torch.rand(1, 1, 48, 48) > 0.3
    >>> filled = ww.restoration.inpaint(model, truth * known, known)
    >>> bool((filled[known] == truth[known]).all()), bool((filled - truth).abs().max() < 0.2)
    (True, True)
    """
    check_level(noise)
    known = as_mask(mask)
    y = as_images(model, images, known)
    known = known.to(y)
    restorer = restorer_for(model, spec or INPAINTING, engine, progress)
    with torch.no_grad():
        filled = torch.cat([_inpaint_one(restorer, y[n : n + 1], known[n : n + 1], noise) for n in range(len(y))])
    result = like(filled, images)
    return result if noise > 0 else keep_known(images, result, known)


def _inpaint_one(restorer: PlaneRestorer, image: Tensor, known: Tensor, noise: float) -> Tensor:
    """One image [1, C, H, W] without gaps."""
    values = image[known.expand_as(image) > 0]
    if values.max() == values.min():
        return torch.full_like(image, float(values[0]))
    if isinstance(restorer, Restorer):
        noise = max(noise, LEAST_NOISE * restorer.detail_strength(image, known))
    return restore_planes(restorer, image, noise, known)
