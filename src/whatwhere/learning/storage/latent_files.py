"""Latents of every image in `.npy` files, in two generations, so that a half-written one is never the only one.

    layer2-0/p.npy        features of all images, [N, B, H, W]
    layer2-0/mu1.npy      pooling variables of layer 1, [N, A, B, H, W]; gamma1, mu2, gamma2 likewise
    layer2-1/…            the other generation

A batch is read from where it was written last. It is written to the generation that the last checkpoint does not
hold, so what the checkpoint holds stays untouched until `retain` says that there is a new one.

The files are read and written by plain calls rather than through a mapping: mapped pages would count as this
process's memory, which is to stay bounded. Anyone may map them: `numpy.load(path, mmap_mode="r")`.
"""

from __future__ import annotations

import io
import math
import os
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import RunError
from whatwhere.files import sync_folder
from whatwhere.latents import Latents, PoolingParams


@dataclass(frozen=True)
class Place:
    """Where the latents of one batch lie: the layer that was trained, the generation, and their checksum."""

    layer: int
    generation: int
    checksum: int

    @property
    def folder(self) -> str:
        return f"layer{self.layer}-{self.generation}"


class LatentFiles:
    """The latents of batches of images, in files of `dtype` under one folder."""

    def __init__(self, folder: Path, batches: Sequence[slice], dtype: torch.dtype) -> None:
        self.folder, self.batches, self.dtype = folder, batches, dtype
        self.images = batches[-1].stop
        self.places: list[Place | None] = [None] * len(batches)  # of what was written last
        self.retained: list[Place | None] = [None] * len(batches)  # of what the last checkpoint holds

    def write(self, batch: int, latents: Latents) -> None:
        """Write one batch, and wait until it is on the disk."""
        layer, retained = len(latents.pooling_params), self.retained[batch]
        generation = 1 - retained.generation if retained is not None and retained.layer == layer else 0
        folder = self.folder / Place(layer, generation, 0).folder
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            for parent in (self.folder, self.folder.parent):  # the name of each new folder
                sync_folder(parent)
        checksum = 0
        for name, tensor in zip(names(layer), latents.tensors(), strict=True):
            values = as_array(tensor.cpu())
            checksum = zlib.crc32(values.data, checksum)
            self._write_rows(folder / f"{name}.npy", self.batches[batch].start, values)
        self.places[batch] = Place(layer, generation, checksum)

    def read(self, batch: int) -> Latents:
        """The latents of one batch as they were written last; empty before that."""
        place = self.places[batch]
        if place is None:
            return Latents()
        folder = self.folder / place.folder
        tensors = [self._read_rows(folder / f"{name}.npy", self.batches[batch]) for name in names(place.layer)]
        return Latents(tensors[0], tuple(map(PoolingParams, tensors[1::2], tensors[2::2])))

    def verify(self, batch: int, latents: Latents) -> None:
        """Raise if latents are not those that were written."""
        place, checksum = self.places[batch], 0
        for tensor in latents.tensors():
            checksum = zlib.crc32(as_array(tensor).data, checksum)
        if place is not None and checksum != place.checksum:
            raise RunError(f"{self.folder / place.folder}: the latents of batch {batch + 1} are damaged")

    def retain(self, table: Tensor) -> None:
        """These places ([batches, 3], 0 for none) are in the checkpoint now: spare them, remove the layers below."""
        self.retained = [Place(*row) if row[0] else None for row in table.tolist()]
        self.places = list(self.retained)
        layers = {place.layer for place in self.retained if place is not None}
        for folder in self.folder.glob("layer*-[01]"):
            if int(folder.name[5:-2]) < min(layers, default=0):
                shutil.rmtree(folder, ignore_errors=True)

    def table(self) -> Tensor:
        """Where every batch was written last, as numbers: [batches, 3], 0 for those that were not."""
        return torch.tensor([(0, 0, 0) if place is None else astuple(place) for place in self.places])

    def _write_rows(self, path: Path, start: int, values: np.ndarray) -> None:
        shape = (self.images, *values.shape[1:])
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": values.dtype.str, "fortran_order": False, "shape": shape}
        )
        offset = len(header.getvalue())
        size = offset + math.prod(shape) * values.itemsize
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        with open(os.open(path, flags, 0o666), "r+b", buffering=0) as file:
            if file.seek(0, os.SEEK_END) != size:
                reserve(file, size)
                write_at(file, 0, header.getvalue())
                sync_folder(path.parent)
            write_at(file, offset + start * values[:1].nbytes, values.data.cast("B"))
            os.fsync(file.fileno())

    def _read_rows(self, path: Path, rows: slice) -> Tensor:
        try:
            with open(path, "rb", buffering=0) as file:
                np.lib.format.read_magic(file)
                shape, _, dtype = np.lib.format.read_array_header_1_0(file)
                values = np.empty((rows.stop - rows.start, *shape[1:]), dtype)
                file.seek(rows.start * values[:1].nbytes, os.SEEK_CUR)
                wanted = values.data.cast("B")
                read = 0
                while read < len(wanted) and (count := file.readinto(wanted[read:])):
                    read += count
        except (OSError, ValueError) as error:
            raise RunError(f"{path} cannot be read: {error}") from error
        if read < len(wanted) or shape[0] != self.images:
            raise RunError(f"{path} was cut short: it does not hold the latents of images {rows.start} to {rows.stop}")
        return as_tensor(values, self.dtype)


def names(layer: int) -> list[str]:
    """The files of a layer's latents, in the order of `Latents.tensors`."""
    return ["p", *(f"{name}{k}" for k in range(1, layer + 1) for name in ("mu", "gamma"))]


def as_array(tensor: Tensor) -> np.ndarray:
    """The tensor's own bits as an array; NumPy has no bfloat16, so that is stored as integers of 16 bits."""
    tensor = tensor.contiguous()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def as_tensor(values: np.ndarray, dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.view(dtype) if dtype == torch.bfloat16 else tensor


def reserve(file: io.FileIO, size: int) -> None:
    """Make the file this long at once, so that a disk that is too small is noticed before the work is done."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    file.truncate(size)


def write_at(file: io.FileIO, offset: int, content: bytes | memoryview) -> None:
    """Write all of the content at this offset; a single call may write less than it was given."""
    file.seek(offset)
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]
