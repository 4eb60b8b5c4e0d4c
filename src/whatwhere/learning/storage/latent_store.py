"""Latents of every image, stored from epoch to epoch, batch by batch: on the device, in RAM or in files.

The three tiers differ in where a batch waits for its next turn, and in nothing else: results are the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Literal

import torch
from torch import Tensor

from whatwhere.errors import SpecError
from whatwhere.latents import Latents
from whatwhere.learning.storage.latent_files import LatentFiles

Tier = Literal["device", "ram", "file"]
DTYPES = {"float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


class LatentStore:
    """The latents of every batch, read and written as `dtype` on `device`, stored as `stored_dtype` in a tier.

    files   where checkpoints (and the tier 'file') put them; None keeps latents in memory only
    Batches are put into files by a thread of their own, while the next ones are inferred.
    """

    def __init__(
        self,
        tier: Tier,
        batches: int,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        stored_dtype: torch.dtype = torch.float32,
        files: LatentFiles | None = None,
    ) -> None:
        if tier == "file" and files is None:
            raise SpecError("the tier 'file' was given without files; expected LatentFiles")
        self.tier, self.device, self.dtype, self.stored_dtype, self.files = tier, device, dtype, stored_dtype, files
        self._home = {"device": device, "ram": torch.device("cpu"), "file": None}[tier]
        self._memory = [Latents() for _ in range(batches)]
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="latents")
        self._writing: dict[int, Future[None]] = {}
        self._unsaved: set[int] = set()

    def read(self, batch: int) -> Latents:
        """The latents of a batch on the device; empty before its first inference."""
        if self._home is not None:
            latents = self._memory[batch]
        else:
            assert self.files is not None
            self._wait([batch])
            latents = self.files.read(batch)
        return latents.to(self.device, self.dtype)

    def write(self, batch: int, latents: Latents, *, save: bool = False) -> None:
        """Store the latents of a batch. With `save` they are put into files at once, not when a checkpoint asks."""
        latents = latents.to(dtype=self.stored_dtype)
        if self._home is not None:
            latents = self._memory[batch] = latents.to(self._home)
            self._unsaved.add(batch)
        if self._home is None or (save and self.files is not None):
            self._save(batch, latents)

    def flush(self) -> Tensor:
        """Wait until all that was written is on the disk: the table of places for a checkpoint, [batches, 3]."""
        assert self.files is not None
        for batch in sorted(self._unsaved):
            self._save(batch, self._memory[batch])
        self._wait(list(self._writing))
        return self.files.table()

    def retain(self, table: Tensor) -> None:
        """The checkpoint holds this table of places now."""
        assert self.files is not None
        self.files.retain(table)

    def restore(self, table: Tensor, batches: Sequence[int]) -> None:
        """Load the latents of a checkpoint, those of these batches; damaged ones raise an error."""
        self.retain(table)
        assert self.files is not None
        for batch in batches:
            latents = self.files.read(batch)
            self.files.verify(batch, latents)
            if self._home is not None:
                self._memory[batch] = latents.to(self._home)

    def close(self) -> None:
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _save(self, batch: int, latents: Latents) -> None:
        assert self.files is not None
        if self._home is None:  # what is not yet written is in memory: one batch of that is enough
            self._wait(list(self._writing))
        self._writing[batch] = self._writer.submit(self.files.write, batch, latents)
        self._unsaved.discard(batch)

    def _wait(self, batches: Sequence[int]) -> None:
        for batch in batches:
            if batch in self._writing:
                self._writing.pop(batch).result()


def latent_dtype(name: str | torch.dtype | None, dtype: torch.dtype) -> torch.dtype:
    """The type that latents are stored in; by default the model's own."""
    if name is None:
        return dtype
    named = DTYPES.get(str(name).removeprefix("torch."))
    if named is None:
        raise SpecError(f"latent_dtype = {name!r} was given; expected one of {', '.join(map(repr, DTYPES))}")
    return named
