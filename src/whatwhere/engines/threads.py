"""Threads: how work is shared between them, and how they treat numbers that are almost 0."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import islice, pairwise
from typing import Protocol, TypeVar

import torch

Result = TypeVar("Result")


class Map(Protocol):
    """Calls a function with the items of iterables, as Python's `map`."""

    def __call__(
        self, function: Callable[..., Result], /, *arguments: Iterable[object]
    ) -> Iterator[Result]: ...


CHUNK = 8  # images that a thread takes at a time, at most


@contextmanager
def workers() -> Iterator[Map]:
    """Yield a `map` of pictures in as many threads as PyTorch uses; few are in memory at a time.

    Within it, PyTorch computes a picture in one thread, so that results do not depend on the number
    of threads.
    """
    threads = torch.get_num_threads()

    def each(function: Callable[..., Result], /, *arguments: Iterable[object]) -> Iterator[Result]:
        items = zip(*arguments, strict=False)
        while some := list(islice(items, 4 * threads)):
            yield from pool.map(lambda item: function(*item), some)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads) as pool:
            yield each
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute many small parts in the calling thread alone: to share each takes longer than to
    compute it, and far longer while other processes use the cores."""
    from threadpoolctl import threadpool_limits

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def share(work: Callable[[int, int], None], count: int, threads: int) -> None:
    """Call `work(first, last)` on equal parts of `count`, each in a separate thread."""
    if threads <= 1:
        work(0, count)
        return
    ends = [count * i // threads for i in range(threads + 1)]
    list(_waiting_threads(os.getpid(), threads).map(work, ends[:-1], ends[1:]))


@cache
def _waiting_threads(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that wait for work; a forked process gets its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="whatwhere")


def solver_pool() -> ThreadPoolExecutor:
    """As many threads as torch uses. They treat denormal numbers, which take a hundred times as
    long, as zero."""
    return ThreadPoolExecutor(
        torch.get_num_threads(), initializer=torch.set_flush_denormal, initargs=(True,)
    )


def chunks(first: int, last: int) -> list[slice]:
    """Return the images from `first` to `last` in pieces of at most CHUNK, the same number of
    pieces for every thread."""
    images, threads = last - first, torch.get_num_threads()
    count = -(-images // (CHUNK * threads)) * threads
    cuts = [first + images * i // count for i in range(count + 1)] if images else []
    return [slice(begin, end) for begin, end in pairwise(cuts) if begin < end]


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat denormal numbers as 0, because some processors take a hundred times as long for them.

    The setting belongs to the calling thread and is restored afterwards.
    """
    already = float(torch.tensor([1e-40]) * 1) == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(already)
