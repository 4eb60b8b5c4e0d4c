"""The processes of one training, which `torchrun` starts: their sums, their common decisions, and
errors that name a missing process.

`ProcessGroup()` is one process by itself: a sum returns its input, and nothing waits. This is the
only file that knows torch.distributed.

    CPU tensors    gloo    sums of reports, stop requests, the table of latents; filter sums on CPUs
    GPU tensors    nccl    filter sums on GPUs

Both kinds of sums give the same bits to every process. gloo notices a process that is killed at
once, since its connections close; nccl would wait for its timeout. So the processes meet through
gloo before every sum on GPUs.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from whatwhere.errors import ReportedError, RunError, listed, plural

_GRACE = timedelta(seconds=5)  # for the last messages between the processes that are left


class _Store(Protocol):
    """Keys and values that all processes see; torch exports its type only privately."""

    def set(self, key: str, value: str) -> None: ...

    def get(self, key: str) -> bytes: ...

    def check(self, keys: list[str]) -> bool: ...

    def wait(self, keys: list[str], timeout: timedelta) -> None: ...

    def set_timeout(self, timeout: timedelta) -> None: ...


@dataclass
class Meeting:
    """Where every process writes how many sums it has begun: one that does not answer has begun
    fewer.

    Parameters
    ----------
    store
        keys and values that all processes see
    """

    store: _Store
    rank: int
    world_size: int
    sums: int = 0

    def begin_sum(self) -> None:
        self.sums += 1
        self.store.set(f"sums/{self.rank}", str(self.sums))

    def absent(self) -> list[int]:
        """Return the processes that have not begun this sum; process 0 if the store ended with
        it."""
        others = [rank for rank in range(self.world_size) if rank != self.rank]
        absent: list[int] = []
        try:
            self.store.set_timeout(_GRACE)
            absent = [rank for rank in others if self._sums_of(rank) < self.sums]
            self.store.set(f"left/{self.rank}", "")
            if self.rank == 0:
                # The store may end with this process, so the others read it first.
                present = [f"left/{rank}" for rank in others if rank not in absent]
                self.store.wait(present, _GRACE)
        except RuntimeError:
            return absent if self.rank == 0 else [0]
        return absent

    def _sums_of(self, rank: int) -> int:
        key = f"sums/{rank}"
        return int(self.store.get(key)) if self.store.check([key]) else 0


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a training; by default this one alone.

    Parameters
    ----------
    rank
        this process's number, from 0
    world_size
        how many there are
    local_size
        how many of them share this machine and its memory
    timeout
        seconds after which a process that does not answer counts as lost
    """

    rank: int = 0
    world_size: int = 1
    local_size: int = 1
    timeout: float = 0.0
    meeting: Meeting | None = field(default=None, repr=False, compare=False)

    @property
    def is_main(self) -> bool:
        """Is this the process that writes the state of the run and talks to the user?"""
        return self.rank == 0

    def share(self, count: int) -> range:
        """Return the numbers below `count` that are this process's: each belongs to exactly one."""
        return range(self.rank, count, self.world_size)

    def part(self, start: int, stop: int) -> tuple[int, int]:
        """Return the begin and end of this process's piece of a range; the pieces join without
        gaps."""
        length = stop - start
        first = start + length * self.rank // self.world_size
        last = start + length * (self.rank + 1) // self.world_size
        return first, last

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over all processes, the same bits on each."""
        if self.meeting is None:
            return tensor
        if tensor.is_cuda:
            self._together(lambda: dist.all_reduce(torch.zeros(1)))
        summed = tensor.clone(memory_format=torch.contiguous_format)
        self._together(lambda: dist.all_reduce(summed))
        return summed

    def broadcast(self, tensor: Tensor) -> Tensor:
        """Send process 0's tensor, on every process."""
        if self.meeting is None:
            return tensor
        own = tensor if self.is_main else torch.zeros_like(tensor)
        return self.all_reduce_sum(own)

    def any(self, holds: bool) -> bool:
        """Tell whether it holds for any of the processes. All of them get the same answer."""
        if self.meeting is None:
            return holds
        return bool(self.all_reduce_sum(torch.tensor([float(holds)])) > 0)

    def require_same(self, what: str, value: str) -> None:
        """Raise an error in all processes if one of them has another value than process 0.

        Parameters
        ----------
        what
            the name of what is compared, such as "images"
        """
        if self.meeting is None:
            return
        store = self.meeting.store
        store.set(f"same/{what}/{self.rank}", value)
        self.any(False)  # all have stored theirs
        values = [store.get(f"same/{what}/{rank}") for rank in range(self.world_size)]
        self.any(False)  # all have read them, so the one that keeps them may leave
        others = [rank for rank, other in enumerate(values) if other != values[0]]
        if others:
            raise ProcessesDiffer(what, others)

    def main_first(self, work: Callable[[], None]) -> None:
        """Do this in process 0 while the others wait. If it raises an error, they raise it too."""
        if self.meeting is None:
            work()
            return
        key = f"main/{self.meeting.sums}"
        if not self.is_main:
            if self.any(False):
                raise ReportedError(f"Process 1 ended with an error: {self._problem(key)}")
            return
        problem = "it was interrupted"
        try:
            work()
            problem = ""
        except Exception as error:
            problem = first_line(error)
            raise
        finally:
            self.meeting.store.set(key, problem)
            self.any(bool(problem))

    def _problem(self, key: str) -> str:
        """Return the message that process 0 stored about its error; the store may have ended with
        the process."""
        assert self.meeting is not None
        try:
            return str(self.meeting.store.get(key).decode())
        except RuntimeError:
            return "see the message that it printed"

    def _together(self, collective: Callable[[], object]) -> None:
        """Call a function of torch.distributed; a process that is missing is an error that names
        it."""
        assert self.meeting is not None
        try:
            self.meeting.begin_sum()
            collective()
        except RuntimeError as error:
            raise ProcessLost(self._lost()) from error

    def _lost(self) -> str:
        """Return which process does not answer."""
        absent = [] if self.meeting is None else self.meeting.absent()
        names = "another process"
        if absent:
            numbers = listed(rank + 1 for rank in absent)
            ranks = listed(absent)
            s = "" if len(absent) == 1 else "s"
            names = f"process{'e' * len(s)}{s} {numbers} of {self.world_size} (rank{s} {ranks})"
        return (
            f"Process {self.rank + 1} of {self.world_size} (rank {self.rank}) stops, because"
            f" {names} ended or did not answer within {self.timeout:g} s. If a batch takes longer"
            " than this limit, raise it with --set timeout=SECONDS."
        )


