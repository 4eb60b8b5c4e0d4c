"""Where this process computes: on which device, and in how many threads."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

import torch

from whatwhere.errors import SpecError


def choose_device(asked: torch.device | str, engine: str = "auto") -> torch.device:
    """The device asked for; 'auto' is a GPU where there is one and the engine can use it."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() and engine not in ("cpu", "greedy") else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise SpecError(f"device {asked!r} was given; expected auto, cpu, cuda, cuda:1, …") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(f"device {str(asked)!r} was given; there is no GPU that torch can use here ('cpu' works)")
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


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
        with ThreadPoolExecutor(threads) as pool:
            yield each
    finally:
        torch.set_num_threads(threads)
