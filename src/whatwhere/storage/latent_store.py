"""Latents of every image, kept from epoch to epoch, batch by batch."""

from __future__ import annotations

from whatwhere.latents import Latents


class LatentStore:
    """Keeps the latents of every batch in memory."""

    def __init__(self, batches: int) -> None:
        self._batches = [Latents() for _ in range(batches)]

    def read(self, batch: int) -> Latents:
        return self._batches[batch]

    def write(self, batch: int, latents: Latents) -> None:
        self._batches[batch] = latents
