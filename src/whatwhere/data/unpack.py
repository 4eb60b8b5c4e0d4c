"""The content of a file a little at a time, unpacked where it is gzip: whoever reads may stop at any piece."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from whatwhere.errors import ImageError

PIECE = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"


def is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


def unpacked(path: Path) -> Iterator[bytes]:
    """The content in pieces of at most PIECE bytes, unpacked where the file is gzip, whatever its name."""
    return gunzipped(path) if is_gzip(path) else as_it_is(path)


def as_it_is(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(PIECE):
            yield data


def gunzipped(path: Path) -> Iterator[bytes]:
    stream = zlib.decompressobj(wbits=31)
    with path.open("rb") as file:
        while not stream.eof:
            packed = stream.unconsumed_tail or file.read(PIECE)
            if not packed:
                raise ImageError(f"{path}: the gzip stream is cut short; copy or download the file again")
            try:
                data = stream.decompress(packed, PIECE)
            except zlib.error as error:
                raise ImageError(
                    f"{path}: the gzip stream is damaged ({error}); copy or download the file again"
                ) from None
            if data:
                yield data
        if stream.unused_data or file.read(1):
            raise ImageError(f"{path}: bytes follow the end of the gzip stream; unpack the file with gunzip first")
