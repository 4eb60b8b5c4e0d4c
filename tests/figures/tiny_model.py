"""Data for the tests of figures: a tiny model with latents of a few images, a history."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet


@dataclass(frozen=True)
class Tiny:
    model: DeconvNet
    images: Tensor
    layers: tuple[Latents, ...]

    @property
    def top(self) -> Latents:
        return self.layers[-1]


def tiny_spec(pooling: str = "gaussian", **settings: Any) -> ww.ModelSpec:
    layers = (
        ww.LayerSpec(maps=4, filter_size=3, pooling=pooling),
        ww.LayerSpec(maps=6, filter_size=3, fan_in=3, pooling=pooling),
    )
    return ww.ModelSpec(layers=layers, **settings)


def make_tiny(**kwargs) -> Tiny:
    spec = tiny_spec(**kwargs)
    model = ww.DeconvNet(spec, seed=1)
    generator = torch.Generator().manual_seed(2)
    # sides that the pooling does not divide
    images = torch.rand(6, spec.channels, 11, 13, generator=generator)
    images = images * (torch.rand(6, 1, 11, 13, generator=generator) > 0.6)
    settings = ww.InferenceSpec(lam=20.0, steps=6)
    layers = tuple(
        ww.infer(
            model,
            images,
            settings,
            (ww.Phase(layer=k, update_pooling=tuple(range(1, k + 1))),),
            engine="reference",
        )
        for k in (1, 2)
    )
    return Tiny(model, images, tuple(solution.latents for solution in layers))


HISTORY = [
    {"layer": 1, "epoch": 1, "reconstruction": 3.0, "penalty": 4.0, "nonzeros": 50.0},
    {"layer": 2, "epoch": 1, "reconstruction": 2.0, "penalty": 1.0, "nonzeros": 20.0},
    {"layer": 2, "epoch": 2, "reconstruction": 1.5, "penalty": 0.5, "nonzeros": 10.0},
]
