"""The exact minimum of a sparse code without pooling: Newton steps on the features in use.

Steps of the gradient find soon which features are in use, and take long to find their values. With
the signs s of the features in use, the objective is quadratic,

    λ/2 ‖R_S p - v‖² + sᵀ p,

so its minimum is a linear system, which conjugate gradients solve. R_S is a sparse matrix: each of
its columns is a filter at one place. The way to the minimum ends where features change their sign,
which then leave; after each minimum, features enter whose gradient is larger than the penalty's.
Everything is float64.
"""

import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.latents import Latents
from whatwhere.model import Problem
from whatwhere.model.gap import relative_gap
from whatwhere.model.sized import masked
from whatwhere.spec import Power


@dataclass(frozen=True)
class NewtonSettings:
    """When to take Newton steps, and how many.

    Parameters
    ----------
    begin
        relative duality gap from which they begin: at a larger one many features are in use that
        will leave, one after the other
    rounds
        of features that enter; a handful is usual
    faces
        Newton steps of a round; features leave after each
    iterations
        of conjugate gradients for a step
    reduction
        of the residual of a step at which these end
    halvings
        of a step that does not lower the objective
    share
        of the gap that is asked for: a gradient of features in use of this size counts as 0, where
        the penalty's is 1
    """

    begin: float = 3e-2
    rounds: int = 60
    faces: int = 30
    iterations: int = 150
    reduction: float = 1e-2
    halvings: int = 12
    share: float = 1e-2


def unsupported_reason(problem: Problem) -> str | None:
    """Return why this does not support a problem; None if it does."""
    layers = problem.model.spec.layers
    if problem.phase.layer > 1 or layers[0].pool_shape != (1, 1):
        return "it needs one layer without pooling"
    if problem.spec.penalty != Power(alpha=1):
        return "it needs the penalty |p|"
    if problem.images.device.type != "cpu":
        return "it needs images on the CPU"
    return None


@torch.no_grad()
def finish(
    problem: Problem, latents: Latents, gap: float, settings: NewtonSettings | None = None
) -> Latents:
    """Return the latents with features whose relative duality gap is at most `gap`, or the best
    that the settings allow."""
    settings = settings or NewtonSettings()
    exact = replace(
        problem,
        model=problem.model.to(torch.float64),
        images=problem.images.double(),
        latents=Latents(),
        mask=None if problem.mask is None else problem.mask.double(),
    )
    features = [
        _minimum(exact[n : n + 1], latents.features[n : n + 1].double(), latents, gap, settings)
        for n in range(len(latents.features))
    ]
    return replace(latents, p=torch.cat(features).to(latents.features.dtype))


def _minimum(
    problem: Problem, p: Tensor, like: Latents, gap: float, settings: NewtonSettings
) -> Tensor:
    """Return the features of one image, [1, B, h, w]."""
    p = p.contiguous()
    wide = [theta.map(lambda t: t[:1].double()) for theta in like.pooling_params]
    weights = problem.sized.weights(wide)
    used = p.flatten() != 0
    sign = p.flatten().sign()
    for _ in range(settings.rounds):
        face = _Face.of(problem, used.nonzero()[:, 0])
        flat = settings.share * gap
        values = _minimise(face, p.flatten()[used], sign[used], flat, settings)
        p = torch.zeros_like(p)
        p.view(-1)[face.places] = values
        if float(relative_gap(problem, Latents(p, tuple(wide)))) <= gap:
            break
        e = masked(problem.sized.reconstruct(p, weights) - problem.images, problem.mask)
        g = problem.lam * problem.sized.propagate(masked(e, problem.mask), weights).flatten()
        used = p.flatten() != 0
        force = -g if problem.model.spec.nonnegative else g.abs()
        enters = (force > 1 + gap) & ~used
        sign = torch.where(used, p.flatten().sign(), -g.sign())
        used |= enters
        if not enters.any():
            break
    return p


