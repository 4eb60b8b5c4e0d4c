"""One batch of images on its way through all steps: memory for it, and threads that share the images."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.inference.engines.cpu.layout import pack_filters, plan_state
from whatwhere.inference.engines.cpu.loop import advance
from whatwhere.inference.engines.cpu.start import FLAT, KNOWN, MOMENTS, SWITCHES
from whatwhere.inference.engines.cpu.steps import SETTINGS
from whatwhere.inference.ista import moving_layers
from whatwhere.inference.step_size import batch_sample, safe_step
from whatwhere.latents import Latents, PoolingParams, Solution, Stats
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

CHUNK = 8  # images that a thread takes at a time, at most
Room = tuple[np.ndarray, np.ndarray]  # for states and for codes


class Run:
    """A batch of images with its latents, settings and filters in the kernels' order."""

    def __init__(self, model: DeconvNet, images: Tensor, latents: Latents, phase: Phase, spec: InferenceSpec) -> None:
        N, T = len(images), spec.steps
        self.spec, self.dtype = spec, images.dtype
        self.layers, self.state_size = plan_state(
            model, images.shape[2], images.shape[3], phase.layer, moving_layers(model, phase)
        )
        fits = {"gaussian": MOMENTS, "max": SWITCHES, "sum": FLAT}
        for k, layer in enumerate(model.spec.layers[: phase.layer], start=1):
            known = layer.pooling_kind == "gaussian" and k <= len(latents.pooling_params)
            self.layers[k]["fit"] = KNOWN if known else fits[layer.pooling_kind]
        self.filters = pack_filters(model, self.layers)
        self.settings = settings(model, spec)
        self.start = known_latents(model, images, latents, phase)
        self.packed = pack_latents(self.start)
        self.images = pack_images(images)
        self.beta = np.zeros((N, T))
        if spec.step_size == "fixed":
            self.beta[:] = safe_step(model, phase.layer, spec.lam)
        self.norms, self.fista, self.trace = np.zeros((N, 2)), np.ones(N), np.zeros((N, T + 1, 3))

    def solve(self) -> Solution:
        """All steps of all images."""
        with threads() as pool:
            if self.spec.step_size == "batch":
                self.together(pool.map, batch_sample(len(self.images)))
            else:
                self.alone(pool.map, 0)
        return self.solution()

    def alone(self, each: Callable[..., Any], first: int) -> None:
        """All steps of each image from number `first` on, one image after the other in each thread."""

        mine = threading.local()  # memory that is new to a thread costs it more than an image's steps

        def work(chunk: slice) -> None:
            if not hasattr(mine, "room"):
                mine.room = self.room(1)
            self.advance(0, self.spec.steps, chunk, mine.room)

        list(each(work, chunks(first, len(self.images))))

    def together(self, each: Callable[..., Any], sample: int) -> None:
        """The batch rule: its first images step by step together; then the others, which follow their β."""
        T = self.spec.steps
        parts = chunks(0, sample)
        rooms = [self.room(part.stop - part.start) for part in parts]
        self.settings["line_search"] = True
        for t in range(T + 1):
            list(each(self.advance, [t] * len(parts), [t] * len(parts), parts, rooms))
            if t < T:
                squares, gained = self.norms[:sample].sum(0)
                self.beta[:, t] = squares / (self.spec.lam * gained) if gained > 0 else 0
        self.settings["line_search"] = False
        self.alone(each, sample)

    def room(self, images: int) -> Room:
        """Zeroed memory for the states of so many images, and for the codes that momentum needs."""
        top = self.layers[-1]
        codes = 2 * int(top["rows"] * top["columns"] * top["maps"])
        return (
            torch.zeros(images, self.state_size, dtype=self.dtype).numpy(),
            torch.zeros(images, codes, dtype=self.dtype).numpy(),
        )

    def advance(self, first: int, last: int, chunk: slice, room: Room) -> None:
        """Take these images from point `first` to point `last` of their way."""
        advance(
            first, last, self.spec.steps, self.images[chunk], self.packed.numpy()[chunk], *room,
            self.layers, self.filters, self.settings,
            self.beta[chunk], self.norms[chunk], self.trace[chunk], self.fista[chunk],
        )  # fmt: skip

    def solution(self) -> Solution:
        parts = iter(self.packed.split([tensor[0].numel() for tensor in self.start.tensors()], 1))
        latents = self.start.map(lambda tensor: next(parts).reshape(tensor.shape))
        reconstruction, penalty, nonzeros = torch.from_numpy(self.trace).permute(2, 1, 0)
        step = torch.from_numpy(self.beta).T
        stats = Stats(reconstruction.to(self.dtype), penalty.to(self.dtype), nonzeros.long(), step.to(self.dtype))
        return Solution(latents, stats, engine="cpu")


def settings(model: DeconvNet, spec: InferenceSpec) -> np.ndarray:
    """What the kernels are told."""
    found = np.zeros(1, SETTINGS)
    for name in ("lam", "alpha", "pooling_step", "gamma_min", "gamma_max", "moment_power", "momentum"):
        found[name] = getattr(spec, name)
    found["exact"] = spec.shrinkage == "exact"
    found["nonnegative"] = model.spec.nonnegative
    found["line_search"] = found["own_step"] = spec.step_size == "image"
    return found


def known_latents(model: DeconvNet, images: Tensor, latents: Latents, phase: Phase) -> Latents:
    """The latents that are known, as `ista.start` takes them; zeros for those that the kernels will fit."""
    N, zero = len(images), images.new_zeros(1)
    grids = [regions.grid for regions in model.regions(*images.shape[2:])[: phase.layer]]
    missing = grids[len(latents.pooling_params) :]
    thetas = [PoolingParams(zero.expand(N, 2, *grid), zero.expand(N, 2, *grid)) for grid in missing]
    ours = latents.p is not None and len(latents.pooling_params) == phase.layer
    p = latents.p if ours else zero.expand(N, *grids[-1])
    return Latents(p, (*latents.pooling_params[: phase.layer], *thetas))


def pack_latents(latents: Latents) -> Tensor:
    """All that is known of each image in one row, [N, …]."""
    return torch.cat([tensor.reshape(len(tensor), -1) for tensor in latents.tensors()], 1)


def pack_images(images: Tensor) -> np.ndarray:
    return images.permute(0, 2, 3, 1).reshape(len(images), -1).contiguous().numpy()


def threads() -> ThreadPoolExecutor:
    """As many as torch has. Numbers too small to be normal take a hundred times as long: here they count as zero."""
    return ThreadPoolExecutor(torch.get_num_threads(), initializer=torch.set_flush_denormal, initargs=(True,))


def chunks(first: int, last: int) -> list[slice]:
    """The images from `first` on in pieces of at most CHUNK, as many for every thread."""
    images, threads = last - first, torch.get_num_threads()
    count = -(-images // (CHUNK * threads)) * threads
    cuts = [first + images * i // count for i in range(count + 1)] if images else []
    return [slice(*pair) for pair in pairwise(cuts)]
