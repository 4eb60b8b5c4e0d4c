"""Latents of every image, stored from epoch to epoch, batch by batch, bit for bit the same in
memory and in files.

Each batch has a file in each of two generations, `batch3-0.npz` and `batch3-1.npz`. It is read from
where it was written last, and written to the generation that the last checkpoint does not hold, so
what the checkpoint holds stays untouched until `retain` says that there is a new one.
"""

import math
import shutil
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data.arrays import open_npz
from whatwhere.errors import ImageError, RunError, plural
from whatwhere.files import open_atomic
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model.sized import layer_regions
from whatwhere.spec import ModelSpec


class NoRoom(RunError):
    """Latents that fit neither into memory nor onto the disk.

    Attributes
    ----------
    needed
        bytes of memory that they need; as files twice that
    memory
        bytes of memory that are free
    disk
        bytes that are free on the disk of `place`
    place
        a folder on that disk
    """

    def __init__(self, needed: float, memory: float, disk: float, place: str) -> None:
        self.needed = needed
        self.memory = memory
        self.disk = disk
        self.place = place
        super().__init__(
            f"The latents need {needed / 1e9:.3g} GB of memory, but only {memory / 1e9:.3g} GB are"
            f" free. As files they need twice that, but the disk of {place} has only"
            f" {disk / 1e9:.3g} GB free. Free some disk space, choose another folder, use fewer"
            " images, or learn in a stream (learning.each.update=batch)."
        )


class LatentStore:
    """The latents of every batch on a device.

    Parameters
    ----------
    folder
        where checkpoints, or batches that are not in memory, put them; None keeps latents in memory
        only
    in_memory
        False reads every batch from its file
    local
        the batches of this process; the others are neither read nor written
    table
        where each batch was written last: [batches, 2], the generation (from 1; 0: nowhere) and a
        checksum
    retained
        the same of the last checkpoint
    """

    def __init__(
        self,
        batches: int,
        device: torch.device,
        folder: Path | None,
        *,
        in_memory: bool,
        local: Sequence[int] | None = None,
    ) -> None:
        self.device = device
        self.folder = folder
        self.local = range(batches) if local is None else local
        self.table = torch.zeros(batches, 2, dtype=torch.int64)
        self.retained = self.table.clone()
        self._memory = {batch: Latents() for batch in self.local} if in_memory else None
        self._unsaved: set[int] = set()

    def read(self, batch: int) -> Latents:
        """Return the latents of a batch on the device; empty before its first inference."""
        if self._memory is not None:
            return self._memory[batch]
        return self._read_file(batch).to(self.device)

    def write(self, batch: int, latents: Latents) -> None:
        """Store the latents of a batch; in a file, wait until they are on the disk."""
        if self._memory is None:
            self._write_file(batch, latents)
        else:
            self._memory[batch] = latents
            self._unsaved.add(batch)

    def flush(self) -> Tensor:
        """Write what is in memory alone to the disk; returns the rows of this process's batches in
        the table for a checkpoint, 0 for batches of others."""
        for batch in sorted(self._unsaved):
            self._write_file(batch, self.read(batch))
        self._unsaved.clear()
        rows = torch.zeros_like(self.table)
        rows[list(self.local)] = self.table[list(self.local)]
        return rows

    def retain(self, table: Tensor) -> None:
        """Note that this table is in the checkpoint now: its files are not written to until there
        is another one."""
        self.table = table.clone()
        self.retained = table.clone()

    def restore(self, table: Tensor) -> None:
        """Load the latents of a checkpoint; damaged ones raise an error."""
        if table.shape != self.table.shape:
            raise ValueError(
                f"it has the latents of {plural(len(table), 'batch', 'batches')}; expected"
                f" {len(self.table):,} for these images"
            )
        self.retain(table)
        for batch in self.local:
            latents = self._read_file(batch)
            if self._memory is not None:
                self._memory[batch] = latents.to(self.device)

    def _write_file(self, batch: int, latents: Latents) -> None:
        generation = 2 if self.retained[batch, 0] == 1 else 1
        arrays = [tensor.cpu().numpy() for tensor in latents.tensors()]
        named: Any = dict(zip(names(len(latents.pooling_params)), arrays, strict=True))
        path = self._path(batch, generation)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_atomic(path) as file:
            np.savez(file, **named)
        self.table[batch] = torch.tensor((generation, _checksum(arrays)))

    def _read_file(self, batch: int) -> Latents:
        """Return the latents of one batch as they were written last; empty before that."""
        generation = int(self.table[batch, 0])
        if not generation:
            return Latents()
        path = self._path(batch, generation)
        try:
            with open_npz(path) as archive:
                arrays = [archive[name] for name in names((len(archive) - 1) // 2)]
        except ImageError as error:
            raise RunError(
                f"Cannot read the latents of batch {batch + 1}: {error} ({path})."
            ) from error
        if _checksum(arrays) != self.table[batch, 1]:
            raise RunError(f"{path} is damaged: cannot read the latents of batch {batch + 1}.")
        tensors = [torch.from_numpy(values) for values in arrays]
        return Latents(tensors[0], tuple(map(PoolingParams, tensors[1::2], tensors[2::2])))

    def _path(self, batch: int, generation: int) -> Path:
        assert self.folder is not None, "latents in memory only"
        return self.folder / f"batch{batch + 1}-{generation - 1}.npz"


def names(depth: int) -> list[str]:
    """Return the arrays of latents of this many layers, in the order of `Latents.tensors`."""
    return ["p", *(f"{name}{k}" for k in range(1, depth + 1) for name in ("mu", "gamma"))]


def _checksum(arrays: Iterable[np.ndarray]) -> int:
    checksum = 0
    for values in arrays:
        checksum = zlib.crc32(np.ascontiguousarray(values).data, checksum)
    return checksum


def latents_fit(needed: int, device: torch.device, folder: Path) -> bool:
    """Tell whether memory has room for this many bytes of latents; otherwise they are stored in
    files. Raises an error if the disk has no room either."""
    free = free_memory(device)
    if needed <= 0.5 * free:  # inference needs room for its own work
        return True
    on_disk = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    space = shutil.disk_usage(on_disk).free
    if 2 * needed > space:
        raise NoRoom(needed, free, space, str(on_disk))
    return False


def latents_per_image(spec: ModelSpec, height: int, width: int) -> int:
    """Return how many numbers the latents of one image are, in the layer of training that has
    most."""
    largest = 0
    pooling = 0
    for regions in layer_regions(spec, height, width):
        features = math.prod(regions.grid)
        pooling += 2 * len(regions.axes) * features
        largest = max(largest, features + pooling)
    return largest


def free_memory(device: torch.device) -> int:
    """Return bytes that this process may still take: of the GPU, of the machine, or of its
    container where that is less."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(
            int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")
        )
    except (OSError, StopIteration):
        return 0  # unknown: latents go to files
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return max(0, min(free, limit - used))