class ProcessLost(RunError):
    """Another process of the training ended, or does not answer."""


class ProcessesDiffer(RunError):
    """Processes of one training that were not given the same.

    Attributes
    ----------
    what
        what differs, such as "images"
    ranks
        the processes that have another value than process 0
    """

    def __init__(self, what: str, ranks: Sequence[int]) -> None:
        self.what = what
        self.ranks = tuple(ranks)
        who = f"Process {ranks[0] + 1} (rank {ranks[0]}) has"
        if len(ranks) > 1:
            who = f"The processes of ranks {listed(ranks)} have"
        super().__init__(
            f"{who} other {what} than process 1 (rank 0). Give the same {what} to all processes of"
            " a training, also on other machines."
        )


def torchrun_words() -> list[str]:
    """Return the words that start `whatwhere` as this process was started: by torchrun, or
    alone."""
    if not started_by_torchrun():
        return ["whatwhere"]
    local = os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])
    nodes = int(os.environ["WORLD_SIZE"]) // int(local)
    where = ["--standalone"] if nodes == 1 else ["--nnodes", str(nodes)]
    return ["torchrun", *where, "--nproc-per-node", local, "-m", "whatwhere"]


def processes_line() -> str:
    """Return how many processes train together, and in how many threads; empty for one process."""
    if not started_by_torchrun():
        return ""
    count = int(os.environ["WORLD_SIZE"])
    nodes = count // int(os.environ.get("LOCAL_WORLD_SIZE", str(count)))
    machines = f" on {nodes} machines" if nodes > 1 else ""
    threads = plural(torch.get_num_threads(), "thread")
    return f"{count} processes (torchrun){machines}, {threads} each"


def started_by_torchrun() -> bool:
    """Tell whether torchrun, or something that sets its variables, started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def is_main_process() -> bool:
    """Tell whether this is the process that talks to the user. Known before the processes have
    met."""
    return not started_by_torchrun() or os.environ["RANK"] == "0"


@contextmanager
def open_processes(device: torch.device, timeout: float) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, for as long as the block lasts; this one alone
    without torchrun."""
    if not started_by_torchrun():
        yield ProcessGroup()
        return
    with joined(device, timeout) as group:
        yield group


@contextmanager
def joined(device: torch.device, timeout: float) -> Iterator[ProcessGroup]:
    """Meet the other processes: gloo adds up CPU tensors, and nccl adds up GPU tensors."""
    backend = "gloo"
    if device.type == "cuda":
        backend = "cpu:gloo,cuda:nccl"
        torch.cuda.set_device(device)
    limit = timedelta(seconds=timeout)
    try:
        meeting_place = rendezvous("env://", timeout=limit)
        store, rank, world_size = next(iter(meeting_place))
        dist.init_process_group(
            backend, store=store, rank=rank, world_size=world_size, timeout=limit
        )
    except (RuntimeError, ValueError) as error:
        raise RunError(
            f"The processes of this run did not connect within {timeout:g} s: {first_line(error)}."
            " Start all of them at the same time, and check that each reaches the address of the"
            " first."
        ) from error
    shared = cast(Any, dist).PrefixStore("whatwhere", store)
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    try:
        yield ProcessGroup(rank, world_size, local_size, timeout, Meeting(shared, rank, world_size))
    finally:
        dist.destroy_process_group()


def first_line(error: Exception) -> str:
    """Return the first line of a message; the name of the error if it has none."""
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
