"""The fast engine on the CPU: one image's whole state stays in cache through all steps; threads share the images.

See CPU.md beside this folder for how it works. Results do not depend on the number of threads.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.inference.ista import moving_layers
from whatwhere.inference.step_size import batch_sample, safe_step
from whatwhere.latents import Latents, Pooling, Solution, Stats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase


def refusal(model: DeconvNet, images: Tensor, phase: Phase, spec: InferenceSpec) -> str | None:
    """Why this engine cannot serve; None where it can."""
    if importlib.util.find_spec("numba") is None:
        return "it needs the package numba (pip install 'whatwhere[cpu]')"
    if images.device.type != "cpu" or model.device.type != "cpu":
        return f"images on {images.device} and filters on {model.device} were given, it needs both on the CPU"
    if images.dtype not in (torch.float32, torch.float64) or images.dtype != model.dtype:
        return f"{images.dtype} images and {model.dtype} filters were given, it needs float32 or float64 for both"
    for k, layer in enumerate(model.spec.layers[: phase.layer], start=1):
        if layer.pool_maps > 1:
            return f"layer {k} has pool_maps = {layer.pool_maps}, it pools within one map only"
        if layer.stride != layer.pool_size:
            return f"layer {k} has overlapping regions (pool_stride {layer.stride} of {layer.pool_size})"
    return None


def solve(model: DeconvNet, images: Tensor, latents: Latents, phase: Phase, spec: InferenceSpec) -> Solution:
    """The same as `inference.ista.solve`, faster."""
    start = room_for_latents(model, images, latents, phase)
    run = Run(model, images, start, len(latents.pooling), phase, spec)
    # numbers too small to be normal take a hundred times as long: threads of our own take them for zero
    with ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_flush_denormal, initargs=(True,)) as pool:
        if spec.step_size == "batch":
            run.together(pool.map, batch_sample(len(images)))
        else:
            run.alone(pool.map, 0)
    return run.solution(start)


def room_for_latents(model: DeconvNet, images: Tensor, latents: Latents, phase: Phase) -> Latents:
    """The latents that are known, as `ista.start` takes them; zeros for those that the kernels will fit."""
    grids = [regions.grid for regions in model.regions(*images.shape[2:])[: phase.layer]]
    thetas = list(latents.pooling[: phase.layer])
    for grid in grids[len(thetas) :]:
        zeros = images.new_zeros(len(images), 2, *grid)
        thetas.append(Pooling(zeros, zeros))
    ours = latents.p is not None and len(latents.pooling) == phase.layer
    return Latents(latents.p if ours else images.new_zeros(len(images), *grids[-1]), tuple(thetas))


class Run:
    """One batch of images on its way through all steps."""

    def __init__(
        self, model: DeconvNet, images: Tensor, start: Latents, known: int, phase: Phase, spec: InferenceSpec
    ) -> None:
        from whatwhere.inference.engines.cpu.layout import pack_filters, plan_state
        from whatwhere.inference.engines.cpu.start import FLAT, KNOWN, MOMENTS, SWITCHES
        from whatwhere.inference.engines.cpu.steps import SETTINGS

        self.spec, self.dtype = spec, images.dtype
        self.layers, self.state_size = plan_state(
            model, images.shape[2], images.shape[3], phase.layer, moving_layers(model, phase)
        )
        how = {"gaussian": MOMENTS, "max": SWITCHES, "sum": FLAT}
        for k, layer in enumerate(model.spec.layers[: phase.layer], start=1):
            self.layers[k]["fit"] = KNOWN if layer.pooling == "gaussian" and k <= known else how[layer.pooling]
        self.filters = pack_filters(model, self.layers)
        self.settings = np.zeros(1, SETTINGS)
        for name in ("lam", "alpha", "pooling_step", "gamma_min", "gamma_max", "momentum"):
            self.settings[name] = getattr(spec, name)
        self.settings["power"] = spec.moment_power
        self.settings["exact"] = spec.shrinkage == "exact"
        self.settings["nonnegative"] = model.spec.nonnegative
        self.settings["line_search"] = self.settings["own_step"] = spec.step_size == "image"

        N, T = len(images), spec.steps
        self.images = images.permute(0, 2, 3, 1).reshape(N, -1).contiguous().numpy()
        self.packed = torch.cat([tensor.reshape(N, -1) for tensor in start.tensors()], 1)
        self.beta = np.zeros((N, T))
        if spec.step_size == "fixed":
            self.beta[:] = safe_step(model, phase.layer, spec.lam)
        self.norms = np.zeros((N, 2))
        self.fista = np.ones(N)
        self.trace = np.zeros((N, T + 1, 3))

    def advance(self, first: int, last: int, chosen: slice, states: np.ndarray, codes: np.ndarray) -> None:
        """Take these images from point `first` to point `last` of their way."""
        from whatwhere.inference.engines.cpu.loop import advance

        advance(
            first, last, self.spec.steps, self.images[chosen], self.packed.numpy()[chosen], states, codes,
            self.layers, self.filters, self.settings,
            self.beta[chosen], self.norms[chosen], self.trace[chosen], self.fista[chosen],
        )  # fmt: skip

    def room(self, images: int) -> tuple[np.ndarray, np.ndarray]:
        """Zeroed memory for the states of so many images, and for their codes."""
        top = self.layers[-1]
        codes = 2 * int(top["rows"] * top["columns"] * top["maps"])
        return (
            torch.zeros(images, self.state_size, dtype=self.dtype).numpy(),
            torch.zeros(images, codes, dtype=self.dtype).numpy(),
        )

    def alone(self, each: Callable[..., Any], first: int) -> None:
        """All steps of each image from number `first` on, one image after the other in each thread."""

        def work(chosen: slice) -> None:
            self.advance(0, self.spec.steps, chosen, *self.room(1))

        list(each(work, [slice(i, i + 8) for i in range(first, len(self.images), 8)]))

    def together(self, each: Callable[..., Any], sample: int) -> None:
        """The first images step by step together, since their step is common; then the others, which follow it."""
        self.settings["line_search"] = True
        chunks = [slice(i, min(i + 8, sample)) for i in range(0, sample, 8)]
        rooms = [self.room(chunk.stop - chunk.start) for chunk in chunks]
        for t in range(self.spec.steps + 1):

            def work(chunk: slice, room: tuple[np.ndarray, np.ndarray], t: int = t) -> None:
                self.advance(t, t, chunk, *room)

            list(each(work, chunks, rooms))
            if t < self.spec.steps:
                squares, gained = self.norms[:sample].sum(0)
                self.beta[:, t] = squares / (self.spec.lam * gained) if gained > 0 else 0
        self.settings["line_search"] = False
        self.alone(each, sample)

    def solution(self, start: Latents) -> Solution:
        parts = iter(self.packed.split([tensor[0].numel() for tensor in start.tensors()], 1))
        latents = start.map(lambda tensor: next(parts).reshape(tensor.shape))
        reconstruction, penalty, nonzeros = torch.from_numpy(self.trace).permute(2, 1, 0)
        step = torch.from_numpy(self.beta).T
        stats = Stats(reconstruction.to(self.dtype), penalty.to(self.dtype), nonzeros.long(), step.to(self.dtype))
        return Solution(latents, stats, engine="cpu")


__all__ = ["refusal", "solve"]
