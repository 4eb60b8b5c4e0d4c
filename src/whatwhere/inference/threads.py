"""Pictures at the same time, each in a thread of its own."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch


@contextmanager
def workers() -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` of pictures in as many threads as PyTorch uses; few are in memory at a time.

    Within it, PyTorch computes a picture in one thread, so that results do not depend on the number of threads.
    """
    threads = torch.get_num_threads()

    def each(function: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        items = zip(*arguments, strict=False)
        while some := list(islice(items, 4 * threads)):
            yield from pool.map(lambda item: function(*item), some)

    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield each
    finally:
        torch.set_num_threads(threads)
