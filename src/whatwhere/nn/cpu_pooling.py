"""Gaussian pooling on the CPU: the five functions of `triton_pooling` with the kernels of `cpu_kernels`.

Threads share the planes (one channel of one image each), so that results do not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.inference.engines.jit.simd import LANES
from whatwhere.nn import cpu_kernels
from whatwhere.nn.cpu_memory import FEATURES, GEOMETRY

TILE = 512  # regions that are processed together, about
PER_THREAD = 20_000  # regions for which another thread pays


def fit_pool(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, geometry: Sequence[int], lo: float, hi: float, power: int
) -> None:
    return_where = mu.dim() == 5
    arrays = (*flat(z), *flat(p), *flat(mu), *flat(gamma))
    launch(cpu_kernels.fit_pool, z, p, geometry, *arrays, return_where, lo, hi, power)


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
    clear(d_z, d_p, geometry)
    none = z.new_empty(0)
    gradients = (*flat(d_p), *flat(none if d_mu is None else d_mu), *flat(none if d_gamma is None else d_gamma))
    flags = (d_mu is not None, d_gamma is not None)
    launch(cpu_kernels.fit_pool_backward, z, d_p, geometry, *flat(z), *gradients, *flags, *flat(d_z), lo, hi, power)


def pool(z: Tensor, mu: Tensor, gamma: Tensor, p: Tensor, geometry: Sequence[int]) -> None:
    arrays = (*flat(z), *flat(p), *flat(mu), *flat(gamma))
    launch(cpu_kernels.pool, z, p, geometry, *arrays, False, *flat(p), *flat(mu), *flat(gamma))


def slopes(
    z: Tensor, p: Tensor, mu: Tensor, gamma: Tensor, d_p: Tensor, d_mu: Tensor, d_gamma: Tensor, geometry: Sequence[int]
) -> None:
    arrays = (*flat(z), *flat(p), *flat(mu), *flat(gamma))
    launch(cpu_kernels.pool, z, p, geometry, *arrays, True, *flat(d_p), *flat(d_mu), *flat(d_gamma))


def unpool(p: Tensor, mu: Tensor, gamma: Tensor, z: Tensor, geometry: Sequence[int]) -> None:
    clear(z, p, geometry)
    launch(cpu_kernels.unpool, z, p, geometry, *flat(p), *flat(mu), *flat(gamma), *flat(z))


def flat(tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The memory of a tensor as a flat array, and its strides along (image, channel, row, column[, axis])."""
    strides = tensor.stride()
    if tensor.dim() == 5:  # μ and γ, [N, 2, C, h, w]
        strides = (strides[0], *strides[2:], strides[1])
    length = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if tensor.numel() else 0
    memory = torch.as_strided(tensor.detach(), (length,), (1,))
    return memory.numpy(), np.array([*strides, *[0] * (5 - len(strides))], np.int64)


def overlapping(geometry: Sequence[int]) -> bool:
    size_y, size_x, stride_y, stride_x = geometry[:4]
    return stride_y < size_y or stride_x < size_x


def clear(z: Tensor, p: Tensor, geometry: Sequence[int]) -> None:
    """Set the map to zero if regions overlap, since they add to it, or if they leave elements out."""
    for n, g, s, t, before in zip(z.shape[2:], p.shape[2:], geometry[:2], geometry[2:4], geometry[4:6], strict=True):
        if t != s or (g - 1) * t + s - before < n:
            z.zero_()
            return


def describe(z: Tensor, p: Tensor, geometry: Sequence[int]) -> np.ndarray:
    size, stride, before = geometry[:2], geometry[2:4], geometry[4:6]
    reach = [(g - 1) * t + s for g, s, t in zip(p.shape[2:], size, stride, strict=True)]
    inside = not any(before) and reach[0] <= z.shape[2] and reach[1] <= z.shape[3]
    record = np.zeros(1, GEOMETRY)
    record[0] = (*z.shape[1:], *p.shape[2:], *geometry[:6], inside, overlapping(geometry))
    return record


def launch(kernel: Any, z: Tensor, p: Tensor, geometry: Sequence[int], *arguments: Any) -> None:
    """Run a kernel on all rows of regions, in as many threads as pay."""
    if p.numel() == 0:
        return
    record = describe(z, p, geometry)
    size_y, size_x = geometry[:2]
    planes, (rows, columns) = p.shape[0] * p.shape[1], p.shape[2:]
    tile = max(1, TILE // columns)
    width = -(-tile * columns // LANES) * LANES
    length = (size_y * size_x + 2 * (size_y + size_x) + FEATURES) * width

    def work(first: int, last: int) -> None:
        memory = torch.zeros(length, dtype=z.dtype).numpy()
        kernel(first * rows, last * rows, tile, record, memory, width, *arguments)

    threads = max(1, min(torch.get_num_threads(), planes, p.numel() // PER_THREAD))
    if threads == 1:
        work(0, planes)
        return
    cuts = [planes * i // threads for i in range(threads + 1)]
    list(thread_pool(os.getpid(), threads).map(lambda pair: work(*pair), pairwise(cuts)))


@cache
def thread_pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="whatwhere-pooling")