@dataclass(frozen=True)
class _Face:
    """The features in use, and R_S.

    Parameters
    ----------
    places
        of the features in the flat map, [S]
    rows
        the pixels that each one reaches, [S, R]; pixels beyond the image are the last, 0
    values
        the filter there, weighted by the mask
    target
        M ⊙ v and a 0, [pixels + 1]
    lam
        λ
    """

    places: Tensor
    rows: Tensor
    values: Tensor
    target: Tensor
    lam: float

    @classmethod
    def of(cls, problem: Problem, places: Tensor) -> "_Face":
        f = problem.model.filters[0].detach()
        C, _, K, L = f.shape
        _, _, H, W = problem.images.shape
        _, height, width = problem.sized.regions[0].grid
        b = places // (height * width)
        y = places // width % height
        x = places % width
        # the valid convolution: element i of a filter at z(y) adds to pixel y - (K - 1) + i
        down = y[:, None] - (K - 1) + torch.arange(K)
        right = x[:, None] - (L - 1) + torch.arange(L)
        inside = ((down >= 0) & (down < H))[:, :, None] & ((right >= 0) & (right < W))[:, None]
        pixel = down[:, :, None] * W + right[:, None]
        channels = torch.arange(C)[:, None, None] * (H * W)
        rows = torch.where(inside[:, None], pixel[:, None] + channels, C * H * W).flatten(1)
        values = f.transpose(0, 1)[b].flatten(1)
        target = masked(problem.images, problem.mask).flatten()
        if problem.mask is not None:
            mask = problem.mask.expand_as(problem.images).flatten()
            values = values * torch.cat([mask, mask.new_zeros(1)])[rows]
        return cls(places, rows, values, torch.cat([target, target.new_zeros(1)]), problem.lam)

    def matrix(self) -> tuple[Tensor, Tensor]:
        """Return R_S and its transpose, sparse."""
        size = len(self.rows), len(self.target)
        inside = self.rows < len(self.target) - 1
        counts = torch.cat([torch.zeros(1, dtype=torch.long), inside.sum(1).cumsum(0)])
        with warnings.catch_warnings():  # that sparse tensors of PyTorch are in beta
            warnings.simplefilter("ignore", UserWarning)
            up = torch.sparse_csr_tensor(counts, self.rows[inside], self.values[inside], size)
            return up.t().to_sparse_csr(), up


def _minimise(
    face: _Face, p: Tensor, sign: Tensor, flat: float, settings: NewtonSettings
) -> Tensor:
    """Return the minimum over the features in use whose signs stay; 0 for those that left, [S]."""
    down, up = face.matrix()
    free = torch.ones_like(p, dtype=torch.bool)
    for _ in range(settings.faces):
        gradient = face.lam * (up @ (down @ p - face.target)) + sign
        gradient[~free] = 0
        if float(gradient.abs().amax()) <= flat:
            break
        step = _conjugate_gradients(face.lam, down, up, free, -gradient, settings)
        before = p
        p, free = _along(face, down, p, step, sign, free, settings)
        if p is before:  # no digits are left
            break
    return p


def _conjugate_gradients(
    lam: float, down: Tensor, up: Tensor, free: Tensor, b: Tensor, settings: NewtonSettings
) -> Tensor:
    """Return x with λ R_Sᵀ R_S x = b on the free features."""
    x = torch.zeros_like(b)
    r = b.clone()
    d = r.clone()
    energy = start = float(r @ r)
    for _ in range(settings.iterations):
        if energy <= settings.reduction**2 * start:
            break
        Ad = lam * (up @ (down @ d))
        Ad[~free] = 0
        curvature = float(d @ Ad)
        if curvature <= 0:
            break
        x += energy / curvature * d
        r -= energy / curvature * Ad
        before, energy = energy, float(r @ r)
        d = r + energy / before * d
    return x


def _along(
    face: _Face,
    down: Tensor,
    p: Tensor,
    step: Tensor,
    sign: Tensor,
    free: Tensor,
    settings: NewtonSettings,
) -> tuple[Tensor, Tensor]:
    """Return the lowest of some points p + t · step, in which features that would change their sign
    are 0, and the features that did not: these stay free."""

    def objective(q: Tensor) -> float:
        return float(face.lam / 2 * (down @ q - face.target).square().sum() + q.abs().sum())

    full = p + step
    if ((full * sign > 0) | ~free).all():  # lower, even where the cost has no digits left to say so
        return full, free
    lowest, best = objective(p), p
    share = 1.0
    for _ in range(settings.halvings):
        q = p + share * step
        q = torch.where(q * sign > 0, q, 0)
        if (cost := objective(q)) < lowest:
            lowest, best = cost, q
        elif best is not p:
            break
        share /= 2
    return best, free & (best != 0)
