"""Missing pixels filled in by a denoiser: remove noise that is not there, put the known pixels
back, again and again.

The noise that is assumed falls from round to round (plug and play; Venkatakrishnan et al. 2013). At
first the known pixels shape large structures, at last small ones. Every change is larger than the
denoiser's, which closes gaps in fewer rounds; the denoiser's grid moves from round to round, so a
few shifts are enough, and even fewer in the first rounds, whose errors the last ones correct. What
the denoiser takes for noise in the end may be faint detail: it is continued from known pixels into
the gaps, as far as it can be predicted at known pixels that are hidden from it.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.ops.conjugate_gradient import conjugate_gradient

LAST_ROUNDS = 8  # with all shifts of the grid
EARLY_SHARE = 4  # before these: a quarter of the shifts
RELAXATION = 1.7
# standard deviation that is assumed in the first and the last round
FIRST = 40 / 255
LAST = 2 / 255
HIDDEN = 0.1  # share of the known pixels at which faint detail is predicted from the others
# factor of faint detail in gaps, as less of it is removed at known pixels; of all at most
IN_GAPS = 2.0
MOST = 1.25
# of conjugate gradients; towards a first guess, which large gaps are filled with
SOLVER_STEPS = 40
PULL = 0.01
NEGLIGIBLE = 1e-12  # a squared residual that is solved


def fill_in(
    denoise: Callable[[Tensor, float, int, int], Tensor],
    plane: Tensor,
    known: Tensor,
    noise: float,
    shifts: int,
    rounds: int = 24,
) -> Tensor:
    """A picture [H, W] from 0 to 1 without gaps; known [H, W] is 0 where there is one.

    `denoise(plane, σ, shifts, first)` removes noise; `noise` is that of the known pixels; with 0
    they stay as they are.
    """
    values = plane[known > 0]
    if len(values) and values.max() == values.min():
        return torch.full_like(plane, float(values[0]))
    x = clean = continued(smooth_fill(plane, known), known > 0)
    last = max(noise, LAST)
    first = 0
    for k in range(rounds):
        count = shifts if k >= rounds - LAST_ROUNDS else shifts // EARLY_SHARE
        level = FIRST * (last / FIRST) ** (k / max(rounds - 1, 1))
        clean = denoise(x, max(noise, level), count, first)
        first += count
        x = torch.where(known > 0, plane, x.lerp(clean, RELAXATION if k else 1.0))
    return (
        clean
        if noise > 0
        else torch.where(known > 0, plane, x + faint_detail(plane - clean, known > 0))
    )


def faint_detail(removed: Tensor, known: Tensor) -> Tensor:
    """What was removed at known pixels [H, W], continued into the gaps: as much as neighbours have
    in common.

    White noise has nothing in common. The share that others predict at hidden pixels is taken, less
    its standard error.
    """
    random = torch.rand(removed.shape, generator=torch.Generator().manual_seed(0)).to(
        removed.device
    )
    hidden = known & (random < HIDDEN)
    truth = removed[hidden]
    guess = continued(removed * (known & ~hidden), known & ~hidden)[hidden]
    strength = guess.square().sum().clamp(min=1e-20)
    share = (truth * guess).sum() / strength
    error = ((truth - share * guess).square().mean() / strength).sqrt() if len(truth) else 0
    return (IN_GAPS * (share - error)).clamp(0, MOST) * continued(removed * known, known)


def continued(u: Tensor, known: Tensor) -> Tensor:
    """Values [H, W], and in the gaps others of the least curvature near those given, by conjugate
    gradients."""
    rest = torch.where(known, 0, -laplacian(laplacian(u)))
    return conjugate_gradient(
        lambda direction: torch.where(known, 0, bending(direction)),
        rest,
        u,
        SOLVER_STEPS,
        floor=NEGLIGIBLE,
    )


def bending(u: Tensor) -> Tensor:
    """The gradient of half the squared curvature of a plane [H, W], and of a little of its own
    square."""
    return laplacian(laplacian(u)) + PULL * u


def laplacian(u: Tensor) -> Tensor:
    """Four neighbours less four times the pixel; the plane continues beyond its border."""
    padded = F.pad(u[None], (1, 1, 1, 1), mode="replicate")[0]
    return padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:] - 4 * u


def smooth_fill(plane: Tensor, known: Tensor) -> Tensor:
    """Gaps filled from the picture of half the size, whose pixels are the mean of what is known of
    four, and so on."""
    if bool((known > 0).all()) or max(plane.shape) == 1:
        return plane
    weight = (known > 0).to(plane)
    odd = (0, plane.shape[1] % 2, 0, plane.shape[0] % 2)
    share = F.avg_pool2d(F.pad(weight, odd)[None], 2)[0]
    mean = F.avg_pool2d(F.pad(plane * weight, odd)[None], 2)[0] / share.clamp(min=0.25)
    coarse = smooth_fill(mean, share)[None, None]
    large = F.interpolate(coarse, scale_factor=2, mode="bilinear", align_corners=False)[0, 0]
    return torch.where(known > 0, plane, large[: plane.shape[0], : plane.shape[1]])
