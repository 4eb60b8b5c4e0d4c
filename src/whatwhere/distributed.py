"""Many processes, started by `torchrun`: who takes which batch, and sums over all of them.

On one process everything here is the identity. This is the only file that knows torch.distributed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from whatwhere.errors import RunError, SpecError


def is_main_process() -> bool:
    """Is this the process that talks to the user? Known before the processes have joined each other."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def process_group(device: torch.device, timeout: float = 120.0) -> Iterator[None]:
    """Join the processes that torchrun started, if it did: gloo adds up CPU tensors, nccl those of GPUs.

    timeout  seconds to wait for a process that does not answer; one that is killed is noticed at once
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        dist.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise RunError(f"the processes of this run did not find each other: {_first_line(error)}") from error
    try:
        yield
    finally:
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
        dist.all_reduce(summed)
    except RuntimeError as error:
        raise RunError(
            f"process {rank()} of {world_size()} lost the others ({_first_line(error)}): one of them was ended "
            "or cannot be reached; the last checkpoint stands, so start all of them again with --resume"
        ) from error
    return summed


def barrier() -> None:
    """Go on when every process has come here."""
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
