"""Many processes, started by `torchrun`: who takes which batch, and sums over all of them.

On one process everything here is the identity. This is the only file that knows torch.distributed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from whatwhere.errors import RunError, SpecError, listed


def is_main_process() -> bool:
    """Is this the process that talks to the user? Known before the processes have joined each other."""
    return os.environ.get("RANK", "0") == "0"


@dataclass
class _Meeting:
    """Where the processes write how many sums they have begun, so that one that does not answer can be named."""

    store: Any  # torch exports the type of its stores only privately
    timeout: float
    sums: int = 0

    def begin_sum(self) -> None:
        self.sums += 1
        self.store.set(f"sums/{rank()}", str(self.sums))

    def absent(self) -> list[int]:
        """The processes that have not begun this sum; process 0 where the store, which it holds, is gone."""
        others = [other for other in range(world_size()) if other != rank()]
        absent: list[int] = []
        try:
            self.store.set_timeout(_GRACE)
            absent = [other for other in others if self._sums_of(other) < self.sums]
            self.store.set(f"left/{rank()}", "")
            if rank() == 0:  # the store ends with this process: leave only after the others have read it
                self.store.wait([f"left/{other}" for other in others if other not in absent], _GRACE)
        except RuntimeError:
            return [0] if rank() else absent
        return absent

    def _sums_of(self, other: int) -> int:
        return int(self.store.get(f"sums/{other}")) if self.store.check([f"sums/{other}"]) else 0


_GRACE = timedelta(seconds=5)
_meeting: _Meeting | None = None


@contextmanager
def process_group(device: torch.device, timeout: float = 120.0) -> Iterator[None]:
    """Join the processes that torchrun started, if it did: gloo adds up CPU tensors, nccl those of GPUs.

    timeout  seconds to wait for a process that does not answer; one that is killed is noticed at once
    """
    global _meeting
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    limit = timedelta(seconds=timeout)
    try:
        store, own_rank, count = next(iter(rendezvous("env://", timeout=limit)))
        dist.init_process_group(backend, store=store, rank=own_rank, world_size=count, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise RunError(
            f"the processes of this run did not find each other within {timeout:g} s: {_first_line(error)}; start all "
            "of them together, and check that they reach the address of the first"
        ) from error
    _meeting = _Meeting(cast(Any, dist).PrefixStore("whatwhere", store), timeout)
    try:
        yield
    finally:
        _meeting = None
        dist.destroy_process_group()


def rank() -> int:
    """This process's number, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    """How many processes there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def all_reduce_sum(tensor: Tensor) -> Tensor:
    """The sum of a tensor over all processes; the same bits on each."""
    if world_size() == 1:
        return tensor
    summed = tensor.clone()
    try:
        if _meeting is not None:
            _meeting.begin_sum()
        dist.all_reduce(summed)
    except RuntimeError as error:
        raise RunError(_lost(error)) from error
    return summed


def _lost(error: RuntimeError) -> str:
    """Which process does not answer, and what to do."""
    absent = [] if _meeting is None else _meeting.absent()
    numbers = listed(absent)
    names = f"process{'es' if len(absent) > 1 else ''} {numbers}" if absent else "another process"
    limit = "" if _meeting is None else f" within {_meeting.timeout:g} s"
    return (
        f"process {rank()} of {world_size()} lost the others: {names} ended, or did not answer{limit} "
        f"({_first_line(error)}). The last checkpoint is intact: start all processes again with --resume. If a batch "
        "takes longer than this limit, raise it with --set timeout=SECONDS"
    )


def barrier() -> None:
    """Wait until every process has come here."""
    all_reduce_sum(torch.zeros(1))


def choose_device(asked: torch.device | str) -> torch.device:
    """The device asked for; 'auto' is a GPU where there is one, and under torchrun 'cuda' is this process's own."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise SpecError(f"device {asked!r} was given; expected auto, cpu, cuda, cuda:1, …") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(f"device {str(asked)!r} was given; there is no GPU that torch can use here ('cpu' works)")
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return device


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
