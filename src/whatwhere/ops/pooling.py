"""Gaussian pooling and unpooling (paper: "Unpooling" and "Differentiable Pooling").

A region holds s elements along each axis, at coordinates x centred in the region. Its Gaussian is
separable:

    q = softmax_i(-γ (x_i - μ)² / 2),   w = √q                along each axis, and w(i) = w_y w_x in
    the region

so that Σ w² = 1 and, where regions do not overlap, UᵀU = I. Max pooling is the same operator with a
switch (μ on one element, γ so large that its weight is exactly 1), sum pooling the same with γ = 0.
At the border a region may reach beyond the map: its weights are normalised over the elements that
exist.
"""

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import mul
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.formulas import fits
from whatwhere.formulas import pooling as formulas
from whatwhere.latents import PoolingParams
from whatwhere.spec import MomentFit, Pooling
from whatwhere.spec.checks import Size, pair


@dataclass(frozen=True)
class Regions:
    """The pooling regions of an unpooled map, along the axes (maps, rows, columns).

    shape   shape of the unpooled map z: (B, H, W)
    size    size of one region
    stride  distance between regions; regions never overlap along maps
    padding how far the first region begins before the map
    ceil    whether the last region may reach beyond the map, so that every element has a region;
            otherwise the regions end where PyTorch's pooling ends without `ceil_mode`

    No branch here depends on a size: the shape of a map may be symbolic (torch.export).
    """

    shape: tuple[int, int, int]
    size: tuple[int, int, int]
    stride: tuple[int, int, int]
    padding: tuple[int, int, int] = (0, 0, 0)
    ceil: bool = True

    @classmethod
    def of(
        cls, shape: tuple[int, int, int], size: Size, stride: Size | None = None, maps: int = 1
    ) -> "Regions":
        return cls(shape, (maps, *pair(size)), (maps, *pair(size if stride is None else stride)))

    @property
    def grid(self) -> tuple[int, int, int]:
        """Number of regions along each axis."""
        b, h, w = (self._count(axis) for axis in range(3))
        return b, h, w

    def _count(self, axis: int) -> int:
        n = self.shape[axis]
        s = self.size[axis]
        t = self.stride[axis]
        before = self.padding[axis]
        room = n + 2 * before - s  # for a region to move in
        if not self.ceil:
            return room // t + 1
        last = (room + t - 1) // t  # not by a negative number, which ONNX rounds towards 0
        # bounds that cannot bind are left out, so that a symbolic size stays simple
        if s < t + before:
            last = torch.sym_min(last, (n + before - 1) // t)  # a region begins before the map ends
        if s > t + 2 * before:
            last = torch.sym_max(last, 0)  # a map smaller than a region has one
        return last + 1

    @property
    def extent(self) -> tuple[int, int, int]:
        """The extent of the map together with everything that the regions reach; it begins where
        the first region begins."""
        b, h, w = (self._extent(axis) for axis in range(3))
        return b, h, w

    def _extent(self, axis: int) -> int:
        n = self.shape[axis]
        before = self.padding[axis]
        if not self.ceil:
            return n + 2 * before
        covered = (self._count(axis) - 1) * self.stride[axis] + self.size[axis]
        return (
            covered if self.stride[axis] <= self.size[axis] else torch.sym_max(covered, n + before)
        )

    def inside(self, axis: int) -> bool:
        """Tell whether no region can reach beyond the map along an axis; False where a symbolic
        size leaves it open."""
        return not self.padding[axis] and (
            not self.ceil or (self._extent(axis) == self.shape[axis]) is True
        )

    @property
    def tiling(self) -> bool:
        """Whether regions side by side are known to fill the extent."""
        return self.stride == self.size and all(
            (g * s == e) is True for g, s, e in zip(self.grid, self.size, self.extent, strict=True)
        )

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes that have a Gaussian: rows and columns, and maps where neighbours are pooled
        together."""
        return (1, 2) if self.size[0] == 1 else (0, 1, 2)

    def coordinates(self, axis: int, like: Tensor) -> Tensor:
        """x_i of a region's elements along an axis, centred: [s, 1, 1] shaped to stand on that
        axis of a region."""
        return fits.coordinates(self.size[axis], axis, like)

    def exists(self, axis: int, device: torch.device) -> Tensor | None:
        """Return which elements lie inside the map, shaped for a region's elements; None where all
        do."""
        if self.inside(axis):
            return None
        s = self.size[axis]
        t = self.stride[axis]
        g = self.grid[axis]
        position = (
            torch.arange(s, device=device)[:, None]
            + t * torch.arange(g, device=device)
            - self.padding[axis]
        )
        shape = [s if a == axis else 1 for a in range(3)] + [g if a == axis else 1 for a in (1, 2)]
        return ((position >= 0) & (position < self.shape[axis])).view(shape)


@dataclass(frozen=True)
class Weights:
    """The weights w of every region, one factor for each axis of `regions.axes`.

    A factor stands on the elements [N, B, m, s, s, H, W] of all regions, with its own axis of the
    region filled.
    """

    regions: Regions
    factors: tuple[Tensor, ...]

    def __getitem__(self, images: slice) -> Self:
        return replace(self, factors=tuple(w[images] for w in self.factors))

    def unpool(self, p: Tensor) -> Tensor:
        """z(i) = w(i) p(j):  [N, b, h, w] → [N, B, H, W]  (Eqn. 2; Deviation: the print's p_k
        is p_b)."""
        return scatter(reduce(mul, self.factors, _on_region(p)), self.regions)

    def pool(self, z: Tensor) -> Tensor:
        """p(j) = Σ_i w(i) z(i), the adjoint of `unpool`  (Eqn. 3; Deviation: the print's z_b(j)
        is z_b(i))."""
        return reduce(mul, self.factors, gather(z, self.regions)).sum((2, 3, 4))

    def gradient(self, error: Tensor, p: Tensor, pooling: PoolingParams) -> PoolingParams:
        """∂/∂μ and ∂/∂γ of ½‖…‖² from the error at z and the features p̂ at this layer (Eqn.
        poolgrad).

        With ∇w(i) = error(i) p̂(j), summed over the other axes of the region:

            ∂w_i/∂μ = ½ w_i γ (x_i - x̄),                              x̄ = Σ q_j x_j
            ∂w_i/∂γ = -¼ w_i [(x_i - μ)² - Σ q_j (x_j - μ)²]

        Deviation: ∂w/∂a as printed belongs to another w and points uphill about half the time.
        Deviation: p̂ is in Eqn. 16 and again in Eqn. 18, so Eqn. 17 as printed counts it twice.
        Deviation: R_kᵀ in Eqn. 16 means the propagation up to z_k, not to p_k as in Section 2.4.
        Deviation: Eqn. 16 lacks λ; the step λ β_U ∇θ (Eqn. 25) puts it back.
        """
        regions = self.regions
        slopes = reduce(mul, self.factors, gather(error, self.regions))
        d_mu = []
        d_gamma = []
        for a, axis in enumerate(regions.axes):
            mu = _on_region(pooling.mu[:, a])
            gamma = _on_region(pooling.gamma[:, a])
            x = regions.coordinates(axis, mu)
            q = self.factors[a].square()
            along = 2 + axis
            # w_i Σ_others w ∇w, without the factor p̂
            slope = slopes.sum([d for d in (2, 3, 4) if d != along], keepdim=True)
            spread = (x - mu).square()
            from_mean = x - (q * x).sum(along, keepdim=True)
            from_variance = spread - (q * spread).sum(along, keepdim=True)
            d_mu.append(p * (gamma / 2 * slope * from_mean).sum((2, 3, 4)))
            d_gamma.append(p * (-slope * from_variance / 4).sum((2, 3, 4)))
        return PoolingParams(torch.stack(d_mu, 1), torch.stack(d_gamma, 1))


def _on_region(theta: Tensor) -> Tensor:
    """Compute a pooling variable of one axis, [N, B, H, W], made to stand on a region's elements,
    [N, B, 1, 1, 1, H, W]."""
    return theta[:, :, None, None, None]


def gaussian_weights(pooling: PoolingParams, regions: Regions) -> Weights:
    """w = √q, q = softmax_i(-γ (x_i - μ)² / 2), along each axis (Eqns. 8 and 9)."""
    factors = []
    for a, axis in enumerate(regions.axes):
        mu = _on_region(pooling.mu[:, a])
        gamma = _on_region(pooling.gamma[:, a])
        exponent = formulas.exponent(regions.coordinates(axis, mu), mu, gamma)
        exists = regions.exists(axis, mu.device)
        if exists is not None:
            exponent = exponent.masked_fill(~exists, -math.inf)
        # half the logarithm, not a square root: its derivative stays finite where a weight is 0
        factors.append(torch.exp(F.log_softmax(exponent, dim=2 + axis) / 2))
    return Weights(regions, tuple(factors))


def gather(z: Tensor, regions: Regions) -> Tensor:
    """Compute the elements of every region:  z [N, B, H, W] → [N, b, m, s, s, h, w]; zero beyond
    the map's border."""
    if not (regions.inside(1) and regions.inside(2)):
        (_, height, width), (_, top, left), (_, rows, columns) = (
            regions.shape,
            regions.padding,
            regions.extent,
        )
        z = F.pad(z, (left, columns - left - width, top, rows - top - height))
    m, s_y, s_x = regions.size
    windows = z.unfold(2, s_y, regions.stride[1]).unfold(3, s_x, regions.stride[2])
    elements: Tensor = windows.unflatten(1, (-1, m)).permute(0, 1, 2, 5, 6, 3, 4)
    # sums over overlapping views are slow
    return elements if regions.tiling else elements.contiguous()


def scatter(elements: Tensor, regions: Regions) -> Tensor:
    """Compute the adjoint of `gather`: add every region's elements to their places in the map."""
    (_, height, width), (_, top, left) = regions.shape, regions.padding
    n, b, m, s_y, s_x, h, w = elements.shape
    if regions.tiling:
        z = elements.permute(0, 1, 2, 5, 3, 6, 4).reshape(n, b * m, h * s_y, w * s_x)
    else:
        columns = elements.reshape(n, b * m * s_y * s_x, h * w)
        z = F.fold(columns, regions.extent[1:], (s_y, s_x), stride=regions.stride[1:])
    return z[:, :, top : top + height, left : left + width]


def bounds_of(
    regions: Regions, moments: MomentFit, like: Tensor
) -> tuple[float | Tensor, float, float]:
    """Compute the `bounds` of the formulas, which keep a mean inside its region and a precision
    between its bounds, on all axes of pooling variables like these."""
    reaches = [(regions.size[axis] - 1) / 2 for axis in regions.axes]
    reach: float | Tensor = reaches[0]
    if len(set(reaches)) > 1:
        reach = like.new_tensor(reaches).view(-1, 1, 1, 1)
    return reach, moments.gamma_min, moments.gamma_max


def bound(pooling: PoolingParams, regions: Regions, moments: MomentFit) -> PoolingParams:
    """Keep every mean inside its region and every precision between its bounds."""
    bounds = bounds_of(regions, moments, pooling.mu)
    return PoolingParams(*formulas.bound(pooling.mu, pooling.gamma, bounds))


def fit(
    kind: Pooling, arriving: Tensor, regions: Regions, moments: MomentFit | None = None
) -> PoolingParams:
    """Compute the pooling variables that a kind of pooling chooses by what arrives at z."""
    elements = gather(arriving, regions)
    return PoolingParams(*kind.fit(elements, regions.axes, moments or MomentFit()))


# --- regions of 2 × 2 elements side by side, in fewer operations
#
# Along an axis of two elements the weights depend on μ and γ through their product alone
# (`formulas.pair_weights`), and both gradients are multiples of one number
# (`formulas.pair_moment`). No tensor is broadcast, so that back-propagation has nothing to sum: it
# takes a third of the time.


@dataclass(frozen=True)
class PairWeights(Weights):
    """The factors are the weights of the first and second row, and of the first and second column,
    [N, B, h, w]."""

    def unpool(self, p: Tensor) -> Tensor:
        y1, y2, x1, x2 = self.factors
        elements = [row * column for row in (p * y1, p * y2) for column in (x1, x2)]
        return F.pixel_shuffle(torch.stack(elements, 2).flatten(1, 2), 2)

    def pool(self, z: Tensor) -> Tensor:
        (y1, y2, x1, x2), (e11, e12, e21, e22) = self.factors, planes(z)
        return y1 * (x1 * e11 + x2 * e12) + y2 * (x1 * e21 + x2 * e22)

    def gradient(self, error: Tensor, p: Tensor, pooling: PoolingParams) -> PoolingParams:
        (y1, y2, x1, x2), (e11, e12, e21, e22) = self.factors, planes(error)
        rows = formulas.pair_moment(y1, y2, x1 * e11 + x2 * e12, x1 * e21 + x2 * e22)
        columns = formulas.pair_moment(x1, x2, y1 * e11 + y2 * e21, y1 * e12 + y2 * e22)
        first = torch.stack([p * rows, p * columns], 1)
        return PoolingParams(*formulas.theta_gradient(pooling.mu, pooling.gamma, first, 0.0))


def has_pairs(regions: Regions) -> bool:
    """Tell whether all regions are 2 × 2 elements, side by side, inside the map."""
    return regions.size == (1, 2, 2) and regions.tiling and regions.inside(1) and regions.inside(2)


def pair_weights(pooling: PoolingParams, regions: Regions) -> PairWeights:
    """w = √q along both axes."""
    (y1, x1), (y2, x2) = (w.unbind(1) for w in formulas.pair_weights(pooling.mu, pooling.gamma))
    return PairWeights(regions, (y1, y2, x1, x2))


def planes(z: Tensor) -> tuple[Tensor, ...]:
    """Compute the elements of every region by their place in it, row by row: [N, B, 2 h, 2 w] →
    four of [N, B, h, w]."""
    elements: Tensor = F.pixel_unshuffle(z, 2).unflatten(1, (-1, 4))
    return elements.unbind(2)
