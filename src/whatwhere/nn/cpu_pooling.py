"""Gaussian pooling on the CPU: `launch`, as `triton_pooling` has it, with the loop of `cpu_kernels`.

Threads share the planes (one channel of one image each), so that results do not depend on their number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from whatwhere.inference.engines.jit.simd import LANES
from whatwhere.nn import cpu_kernels as kernels

TILE = 512  # regions that are processed together, about
PER_THREAD = 20_000  # regions for which another thread pays
Given = Tensor | None


def launch(
    operation: str, geometry: Sequence[int], tensors: Sequence[Given], fit: Sequence[float] = (0.0, 0.0, 2)
) -> None:
    """Run an operation on all rows of regions, in as many threads as pay; see `fused` for what it is given.

    tensors  z, p, μ and γ that are read, and then those that are written
    """
    p = next(tensor for tensor in (tensors[1], tensors[5]) if tensor is not None)
    if tensors[4] is not None and leaves_out_or_adds(geometry):
        tensors[4].zero_()
    if p.numel() == 0:
        return
    (n, channels), rows = p.shape[:2], p.shape[2]
    planes, (record, length), maps = n * channels, describe(tuple(geometry), channels, operation), flat_maps(tensors)
    how = float(fit[0]), float(fit[1]), int(fit[2])

    def work(first: int, last: int) -> None:
        memory = torch.zeros(length, dtype=p.dtype).numpy()
        kernels.run((first * rows, last * rows), record, how, *maps, memory)

    threads = max(1, min(torch.get_num_threads(), planes, p.numel() // PER_THREAD))
    if threads == 1:
        work(0, planes)
        return
    cuts = [planes * i // threads for i in range(threads + 1)]
    list(thread_pool(os.getpid(), threads).map(lambda pair: work(*pair), pairwise(cuts)))


def leaves_out_or_adds(geometry: Sequence[int]) -> bool:
    """Whether regions overlap, so that they add to the map, or leave elements out: it is then set to zero first."""
    axes = (geometry[axis::2] for axis in range(2))
    return any(t != s or (regions - 1) * t + s - before < n for s, t, before, n, regions in axes)


@lru_cache(256)
def describe(geometry: tuple[int, ...], channels: int, operation: str) -> tuple[np.ndarray, int]:
    """What the kernel knows of regions, and the length of its work memory."""
    axes = [geometry[axis::2] for axis in range(2)]
    inside = all(before == 0 and (regions - 1) * t + s <= n for s, t, before, n, regions in axes)
    overlap = any(t < s for s, t, *_ in axes)
    (size_y, size_x), columns = geometry[:2], geometry[-1]
    tile = max(1, TILE // columns)
    pitch = -(-tile * columns // LANES) * LANES
    number = kernels.OPERATIONS.index(operation)
    record = np.array([(*geometry, channels, inside, overlap, tile, pitch, number)], kernels.GEOMETRY)
    return record, (size_y * size_x + 2 * (size_y + size_x) + kernels.VALUES) * pitch


def flat_maps(tensors: Sequence[Given]) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """The memory of z, p, μ and γ as flat arrays, twice, with μ and γ [N, 2, C, h, w] once for each axis."""
    arrays: list[np.ndarray | None] = []
    steps: list[tuple[int, ...]] = []
    for tensor, axes in zip(tensors, (1, 1, 2, 2) * 2, strict=True):
        if tensor is None or tensor.numel() == 0:
            arrays += [None] * axes
            steps.append((0,) * (3 + axes))
            continue
        steps.append(tensor.stride())
        length = 1 + sum((n - 1) * step for n, step in zip(tensor.shape, steps[-1], strict=True))
        arrays += [torch.as_strided(tensor.detach(), (length,), (1,)).numpy()] * axes
    given = next(array for array in arrays if array is not None)
    return tuple(given[:0] if array is None else array for array in arrays), stride_table(tuple(steps))


@lru_cache(256)
def stride_table(steps: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Strides of images, channels, rows and columns of every map, and where it begins: [12, 5]."""
    rows = [(own[0], *own[-3:], axis * own[1]) for own in steps for axis in range(len(own) - 3)]
    return np.array(rows, np.int64)


@cache
def thread_pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="whatwhere")
