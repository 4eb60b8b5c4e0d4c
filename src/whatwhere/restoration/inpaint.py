"""Missing pixels, filled in from the known ones around them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.restoration.checks import ImagesT, as_images, as_mask, as_tensor, check_level, like
from whatwhere.restoration.denoiser import Denoiser, plane_restorer
from whatwhere.restoration.planes import Progress, restore_images
from whatwhere.restoration.signals import restore_signals
from whatwhere.spec.tasks import RestorationSpec


def inpaint(
    model: Denoiser | DeconvNet,
    images: ImagesT,
    mask: Tensor | np.ndarray,
    noise: float = 0.0,
    *,
    spec: RestorationSpec | None = None,
    progress: Progress | None = None,
) -> ImagesT:
    """Fill in the pixels of images [N, C, H, W] where the mask is 0; the result is of the same type, shape and units.

    model     the trained denoiser (`load_denoiser`), or a `DeconvNet` of signals
    images    floats [N, C, H, W]; signals [N, C, T]
    mask      [N, 1 or C, H, W] or [N, 1 or C, T], 0 where a pixel is unknown; whatever the images hold there has no
              influence
    noise     standard deviation of the noise of the known pixels, in units of the images. With 0 they come out as they
              went in; otherwise they are denoised, too
    spec      how: see `RestorationSpec`
    progress  called with the number of pixels just done

    >>> model = ww.restoration.load_denoiser()
    >>> truth = torch.linspace(0, 1, 48).expand(1, 1, 48, 48)
    >>> known = torch.rand(1, 1, 48, 48) > 0.3
    >>> filled = ww.restoration.inpaint(model, truth * known, known)
    >>> bool((filled[known] == truth[known]).all()), bool((filled - truth).abs().max() < 0.2)
    (True, True)
    """
    check_level(noise)
    known = as_mask(mask)
    if isinstance(model, DeconvNet):
        return restore_signals(model, images, noise, known)
    y = as_images(model, images, known)
    known = known.to(y)
    restore = plane_restorer(model, spec or RestorationSpec(), progress)
    with torch.no_grad():
        filled = restore_images(restore, y, [noise] * len(y), list(known))
    given = as_tensor(images).to(y.device)
    return like(filled if noise > 0 else torch.where(known > 0, given, filled.to(given.dtype)), images)
