"""Gaussian pooling on the CPU: the five functions of `triton_pooling` with the loop of `cpu_kernels`.

Threads share the planes (one channel of one image each), so that results do not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from whatwhere.inference.engines.jit.simd import LANES
from whatwhere.nn import cpu_kernels as kernels

TILE = 512  # regions that are processed together, about
PER_THREAD = 20_000  # regions for which another thread pays
NO_FIT = (0.0, 0.0, 2)
Given = Tensor | None
NONE: tuple[Given, Given, Given] = (None, None, None)


def fit_pool(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int], lo: float, hi: float, power: int
) -> None:
    launch(kernels.FIT_POOL, geometry, (z, *NONE, None, p, mu, gamma), (lo, hi, power))


def fit_pool_backward(
    z: Tensor,
    d_p: Tensor,
    d_mu: Tensor | None,
    d_gamma: Tensor | None,
    d_z: Tensor,
    geometry: Sequence[int],
    lo: float,
    hi: float,
    power: int,
) -> None:
    clear(d_z, geometry)
    launch(kernels.FIT_POOL_BACKWARD, geometry, (z, d_p, d_mu, d_gamma, d_z, *NONE), (lo, hi, power))


def pool(z: Tensor, mu: Tensor, gamma: Tensor, p: Tensor, geometry: Sequence[int]) -> None:
    launch(kernels.POOL, geometry, (z, None, mu, gamma, None, p, None, None), NO_FIT)


def slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, d_p: Tensor, d_mu: Tensor, d_gamma: Tensor, geometry: Sequence[int]
) -> None:
    launch(kernels.SLOPES, geometry, (z, p, mu, gamma, None, d_p, d_mu, d_gamma), NO_FIT)


def unpool(p: Tensor, mu: Tensor, gamma: Tensor, z: Tensor, geometry: Sequence[int]) -> None:
    clear(z, geometry)
    launch(kernels.UNPOOL, geometry, (None, p, mu, gamma, z, *NONE), NO_FIT)


def clear(z: Tensor, geometry: Sequence[int]) -> None:
    """Set the map to zero if regions overlap, since they add to it, or if they leave elements out."""
    axes = (geometry[axis::2] for axis in range(2))
    if any(t != s or (regions - 1) * t + s - before < n for s, t, before, n, regions in axes):
        z.zero_()


def launch(operation: int, geometry: Sequence[int], tensors: Sequence[Given], how: tuple[float, float, int]) -> None:
    """Run an operation on all rows of regions, in as many threads as pay.

    tensors  z, p, μ and γ that are read, and then those that are written
    """
    p = next(tensor for tensor in (tensors[1], tensors[5]) if tensor is not None)
    if p.numel() == 0:
        return
    (planes, channels), (rows, columns) = (p.shape[0] * p.shape[1], p.shape[1]), p.shape[2:]
    tile = max(1, TILE // columns)
    pitch = -(-tile * columns // LANES) * LANES
    reach = [before == 0 and (n - 1) * t + s <= end for s, t, before, end, n in (geometry[a::2] for a in range(2))]
    overlap = geometry[2] < geometry[0] or geometry[3] < geometry[1]
    record = np.zeros(1, kernels.GEOMETRY)
    record[0] = (*geometry, channels, all(reach), overlap, tile, pitch, operation)
    size_y, size_x = geometry[:2]
    length, maps = (size_y * size_x + 2 * (size_y + size_x) + kernels.VALUES) * pitch, maps_of(tensors, p)

    def work(first: int, last: int) -> None:
        memory = torch.zeros(length, dtype=p.dtype).numpy()
        kernels.run((first * rows, last * rows), record, how, maps, memory)

    threads = max(1, min(torch.get_num_threads(), planes, p.numel() // PER_THREAD))
    if threads == 1:
        work(0, planes)
        return
    cuts = [planes * i // threads for i in range(threads + 1)]
    list(thread_pool(os.getpid(), threads).map(lambda pair: work(*pair), pairwise(cuts)))


def maps_of(tensors: Sequence[Given], like: Tensor) -> kernels.Maps:
    """The memory of z, p, μ and γ as flat arrays, twice, with μ and γ [N, 2, C, h, w] once for each axis."""
    none = like.new_empty(0).numpy()
    arrays, strides = [], []
    for tensor, axes in zip(tensors, (1, 1, 2, 2) * 2, strict=True):
        if tensor is None or tensor.numel() == 0:
            arrays += [none] * axes
            strides += [[0] * 5] * axes
            continue
        steps = tensor.stride()
        length = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, steps, strict=True))
        arrays += [torch.as_strided(tensor.detach(), (length,), (1,)).numpy()] * axes
        strides += [[steps[0], *steps[-3:], axis * steps[1]] for axis in range(axes)]
    return kernels.Maps(tuple(arrays), np.array(strides, np.int64))


@cache
def thread_pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="whatwhere-pooling")
