"""Gaussian pooling on the CPU: `launch`, as `triton_pooling` has it, with the loop of `cpu_kernels`.

Threads share the planes (one channel of one image each), so that results do not depend on their number.
"""

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


def launch(
    operation: str, geometry: Sequence[int], tensors: Sequence[Tensor | None], fit: Sequence[float] = (0.0, 0.0, 2)
) -> None:
    """Run an operation on all rows of regions, in as many threads as pay; see `fused` for what it is given.

    tensors  z, p, μ and γ that are read, and then those that are written
    """
    own = [None if tensor is None else tensor.detach().contiguous() for tensor in tensors]
    p = next(tensor for tensor in (own[1], own[5]) if tensor is not None)
    if own[4] is not None and leaves_out_or_adds(geometry):
        own[4].zero_()
    if p.numel() > 0:
        run_in_threads(operation, tuple(geometry), p, [p.new_empty(0) if t is None else t for t in own], fit)
    for given, computed in zip(tensors[4:], own[4:], strict=True):
        if given is not None and computed is not None and not given.is_contiguous():
            given.copy_(computed)


def run_in_threads(
    operation: str, geometry: tuple[int, ...], p: Tensor, tensors: Sequence[Tensor], fit: Sequence[float]
) -> None:
    """The same on tensors that are contiguous."""
    (n, channels), rows = p.shape[:2], p.shape[2]
    planes, (record, length) = n * channels, describe(geometry, channels, operation)
    maps = tuple(tensor.view(-1).numpy() for tensor in tensors)
    how = float(fit[0]), float(fit[1]), int(fit[2])

    def work(first: int, last: int) -> None:
        memory = torch.zeros(length, dtype=p.dtype).numpy()
        kernels.run((first * rows, last * rows), record, how, maps, memory)

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


@cache
def thread_pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="whatwhere")
