"""Fill in missing pixels by a denoiser: remove noise that is not there, put the known pixels
back, again and again.

The noise that is assumed falls from round to round (plug and play; Venkatakrishnan et al. 2013). At
first the known pixels shape large structures, at last small ones. Every change is larger than the
denoiser's, which closes gaps in fewer rounds; the denoiser's grid moves from round to round, so a
few shifts are enough, and even fewer in the first rounds, whose errors the last ones correct. What
the denoiser takes for noise in the end may be faint detail: it is continued from known pixels into
the gaps, as far as it can be predicted at known pixels that are hidden from it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.ops.conjugate_gradient import conjugate_gradient


@dataclass(frozen=True, kw_only=True)
class FillSettings:
    """Settings of the rounds that fill gaps.

    Parameters
    ----------
    rounds
        all rounds
    last_rounds
        those of them with all shifts of the grid; those before correct each other
    early_share
        a part of the shifts, one in so many, is used before
    relaxation
        factor of every change that the denoiser proposes
    first
        standard deviation that is assumed in the first round, where white is 1
    last
        the same in the last round: faint detail below it is restored by `faint_detail`
    hidden
        share of the known pixels at which faint detail is predicted from the others
    in_gaps
        factor of faint detail in gaps, as more of it is removed there than at known pixels
    most
        largest factor of faint detail, of all that was removed
    solver_steps
        steps of conjugate gradients
    pull
        pull towards a first guess, which fills large gaps
    negligible
        a squared residual that counts as solved
    """

    rounds: int = 24
    last_rounds: int = 8
    early_share: int = 4
    relaxation: float = 1.7
    first: float = 40 / 255
    last: float = 2 / 255
    hidden: float = 0.1
    in_gaps: float = 2.0
    most: float = 1.25
    solver_steps: int = 40
    pull: float = 0.01
    negligible: float = 1e-12


_DEFAULT = FillSettings()


def fill_in(
    denoise: Callable[[Tensor, float, int, int], Tensor],
    plane: Tensor,
    known: Tensor,
    noise: float,
    shifts: int,
    settings: FillSettings = _DEFAULT,
) -> Tensor:
    """Return a picture [H, W] from 0 to 1 without gaps; known [H, W] is 0 where there is one.

    `denoise(plane, σ, shifts, first)` removes noise; `noise` is that of the known pixels; with 0
    they stay as they are.
    """
    values = plane[known > 0]
    if len(values) and values.max() == values.min():
        return torch.full_like(plane, float(values[0]))
    x = clean = _continued(_smooth_fill(plane, known), known > 0, settings)
    last = max(noise, settings.last)
    first = 0
    for k in range(settings.rounds):
        is_late = k >= settings.rounds - settings.last_rounds
        count = shifts if is_late else shifts // settings.early_share
        level = settings.first * (last / settings.first) ** (k / max(settings.rounds - 1, 1))
        clean = denoise(x, max(noise, level), count, first)
        first += count
        x = torch.where(known > 0, plane, x.lerp(clean, settings.relaxation if k else 1.0))
    if noise > 0:
        return clean
    return torch.where(known > 0, plane, x + faint_detail(plane - clean, known > 0, settings))


def faint_detail(removed: Tensor, known: Tensor, settings: FillSettings = _DEFAULT) -> Tensor:
    """Continue what was removed at known pixels [H, W] into the gaps: as much as neighbours have in
    common.

    White noise has nothing in common. The share that others predict at hidden pixels is taken, less
    its standard error.
    """
    random = torch.rand(removed.shape, generator=torch.Generator().manual_seed(0)).to(
        removed.device
    )
    hidden = known & (random < settings.hidden)
    truth = removed[hidden]
    guess = _continued(removed * (known & ~hidden), known & ~hidden, settings)[hidden]
    strength = guess.square().sum().clamp(min=1e-20)
    share = (truth * guess).sum() / strength
    error = ((truth - share * guess).square().mean() / strength).sqrt() if len(truth) else 0
    factor = (settings.in_gaps * (share - error)).clamp(0, settings.most)
    return factor * _continued(removed * known, known, settings)


def _continued(u: Tensor, known: Tensor, settings: FillSettings) -> Tensor:
    """Return values [H, W], and in the gaps others of the least curvature near those given, by
    conjugate gradients."""
    rest = torch.where(known, 0, -_laplacian(_laplacian(u)))
    return conjugate_gradient(
        lambda direction: torch.where(known, 0, _bending(direction, settings.pull)),
        rest,
        u,
        settings.solver_steps,
        floor=settings.negligible,
    )


def _bending(u: Tensor, pull: float) -> Tensor:
    """Return the gradient of half the squared curvature of a plane [H, W], and of a little of its
    own square."""
    return _laplacian(_laplacian(u)) + pull * u


def _laplacian(u: Tensor) -> Tensor:
    """Return four neighbours less four times the pixel; the plane continues beyond its border."""
    padded = F.pad(u[None], (1, 1, 1, 1), mode="replicate")[0]
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * u


def _smooth_fill(plane: Tensor, known: Tensor) -> Tensor:
    """Fill gaps from the picture of half the size, whose pixels are the mean of what is known of
    four, and so on."""
    if bool((known > 0).all()) or max(plane.shape) == 1:
        return plane
    weight = (known > 0).to(plane)
    odd = (0, plane.shape[1] % 2, 0, plane.shape[0] % 2)
    share = F.avg_pool2d(F.pad(weight, odd)[None], 2)[0]
    mean = F.avg_pool2d(F.pad(plane * weight, odd)[None], 2)[0] / share.clamp(min=0.25)
    coarse = _smooth_fill(mean, share)[None, None]
    large = F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)[0, 0]
    return torch.where(known > 0, plane, large[: plane.shape[0], : plane.shape[1]])
