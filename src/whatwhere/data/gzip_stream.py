"""The content of a file in chunks, decompressed if it is gzip: a reader may stop after any chunk."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from whatwhere.errors import ImageError
from whatwhere.files import open_regular

CHUNK_BYTES = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"


def is_gzip(path: Path) -> bool:
    with open_regular(path) as file:
        return file.read(2) == GZIP_MAGIC


def read_chunks(path: Path) -> Iterator[bytes]:
    """The content in chunks of at most CHUNK_BYTES, decompressed if the file is gzip, whatever its name."""
    return gzip_chunks(path) if is_gzip(path) else raw_chunks(path)


def raw_chunks(path: Path) -> Iterator[bytes]:
    with open_regular(path) as file:
        while data := file.read(CHUNK_BYTES):
            yield data


def gzip_chunks(path: Path) -> Iterator[bytes]:
    stream = zlib.decompressobj(wbits=31)
    with open_regular(path) as file:
        while not stream.eof:
            compressed = stream.unconsumed_tail or file.read(CHUNK_BYTES)
            if not compressed:
                raise ImageError(f"{path}: the gzip stream is truncated; copy or download the file again")
            try:
                data = stream.decompress(compressed, CHUNK_BYTES)
            except zlib.error as error:
                raise ImageError(
                    f"{path}: the gzip stream is damaged ({error}); copy or download the file again"
                ) from None
            if data:
                yield data
        if stream.unused_data or file.read(1):
            raise ImageError(f"{path}: bytes follow the end of the gzip stream; decompress the file with gunzip first")
