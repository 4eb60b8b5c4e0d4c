"""How work is computed, apart from what it computes: engine and device, and for training where it
stores latents and when it saves checkpoints."""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from whatwhere.errors import InvalidSetting, SpecError, plural
from whatwhere.spec.checks import Checked, Count, CountOrZero, Positive, require


@dataclass(frozen=True, kw_only=True)
class Execution(Checked):
    """The engine that computes, and its device.

    Parameters
    ----------
    engine
        the engine that computes inference; `whatwhere info` lists them. 'auto' takes the fastest
        one that supports the model
    device
        the device to compute on: cpu, cuda, cuda:1, …; 'auto' takes a GPU if there is one
    """

    engine: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", str(self.device))  # a torch.device is accepted
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Execution):
    """How a training runs; the recipe says what it computes.

    Parameters
    ----------
    engine
        the engine that computes inference; `whatwhere info` lists them. 'auto' takes the fastest
        one that supports the model
    device
        the device to compute on: cpu, cuda, cuda:1, …; 'auto' takes a GPU if there is one
    store
        where to keep latents between epochs: 'memory', 'file', or 'auto' (in memory if they fit)
    checkpoint_every
        epochs between checkpoints; 0 writes one only when training stops. By default every epoch
        ends with one, unless that would take more than a tenth of the time
    timeout
        seconds to wait for another process (torchrun) that does not answer; must be longer than the
        slowest batch
    notes
        plain values to store in the checkpoint, such as where the images came from

    Examples
    --------
    >>> ww.TrainingOptions(engine="reference", device="cpu", checkpoint_every=5).store
    'auto'
    """

    store: Literal["auto", "memory", "file"] = "auto"
    checkpoint_every: CountOrZero | None = None
    timeout: Positive = 300.0
    notes: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard(Checked):
    """A part of the work of a command that processes pictures one by one.

    Parameters
    ----------
    index
        the number of this part, from 1
    count
        the number of parts
    origin
        what set it: an option, or the variables of a scheduler
    """

    index: Count = 1
    count: Count = 1
    origin: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        expected = f"a part from 1/{self.count} to {self.count}/{self.count}"
        require(self.index <= self.count, {"shard": str(self)}, expected)

    @property
    def is_all(self) -> bool:
        """Is this the only part?"""
        return self.count == 1

    def rows(self, total: int) -> range:
        """Return this part of `total` things in their order; the parts join without gaps."""
        return range(
            total * (self.index - 1) // self.count,
            total * self.index // self.count,
        )

    def rows_of_pictures(self, total: int) -> range:
        """Return this part of `total` pictures; raises a SpecError if some part would have none."""
        require(
            self.is_all or self.count <= total,
            {self.origin: str(self), "pictures": total},
            f"at most {plural(total, 'part')}",
        )
        return self.rows(total)

    def part_of(self, out: Path, suffix: str = "") -> Path:
        """Return where this part is written: `out` itself if it is the only one, otherwise a file
        with this ending, or a folder, in the folder `out`."""
        if self.is_all:
            return out
        return out / f"part-{self.index:05}-of-{self.count:05}{suffix}"

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


ALL = Shard()  # the only part


class ArrayWithGaps(SpecError):
    """A Slurm array in which the number of a task does not show its part.

    Attributes
    ----------
    count
        the number of tasks
    first, last
        their lowest and their highest number
    """

    def __init__(self, count: int, first: int, last: int) -> None:
        self.count = count
        self.first = first
        self.last = last
        super().__init__(
            f"This Slurm array has gaps: it has {plural(count, 'task')} with numbers from {first}"
            f" to {last}, so that the number of a task does not show its part. Give --shard I/N,"
            ' such as --shard "$SLURM_ARRAY_TASK_ID/100".'
        )


class StartedSeveralTimes(SpecError):
    """A command without a part that `srun` started several times."""

    def __init__(self) -> None:
        super().__init__(
            "srun started this command several times, and each process would process all pictures."
            " Give each a part: srun bash -c 'whatwhere … --shard"
            " $((SLURM_PROCID + 1))/$SLURM_NTASKS'. To process all pictures in this process, give"
            " --shard 1/1."
        )


def choose_shard(given: str | None) -> Shard:
    """Return the part that `--shard` names; without it, the part of this task of a Slurm array, or
    of this process of torchrun."""
    if given is not None:
        match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", given)
        if match is None:
            raise InvalidSetting({"--shard": given}, "I/N, such as 1/4")
        index = int(match[1])
        count = int(match[2])
        if not 1 <= index <= count:
            last = f"{count}/{count}" if count else "N/N"
            raise InvalidSetting({"--shard": given}, f"a part from 1/{count or 'N'} to {last}")
        return Shard(index, count, "--shard")
    if "SLURM_ARRAY_TASK_ID" in os.environ and "SLURM_ARRAY_TASK_COUNT" in os.environ:
        return _shard_of_array()
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        return Shard(int(os.environ["RANK"]) + 1, int(os.environ["WORLD_SIZE"]), "RANK")
    _check_srun()
    return Shard()


def _shard_of_array() -> Shard:
    """Return the part of this task of a Slurm array. An array with gaps raises a SpecError in all
    of its tasks, because its parts would differ from the array that it repeats."""
    index = int(os.environ["SLURM_ARRAY_TASK_ID"])
    count = int(os.environ["SLURM_ARRAY_TASK_COUNT"])
    first = int(os.environ.get("SLURM_ARRAY_TASK_MIN", "0"))
    last = int(os.environ.get("SLURM_ARRAY_TASK_MAX", index))
    step = int(os.environ.get("SLURM_ARRAY_TASK_STEP", "1"))  # of --array=0-98:2
    without_gaps = (last - first) // step + 1
    has_gaps = (
        without_gaps != count if "SLURM_ARRAY_TASK_MAX" in os.environ else without_gaps > count
    )
    if has_gaps:
        raise ArrayWithGaps(count, first, last)
    return Shard((index - first) // step + 1, count, "SLURM_ARRAY_TASK_ID")


def _check_srun() -> None:
    """Raise a SpecError in a process that `srun` started together with others, because each of them
    would process everything and write it to the same place.

    A batch script has SLURM_NTASKS as well, and SLURM_PROCID = 0, although it is one process.
    """
    process = int(os.environ.get("SLURM_PROCID", "0"))
    in_step = int(os.environ.get("SLURM_STEP_NUM_TASKS", "1"))  # set by srun alone
    if process > 0 or in_step > 1:
        raise StartedSeveralTimes


def part_number(path: Path) -> Shard:
    """Return which part a file is, by its name; raises a SpecError for any other name."""
    match = re.fullmatch(r"part-([0-9]{5,9})-of-([0-9]{5,9})", path.stem)
    if match is None:
        raise InvalidSetting({"part": path.name}, "a name such as part-00001-of-00004")
    return Shard(int(match[1]), int(match[2]))


@dataclass(frozen=True, kw_only=True)
class Sharding(Checked):
    """Which part of the pictures a command processes.

    Parameters
    ----------
    shard
        process only part I of N of the pictures (I/N), so that each part can run on another
        machine; 1/1 processes all. In a Slurm array (SLURM_ARRAY_TASK_ID) and under torchrun
        (RANK), the default is the part of this process
    """

    shard: str | None = None
