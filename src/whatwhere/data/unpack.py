"""The content of a file, compressed with gzip or not, a little at a time: what arrives is never more than asked for."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from whatwhere.errors import ImageError

CHUNK = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
GZIP_RATIO = 1032
"""Deflate cannot shrink anything further than this, so a file of n bytes holds at most 1032 n."""

IN_MEMORY_LIMIT = 1 << 30
"""The most a compressed file may unpack to in memory; a larger one is unpacked by hand and then memory-mapped."""


def is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the unpacked content in pieces of at most CHUNK bytes; the reader may stop at any of them."""
    if is_gzip(path):
        yield from _gunzip(path)
        return
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            yield data


def _gunzip(path: Path) -> Iterator[bytes]:
    stream = zlib.decompressobj(wbits=31)
    with path.open("rb") as file:
        while not stream.eof:
            packed = stream.unconsumed_tail or file.read(CHUNK)
            if not packed:
                raise ImageError(f"{path}: the gzip stream is cut short; copy or download the file again")
            try:
                data = stream.decompress(packed, CHUNK)
            except zlib.error as error:
                raise ImageError(
                    f"{path}: the gzip stream is damaged ({error}); copy or download the file again"
                ) from None
            if data:
                yield data
        if stream.unused_data or file.read(1):
            raise ImageError(
                f"{path}: bytes follow the end of the gzip stream; one stream is expected, so unpack it with gunzip"
            )


def check_unpacked_size(path: Path, packed: int, unpacked: int) -> None:
    """Refuse, before anything is allocated, a header that `packed` compressed bytes cannot fill or memory should not."""
    if unpacked > GZIP_RATIO * packed:
        raise ImageError(
            f"{path}: the header asks for {unpacked:,} bytes, more than {packed:,} compressed bytes can hold"
        )
    if unpacked > IN_MEMORY_LIMIT:
        raise ImageError(
            f"{path}: unpacks to {unpacked:,} bytes, and at most {IN_MEMORY_LIMIT:,} are unpacked in memory; "
            "save it uncompressed, and it is memory-mapped instead"
        )
