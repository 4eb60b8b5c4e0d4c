"""The values that inference moves: pooling variables, features, and what was measured on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class PoolingParams:
    """Where: the Gaussian of every pooling region of one layer.

    mu, gamma   [N, A, B, H, W], shaped like the pooled map with one axis of the region at a time on A:
                (rows, columns), or (maps, rows, columns) where neighbouring maps are pooled together
    """

    mu: Tensor
    gamma: Tensor

    def map(self, function: Any) -> PoolingParams:
        return PoolingParams(function(self.mu), function(self.gamma))


@dataclass(frozen=True)
class Latents:
    """What and where of a set of images.

    p        features of the top layer inferred so far, [N, B, H, W]; None before inference
    pooling_params  pooling variables of layer 1, 2, …; layers beyond its end have not been fitted yet
    """

    p: Tensor | None = None
    pooling_params: tuple[PoolingParams, ...] = ()

    def map(self, function: Any) -> Latents:
        """The same latents with `function` applied to every tensor."""
        return Latents(
            None if self.p is None else function(self.p), tuple(theta.map(function) for theta in self.pooling_params)
        )

    def __getitem__(self, images: Any) -> Latents:
        return self.map(lambda tensor: tensor[images])

    def to(self, *args: Any, **kwargs: Any) -> Latents:
        return self.map(lambda tensor: tensor.to(*args, **kwargs))

    def put(self, images: Tensor, latents: Latents) -> Latents:
        """The same latents with those of some images, chosen by a mask [N], replaced."""
        new = iter(latents.tensors())
        return self.map(lambda old: old.index_put((images,), next(new)))

    def tensors(self) -> list[Tensor]:
        """Every tensor, in a fixed order: p, then μ and γ of layer 1, 2, …"""
        thetas = [tensor for theta in self.pooling_params for tensor in (theta.mu, theta.gamma)]
        return thetas if self.p is None else [self.p, *thetas]

    @staticmethod
    def cat(parts: Sequence[Latents]) -> Latents:
        """Join the latents of several batches of images."""
        columns = zip(*(part.tensors() for part in parts), strict=True)
        joined = iter([torch.cat(column) for column in columns])
        return parts[0].map(lambda _: next(joined))


@dataclass(frozen=True)
class Stats:
    """What every step of inference measured, for every image: step t is the state before step t, the last is the end.

    reconstruction  λ/2 ‖Rp - v‖², [T + 1, N]
    penalty         Σ|p|^α, [T + 1, N]
    nonzeros        number of p ≠ 0, [T + 1, N]
    step            β, [T, N]
    """

    reconstruction: Tensor
    penalty: Tensor
    nonzeros: Tensor
    step: Tensor

    @property
    def cost(self) -> Tensor:
        """The objective C of every image at every step, [T + 1, N]."""
        return self.reconstruction + self.penalty

    @staticmethod
    def cat(parts: Sequence[Stats]) -> Stats:
        return Stats(*(torch.cat([getattr(s, name) for s in parts], dim=1) for name in Stats.__dataclass_fields__))


@dataclass(frozen=True)
class Solution:
    """The outcome of inference: latents, the statistics of the last phase, and the engine that ran it."""

    latents: Latents
    stats: Stats
    engine: str

    @property
    def features(self) -> Tensor:
        """The top layer's features p, [N, B, H, W]."""
        assert self.latents.p is not None
        return self.latents.p

    def to(self, *args: Any, **kwargs: Any) -> Solution:
        return replace(self, latents=self.latents.to(*args, **kwargs))
