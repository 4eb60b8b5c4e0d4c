"""Latents of every image, stored from epoch to epoch, batch by batch: in memory or in files.

The two differ in where a batch waits for its next turn, and in nothing else: results are the same bits. Files are also
what a checkpoint holds. Each batch has a file in each of two generations:

    latents/batch3-0.npz   features p [n, B, H, W] of the images of batch 3, pooling variables mu1, gamma1, mu2, …
    latents/batch3-1.npz   the other generation

A batch is read from where it was written last. It is written to the generation that the last checkpoint does not
hold, so what the checkpoint holds stays untouched until `retain` says that there is a new one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data.array_file import Archive
from whatwhere.errors import ImageError, RunError
from whatwhere.files import open_atomic
from whatwhere.latents import Latents, PoolingParams


class LatentFiles:
    """The latents of batches of images, in files under one folder.

    table     where each batch was written last: [batches, 2], the generation (from 1; 0: nowhere) and a checksum
    retained  the same of the last checkpoint
    """

    def __init__(self, folder: Path, batches: int) -> None:
        self.folder = folder
        self.table = torch.zeros(batches, 2, dtype=torch.int64)
        self.retained = self.table.clone()

    def write(self, batch: int, latents: Latents) -> None:
        """Write one batch, and wait until it is on the disk."""
        generation = 2 if self.retained[batch, 0] == 1 else 1
        arrays = [tensor.cpu().numpy() for tensor in latents.tensors()]
        named: Any = dict(zip(names(len(latents.pooling_params)), arrays, strict=True))
        self.folder.mkdir(parents=True, exist_ok=True)
        with open_atomic(self._path(batch, generation)) as file:
            np.savez(file, **named)
        self.table[batch] = torch.tensor((generation, _checksum(arrays)))

    def read(self, batch: int) -> Latents:
        """The latents of one batch as they were written last; empty before that."""
        generation = int(self.table[batch, 0])
        if not generation:
            return Latents()
        path = self._path(batch, generation)
        try:
            archive = Archive(path)
            arrays = [archive[name][:] for name in names((len(archive) - 1) // 2)]
        except (OSError, ImageError, KeyError) as error:
            raise RunError(f"the latents of batch {batch + 1} cannot be read: {error} ({path})") from error
        if _checksum(arrays) != self.table[batch, 1]:
            raise RunError(f"{path}: the latents of batch {batch + 1} are damaged")
        tensors = [torch.from_numpy(values) for values in arrays]
        return Latents(tensors[0], tuple(map(PoolingParams, tensors[1::2], tensors[2::2])))

    def retain(self, table: Tensor) -> None:
        """This table is in the checkpoint now: its files are not written to until there is another one."""
        self.table, self.retained = table.clone(), table.clone()

    def _path(self, batch: int, generation: int) -> Path:
        return self.folder / f"batch{batch + 1}-{generation - 1}.npz"


def names(depth: int) -> list[str]:
    """The arrays of latents of this many layers, in the order of `Latents.tensors`."""
    return ["p", *(f"{name}{k}" for k in range(1, depth + 1) for name in ("mu", "gamma"))]


def _checksum(arrays: Iterable[np.ndarray]) -> int:
    checksum = 0
    for values in arrays:
        checksum = zlib.crc32(np.ascontiguousarray(values).data, checksum)
    return checksum


class LatentStore:
    """The latents of every batch on a device.

    files      where checkpoints put them; None keeps latents in memory only
    in_memory  False reads every batch from its file
    Batches are put into files by a thread of their own, while the next ones are inferred.
    """

    def __init__(self, batches: int, device: torch.device, files: LatentFiles | None, *, in_memory: bool) -> None:
        self.device, self.files, self.in_memory = device, files, in_memory
        self._memory = [Latents() for _ in range(batches)]
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="latents")
        self._writing: dict[int, Future[None]] = {}
        # of those; freed by the thread that made them, since memory that another thread frees is not used again
        self._waiting: dict[int, Latents] = {}
        self._unsaved: set[int] = set()

    def read(self, batch: int) -> Latents:
        """The latents of a batch on the device; empty before its first inference."""
        if self.in_memory:
            return self._memory[batch]
        assert self.files is not None
        self._wait([batch])
        return self.files.read(batch).to(self.device)

    def write(self, batch: int, latents: Latents, *, save: bool = False) -> None:
        """Store the latents of a batch. With `save` they are put into files at once, not when a checkpoint asks."""
        if self.in_memory:
            self._memory[batch] = latents
            self._unsaved.add(batch)
        if not self.in_memory or (save and self.files is not None):
            self._save(batch, latents)

    def flush(self) -> Tensor:
        """Wait until all that was written is on the disk; returns the table for a checkpoint."""
        assert self.files is not None
        for batch in sorted(self._unsaved):
            self._save(batch, self._memory[batch])
        self._wait(list(self._writing))
        return self.files.table.clone()

    def retain(self, table: Tensor) -> None:
        """The checkpoint holds this table now."""
        assert self.files is not None
        self.files.retain(table)

    def restore(self, table: Tensor) -> None:
        """Load the latents of a checkpoint; damaged ones raise an error."""
        self.retain(table)
        assert self.files is not None
        for batch in range(len(self._memory)):
            latents = self.files.read(batch)
            if self.in_memory:
                self._memory[batch] = latents.to(self.device)

    def close(self) -> None:
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _save(self, batch: int, latents: Latents) -> None:
        assert self.files is not None
        if not self.in_memory:  # what is not yet written is in memory: one batch of that is enough
            self._wait(list(self._writing))
        self._wait([batch])
        self._waiting[batch] = latents
        self._writing[batch] = self._writer.submit(self._write_file, batch)
        self._unsaved.discard(batch)

    def _write_file(self, batch: int) -> None:
        assert self.files is not None
        self.files.write(batch, self._waiting[batch])

    def _wait(self, batches: Sequence[int]) -> None:
        for batch in batches:
            if batch in self._writing:
                self._writing.pop(batch).result()
                del self._waiting[batch]
