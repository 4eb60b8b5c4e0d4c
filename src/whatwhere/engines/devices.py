"""The device on which this process computes."""

import os

import torch

from whatwhere.errors import SpecError


class UnknownDevice(SpecError):
    """A device that torch does not know, or that this machine does not have.

    Attributes
    ----------
    given
        its name
    reason
        what is wrong, as a clause
    """

    def __init__(self, given: object, reason: str) -> None:
        self.given = str(given)
        self.reason = reason
        super().__init__(f"Cannot use device {self.given!r}: {reason}.")


class TooFewDevices(SpecError):
    """More processes on a machine than it has GPUs.

    Attributes
    ----------
    process
        the number of the process without one
    count
        the number of GPUs
    """

    def __init__(self, process: int, count: int) -> None:
        self.process = process
        self.count = count
        super().__init__(
            f"Process {process} of this machine has no GPU: the machine has {count}. Start one"
            " process per GPU (torchrun --nproc-per-node gpu), or give --device cpu."
        )


def choose_device(asked: torch.device | str, engine: str = "auto") -> torch.device:
    """Return the requested device; 'auto' is a GPU if there is one and the engine can use it.

    'auto' and 'cuda' give each process that torchrun starts on a machine a separate GPU.
    """
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() and engine not in ("cpu", "greedy") else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise UnknownDevice(asked, "expected auto, cpu, cuda or one such as cuda:1") from None
    if device.type != "cuda":
        return device
    if not torch.cuda.is_available():
        raise UnknownDevice(asked, "torch finds no GPU here; use cpu")
    numbered = ":" in str(device)
    return device if numbered else torch.device("cuda", _local_gpu())


def _local_gpu() -> int:
    """Return the number of this process's GPU, which is the number of the process on its machine,
    as torchrun sets it."""
    rank = int(os.environ.get("LOCAL_RANK", "0"))
    if rank == 0:
        return 0
    count = torch.cuda.device_count()
    if rank >= count:
        raise TooFewDevices(rank, count)
    return rank
