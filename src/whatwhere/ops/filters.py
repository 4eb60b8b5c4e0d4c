"""The filters of a layer: which maps they connect, and the projection that keeps them of unit
length."""

import torch
from torch import Tensor


def random_connectivity(
    below: int, maps: int, fan_in: int | None, generator: torch.Generator
) -> Tensor:
    """Compute a map [below, maps] of booleans: each column connects one map to `fan_in` different
    maps below."""
    if fan_in is None:
        return torch.ones(below, maps, dtype=torch.bool)
    order = torch.stack([torch.randperm(below, generator=generator) for _ in range(maps)], dim=1)
    return order < fan_in


def project_filters(f: Tensor, connected: Tensor, *, nonnegative: bool, normalise: str) -> Tensor:
    """Mask, project to ≥ 0 and scale to unit length: per filter (all planes of a map) or per plane.

    A filter that has vanished keeps its zeros, because it has no direction.
    """
    f = f * connected[:, :, None, None]
    if nonnegative:
        f = f.clamp(min=0)
    within = (0, 2, 3) if normalise == "filter" else (2, 3)
    squared = f.square().sum(within, keepdim=True)
    # 1 in place of 0: the derivative of √ at 0 is infinite, and would turn gradients into NaN
    return f / squared.where(squared > 0, torch.ones_like(squared)).sqrt()
