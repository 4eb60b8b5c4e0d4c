"""The filters of one layer as a linear least-squares problem (paper, Eqn. 26).

With the latents fixed, the reconstruction is linear in them (see `engines.reference.filter_map`).
Every pass streams over the batches and adds up over images, in float64; `reduce` then adds up over
the processes of a training.
"""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from whatwhere.engines import REFERENCE, Engine
from whatwhere.engines.base import LinearMap
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.ops.conjugate_gradient import conjugate_gradient
from whatwhere.spec import EveryBatch, LearningSpec, Phase

# A fresh pass over (images, latents, mask); the mask is None if all pixels count the same.
Batches = Callable[[], Iterable[tuple[Tensor, Latents, Tensor | None]]]
Reduce = Callable[[Tensor], Tensor]  # adds up the sums of all processes, or raises an error


def project_filters(model: DeconvNet, k: int, f: Tensor) -> DeconvNet:
    """Return the model with new filters at layer k, masked, projected, normalised.

    A filter that the projection would wipe out keeps its old values: at zero it could never come
    back.
    """
    old = model.filters[k - 1]
    new = model.project(k, f).to(old.dtype)
    gone = new.square().sum((0, 2, 3), keepdim=True) == 0
    return model.with_filters(k, old.where(gone, new))


def solve_filters(
    model: DeconvNet,
    k: int,
    batches: Batches,
    steps: int,
    reduce: Reduce = lambda total: total,
    engine: Engine = REFERENCE,
) -> Tensor:
    """Return filters of layer k after `steps` conjugate-gradient steps on ½ Σ ‖A f - v‖², in
    float64.

    Parameters
    ----------
    engine
        the engine that inferred the latents, and applies A
    """
    connected = model.connectivity[k - 1][:, :, None, None]

    def summed(part: Callable[[LinearMap], Tensor]) -> Tensor:
        total = torch.zeros_like(model.filters[k - 1], dtype=torch.float64)
        for images, latents, mask in batches():
            phase = Phase(layer=len(latents.pooling_params))
            total += part(
                engine.filter_map(Problem(model, images, phase, latents=latents, mask=mask), k)
            )
        return reduce(total) * connected

    def normal(f: Tensor) -> Tensor:
        direction = f.to(model.dtype)
        return summed(lambda linear_map: linear_map.normal(direction))

    gradient = summed(lambda linear_map: linear_map.negative_gradient(model.filters[k - 1]))
    return conjugate_gradient(normal, gradient, model.filters[k - 1].double(), steps)


def along_sphere(model: DeconvNet, k: int, reduce: Reduce) -> Reduce:
    """Return `reduce` without the part of its result along each filter of layer k.

    That part changes the lengths of the filters only. A code of ℓ1 is too small for its filters, so
    the least-squares problem makes them longer, the projection undoes it, and the more exactly the
    problem is solved, the less of the step is left.
    """
    f = model.filters[k - 1].double()
    within = (0, 2, 3) if model.spec.normalise == "filter" else (2, 3)
    squared = f.square().sum(within, keepdim=True)
    inverse = 1 / squared.where(squared > 0, torch.ones_like(squared))

    def reduced(total: Tensor) -> Tensor:
        summed = reduce(total)
        return summed - f * ((f * summed).sum(within, keepdim=True) * inverse)

    return reduced


def mean_over(total: Tensor, images: int, reduce: Reduce) -> Tensor:
    """Return the mean over the images of all processes, in float64, of this process's sum."""
    return reduce(total.double()) / images


def step_filters(
    model: DeconvNet,
    k: int,
    linear_map: LinearMap,
    mean: Reduce,
    last: Tensor | None,
    learning: LearningSpec,
) -> tuple[Tensor, Tensor]:
    """Return filters of layer k after `cg_steps` conjugate steps, in float64, and the direction for
    the stream's next batch.

    The problem of one batch differs from the whole problem, so a step must not rely on it alone:
    the first direction keeps a share of the last batch's,

        g = Aᵀ (v - A f) / n,    d = g + direction_memory · d_last,    f ← project(f + d ⟨g, d⟩ /
        ⟨d, Aᵀ A d / n⟩)

    and further steps are conjugate to it.

    Parameters
    ----------
    mean
        mean over images of what the linear map adds up
    last
        the direction of the batch before
    """
    assert isinstance(learning.update, EveryBatch)
    connected = model.connectivity[k - 1][:, :, None, None]
    f = model.filters[k - 1].double()
    r = mean(linear_map.negative_gradient(model.filters[k - 1])) * connected
    first = d = r if last is None else r + learning.update.direction_memory * last.to(r)
    for _ in range(learning.cg_steps):
        image = mean(linear_map.normal(d.to(model.dtype))) * connected
        curvature = torch.sum(d * image)
        # where there is nothing to gain, curvature or slope is 0 and so is the step; uphill there
        # is no step either
        step = torch.where(curvature > 0, torch.sum(r * d) / curvature, 0).clamp_min(0)
        f = f + step * d
        r = r - step * image
        d = r - torch.where(curvature > 0, torch.sum(r * image) / curvature, 0) * d
    return f, first
