"""IDX: what is written is read, and whatever is not a complete IDX file is rejected, quickly and in little memory."""

import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from idx_writer import write_idx
from whatwhere.data.array_file import read_array
from whatwhere.errors import ImageError

VALUES = hnp.arrays(
    st.sampled_from([np.uint8, np.int8, np.int16, np.int32, np.float32, np.float64]),
    hnp.array_shapes(min_dims=1, max_dims=4, max_side=5),
)


def header(*shape: int, code: int = 0x08) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("idx") / "file.idx"


@settings(deadline=None)
@given(values=VALUES)
def test_an_array_written_is_read_again(path: Path, values: np.ndarray) -> None:
    write_idx(path, values)
    read = read_array(path)
    assert read.dtype == values.dtype.newbyteorder(">")
    np.testing.assert_array_equal(read[:], values)


@settings(deadline=None)
@given(values=VALUES)
def test_a_compressed_file_is_read_like_a_plain_one(path: Path, values: np.ndarray, save_gzip) -> None:
    write_idx(path, values)
    np.testing.assert_array_equal(read_array(save_gzip(path, path.read_bytes())), values)


@settings(deadline=None)
@given(values=VALUES, data=st.data())
def test_a_file_truncated_raises(path: Path, values: np.ndarray, data: st.DataObject, save_gzip) -> None:
    write_idx(path, values)
    complete = path.read_bytes()
    cut = complete[: data.draw(st.integers(0, len(complete) - 1))]
    path.write_bytes(cut)
    with pytest.raises(ImageError):
        read_array(path)
    with pytest.raises(ImageError):
        read_array(save_gzip(path, cut))


@settings(deadline=None)
@given(values=VALUES, data=st.data())
def test_a_gzip_stream_truncated_raises(path: Path, values: np.ndarray, data: st.DataObject, save_gzip) -> None:
    write_idx(path, values)
    compressed = save_gzip(path, path.read_bytes()).read_bytes()
    path.write_bytes(compressed[: data.draw(st.integers(0, len(compressed) - 1))])
    with pytest.raises(ImageError):
        read_array(path)


@settings(deadline=None)
@given(values=VALUES, more=st.binary(min_size=1, max_size=9))
def test_bytes_after_the_end_raise(path: Path, values: np.ndarray, more: bytes, save_gzip) -> None:
    write_idx(path, values)
    complete = path.read_bytes()
    path.write_bytes(complete + more)
    with pytest.raises(ImageError, match="longer than its header"):
        read_array(path)
    with pytest.raises(ImageError, match="longer than its header"):
        read_array(save_gzip(path, complete + more))
    path.write_bytes(save_gzip(path, complete).read_bytes() + b"!" + more)
    with pytest.raises(ImageError, match="damaged"):
        read_array(path)


@settings(deadline=None)
@given(content=st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: b"\0\0\x08\x01" + tail))
def test_any_bytes_are_an_array_of_their_length_or_raise(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        values = read_array(path)[:]
    except ImageError:
        return
    assert content[:2] == b"\0\0"
    assert 4 + 4 * values.ndim + values.nbytes == len(content)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "starts with nothing"),
        (b"\0\0", "or IDX file"),
        (b"\0\1\x08\3" + bytes(16), "or IDX file"),
        (b"\0\0\x0a\3" + bytes(16), "or IDX file"),
        (b"\0\0\x08\0", "or IDX file"),
        (b"\0\0\x08\5" + bytes(20), "or IDX file"),
        (b"\x89PNG\r\n\x1a\n", "or IDX file"),
        (b"\0\0\x08\3" + bytes(11), "inside its header"),
        (header(0, 28, 28), "no values"),
        (header(2, 28, 0), "no values"),
    ],
)
def test_a_bad_header_raises(path: Path, content: bytes, reason: str, save_gzip) -> None:
    path.write_bytes(content)
    with pytest.raises(ImageError, match=reason) as caught:
        read_array(path)
    assert str(path) in str(caught.value)
    with pytest.raises(ImageError, match=reason):
        read_array(save_gzip(path, content))


def test_a_header_that_asks_for_terabytes_raises_before_anything_is_allocated(
    path: Path, save_gzip, little_memory
) -> None:
    content = header(2**32 - 1, 1000, code=0x0E) + bytes(100)
    path.write_bytes(content)
    began = time.process_time()
    with little_memory(1 << 20), pytest.raises(ImageError, match="truncated"):
        read_array(path)
    with little_memory(1 << 20), pytest.raises(ImageError, match="compressed bytes can hold"):
        read_array(save_gzip(path, content))
    assert time.process_time() - began < 1


def test_a_gzip_bomb_raises_as_soon_as_too_much_arrives(path: Path, little_memory) -> None:
    stream = zlib.compressobj(wbits=31)
    start, a_megabyte = (
        stream.compress(content) + stream.flush(zlib.Z_FULL_FLUSH) for content in (header(1, 28, 28), bytes(1 << 20))
    )
    path.write_bytes(start + 8192 * a_megabyte)  # 8 GB
    began = time.process_time()
    with little_memory(4 << 20), pytest.raises(ImageError, match="longer than its header"):
        read_array(path)
    assert time.process_time() - began < 2


def test_a_file_that_decompresses_to_more_than_the_limit_raises(path: Path, save_gzip, little_memory) -> None:
    noise = np.random.default_rng(0).bytes(2 << 20)  # compressed, enough to hold 2 GB were it zeros
    save_gzip(path, header(2 << 20, 32, 32) + noise)
    with little_memory(4 << 20), pytest.raises(ImageError, match="read batch by batch"):
        read_array(path)


def test_a_damaged_gzip_stream_raises(path: Path, save_gzip) -> None:
    compressed = bytearray(save_gzip(path, header(100) + bytes(range(100))).read_bytes())
    compressed[-6] ^= 1  # in the checksum
    path.write_bytes(compressed)
    with pytest.raises(ImageError, match="damaged"):
        read_array(path)


def test_a_plain_file_is_read_by_rows(path: Path, little_memory) -> None:
    write_idx(path, np.zeros((4000, 28, 28), np.uint8))
    with little_memory(1 << 20):
        values = read_array(path)
        assert values.shape == (4000, 28, 28)
        assert values[10:12].shape == (2, 28, 28)
