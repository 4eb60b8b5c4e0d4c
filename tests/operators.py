"""Every linear map of the program beside its adjoint: one list drives the adjoint tests."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from examples import SPECS, filter_problem, random_images, random_latents, random_mask
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.latents import PoolingParams
from whatwhere.model import DeconvNet
from whatwhere.ops.convolution import convolve_down, convolve_up, filter_gradient
from whatwhere.ops.pooling import (
    Regions,
    Weights,
    fit,
    gather,
    gaussian_weights,
    scatter,
)
from whatwhere.spec import Max, Sum

REGIONS = {
    "2×2": Regions.of((3, 6, 8), 2),
    "2×2 ragged": Regions.of((3, 7, 9), 2),
    "3×3 ragged": Regions.of((2, 7, 8), 3),
    "3×3 stride 2": Regions.of((2, 8, 9), 3, stride=2),
    "3×3 stride 1": Regions.of((2, 5, 6), 3, stride=1),
    "4×4 larger than the map": Regions.of((2, 3, 2), 4),
    "1×1": Regions.of((2, 3, 4), 1),
    "2×3 ragged": Regions.of((2, 7, 8), (2, 3)),
    "3×2 stride 2×1": Regions.of((2, 8, 5), (3, 2), stride=(2, 1)),
    "1×4 stride 1×3 of a signal": Regions.of((3, 1, 11), (1, 4), stride=(1, 3)),
    "2 maps, 2×2 ragged": Regions.of((4, 5, 6), 2, maps=2),
    "4 maps, 3×3 stride 2": Regions.of((4, 6, 7), 3, stride=2, maps=4),
}
KINDS = ("gaussian", "max", "sum")


@dataclass(frozen=True)
class Operator:
    """A linear map with its adjoint, and the shapes of what they take."""

    apply: Callable[[Tensor], Tensor]
    adjoint: Callable[[Tensor], Tensor]
    domain: tuple[int, ...]
    range: tuple[int, ...]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights_of(kind: str, regions: Regions, n: int = 2) -> Weights:
    signal = draw(n, *regions.shape, seed=5)
    if kind == "max":
        return gaussian_weights(fit(Max(), signal, regions), regions)
    if kind == "sum":
        return gaussian_weights(fit(Sum(), signal, regions), regions)
    shape = (n, len(regions.axes), *regions.grid)
    return gaussian_weights(
        PoolingParams(draw(*shape, seed=3) / 2, 4 * draw(*shape, seed=4).abs()), regions
    )


def operators() -> dict[str, Operator]:
    found = {}
    for c, b, k, m in ((1, 3, 5, 5), (3, 4, 3, 3), (5, 2, 1, 1), (2, 3, 2, 4), (1, 3, 1, 5)):
        f, z = draw(c, b, k, m), draw(2, b, 5 + k, 6 + m)
        found[f"convolution {c}→{b}, {k}×{m}"] = Operator(
            lambda z, f=f: convolve_down(z, f),
            lambda v, f=f: convolve_up(v, f),
            tuple(z.shape),
            (2, c, 6, 7),
        )
        found[f"filters {c}→{b}, {k}×{m}"] = Operator(
            lambda f, z=z: convolve_down(z, f),
            lambda v, z=z: filter_gradient(z, v),
            (c, b, k, m),
            (2, c, 6, 7),
        )
    for name, regions in REGIONS.items():
        elements = (2, regions.grid[0], *regions.size, *regions.grid[1:])
        found[f"gather {name}"] = Operator(
            lambda z, r=regions: gather(z, r),
            lambda e, r=regions: scatter(e, r),
            (2, *regions.shape),
            elements,
        )
        for kind in KINDS:
            w = weights_of(kind, regions)
            found[f"unpool {kind} {name}"] = Operator(
                w.unpool, w.pool, (2, *regions.grid), (2, *regions.shape)
            )
    for name, spec in SPECS.items():
        model, images = DeconvNet(spec, seed=1, dtype=torch.float64), random_images(spec)
        latents = random_latents(model, images)
        sized = model.at(*images.shape[2:])
        weights = sized.weights(latents.pooling_params)
        for to in range(spec.depth):
            down = sized.reconstruct(latents.p, weights, to)
            found[f"R to {to}: {name}"] = Operator(
                lambda p, m=sized, w=weights, to=to: m.reconstruct(p, w, to),
                lambda e, m=sized, w=weights, to=to: m.propagate(e, w, to),
                tuple(latents.p.shape),
                tuple(down.shape),
            )
        for k in range(1, spec.depth + 1):
            for kind in ("", "weights", "known per channel"):
                A = FilterMap(filter_problem(model, images, latents, random_mask(images, kind)), k)
                found[f"A of layer {k}: {name}{kind and ', ' + kind}"] = Operator(
                    A, A.adjoint, tuple(model.filters[k - 1].shape), tuple(images.shape)
                )
    return found


OPERATORS = operators()
