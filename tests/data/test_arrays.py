"""Arrays: the supported shapes, types and labels, and the files they come from."""

import io
import os
import struct
import time
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data_files import write_idx
from raising import Containing, raises, warns
from tiny_training import process
from whatwhere.data import load
from whatwhere.data.arrays import (
    NPY_MAGIC,
    AmbiguousChannels,
    UnclearAxes,
    open_npz,
    read_array,
    write_npz,
)
from whatwhere.data.images import CountsDiffer
from whatwhere.data.limits import limited
from whatwhere.errors import ImageError, InvalidImages, NotFinite, Unreadable, UnusableImageFile


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 6, 4), (1, 6, 4)),
        ((5, 1, 6, 5), (1, 6, 5)),
        ((5, 3, 6, 5), (3, 6, 5)),
        ((5, 6, 5, 1), (1, 6, 5)),
        ((5, 6, 5, 3), (3, 6, 5)),
        ((5, 32, 32, 3), (3, 32, 32)),
        ((5, 5, 20, 20), (5, 20, 20)),
        ((5, 2, 6, 9), (2, 6, 9)),
        ((5, 6, 9, 4), (4, 6, 9)),
        ((5, 20, 20, 7), (7, 20, 20)),
    ],
)
def test_shapes_grey_and_colour(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    raw = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    images = load(raw)
    assert images.shape == expected
    channels_first = raw[:, None] if raw.ndim == 3 else raw
    if images[:].shape != channels_first.shape:
        channels_first = np.moveaxis(raw, -1, 1)
    np.testing.assert_array_equal(images[:].numpy(), channels_first / np.float32(255))


@pytest.mark.parametrize(
    "shape", [(4,), (4, 400), (5, 64, 8, 8), (5, 9, 9, 9), (1, 1, 1, 1, 1), (0, 28, 28), (3, 0, 28)]
)
def test_other_shapes_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnclearAxes):
        load(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "dtype", [np.int64, np.int32, np.uint32, complex, object, "U3", "datetime64[s]", "u1,u1"]
)
def test_other_types_raise(dtype: str) -> None:
    with raises(InvalidImages, given=Containing("values of type")):
        load(np.zeros((2, 4, 4), dtype))


def test_tensors_of_any_kind(grey: np.ndarray) -> None:
    expected = load(grey)[:]
    assert torch.equal(load(torch.from_numpy(grey))[:], expected)
    assert torch.equal(load(expected.clone().requires_grad_())[:], expected)
    assert torch.equal(load(expected.bfloat16())[:], expected.bfloat16().float())


def test_the_same_images_in_every_kind_of_file(tmp_path: Path, grey: np.ndarray, save_gzip) -> None:
    write_idx(tmp_path / "idx", grey)
    save_gzip(tmp_path / "idx.gz", (tmp_path / "idx").read_bytes())
    np.save(tmp_path / "a.npy", grey)
    np.savez(tmp_path / "a.npz", grey)
    np.savez(tmp_path / "b.npz", images=grey, labels=np.arange(5), other=np.arange(3))
    np.savez_compressed(tmp_path / "c.npz", images=grey, labels=np.arange(5))
    expected = load(grey)
    for name in ("idx", "idx.gz", "a.npy", "a.npz", "b.npz", "c.npz"):
        images = load(tmp_path / name)
        assert torch.equal(images[:], expected[:])
        assert images.fingerprint == expected.fingerprint
        assert images.name == str(tmp_path / name)
        assert (images.labels is not None) == (name in ("b.npz", "c.npz"))


def test_an_npz_of_other_arrays_raises(tmp_path: Path, grey: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", x=grey, y=np.arange(5))
    with raises(InvalidImages, given=Containing("x, y")):
        load(tmp_path / "a.npz")


def test_labels_from_arrays_and_files(tmp_path: Path, grey: np.ndarray) -> None:
    values = np.array([4, 0, 2, 2, 1], np.uint8)
    write_idx(tmp_path / "labels", values)
    np.save(tmp_path / "labels.npy", values)
    for labels in (
        values,
        values.tolist(),
        torch.from_numpy(values),
        tmp_path / "labels",
        str(tmp_path / "labels.npy"),
    ):
        loaded = load(grey, labels=labels).labels
        assert loaded is not None
        assert loaded.dtype == np.int64
        assert loaded.tolist() == [4, 0, 2, 2, 1]


@pytest.mark.parametrize(
    ("labels", "error", "fields"),
    [
        (np.arange(4), CountsDiffer, {"images": 5, "labels": 4}),
        (np.zeros(5), InvalidImages, {"expected": "one integer per image"}),
        (np.zeros((5, 10), int), InvalidImages, {"expected": "one integer per image"}),
        (["a"] * 5, InvalidImages, {"expected": "one integer per image"}),
        ("nowhere.idx", Unreadable, {"path": "nowhere.idx"}),
    ],
)
def test_labels_that_do_not_fit_raise(
    grey: np.ndarray, labels: object, error: type[ImageError], fields: dict[str, object]
) -> None:
    with raises(error, **fields):
        load(grey, labels=labels)


def test_a_file_of_labels_is_not_taken_for_images(tmp_path: Path) -> None:
    write_idx(tmp_path / "labels", np.arange(9, dtype=np.uint8))
    with pytest.raises(UnclearAxes):
        load(tmp_path / "labels")


def test_nan_in_a_file_raises_when_it_is_loaded(tmp_path: Path) -> None:
    raw = np.zeros((300, 8, 8), np.float32)
    raw[299, 7, 7] = np.nan
    np.save(tmp_path / "a.npy", raw)
    with pytest.raises(NotFinite):
        load(tmp_path / "a.npy")


def test_a_large_file_is_read_batch_by_batch(tmp_path: Path, little_memory) -> None:
    with limited(in_memory=1 << 20):
        np.save(tmp_path / "a.npy", np.zeros((20_000, 28, 28), np.uint8))  # 16 MB
        with little_memory(1 << 20):
            images = load(tmp_path / "a.npy")
            assert images[5000:5100].shape == (100, 1, 28, 28)
            assert images[[0, 19_999]].shape == (2, 1, 28, 28)


def test_an_ambiguous_shape_warns_which_axis_holds_the_channels() -> None:
    with warns(AmbiguousChannels, shape=(5, 3, 7, 3)):
        assert load(np.zeros((5, 3, 7, 3), np.uint8)).shape == (3, 7, 3)


def test_labels_that_do_not_fit_into_int64_raise(grey: np.ndarray) -> None:
    labels = np.array([0, 1, 2, 3, 2**64 - 1], np.uint64)
    with raises(InvalidImages, given=Containing("the label 18446744073709551615")):
        load(grey, labels=labels)
    assert load(grey, labels=labels % np.uint64(5)).labels is not None


def test_the_axis_of_the_channels_can_be_stated() -> None:
    raw = np.random.default_rng(0).integers(0, 256, (2, 5, 7, 5), np.uint8)
    for channels, expected in (("first", raw), ("last", raw.transpose(0, 3, 1, 2))):
        np.testing.assert_array_equal(
            load(raw, channels=channels)[:].numpy(), expected / np.float32(255)
        )
    with raises(UnclearAxes, shape=raw.shape):
        load(raw)


@pytest.mark.parametrize("dtype", ["u1", "<f4"])
@pytest.mark.parametrize("fortran", [True, False])
def test_a_large_array_takes_little_memory(
    tmp_path: Path, dtype: str, fortran: bool, little_memory
) -> None:
    """A sparse file of 256 MB: opening one of bytes reads nothing, floats are checked batch by
    batch."""
    with limited(batch=1 << 22):
        itemsize = np.dtype(dtype).itemsize
        shape = ((1 << 28) // itemsize // 1024 + 1, 32, 32)
        with open(tmp_path / "a.npy", "wb") as file:
            np.lib.format.write_array_header_1_0(
                file, {"descr": dtype, "fortran_order": fortran, "shape": shape}
            )
            file.truncate(file.tell() + itemsize * int(np.prod(shape)))
        with little_memory(64 << 20):
            assert load(tmp_path / "a.npy")[5:8].sum() == 0


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "labels": np.arange(2)}
    write_npz(tmp_path / "new" / "a.npz", arrays)
    with np.load(tmp_path / "new" / "a.npz", allow_pickle=False) as written:
        for name, values in arrays.items():
            np.testing.assert_array_equal(written[name], values)
    assert os.listdir(tmp_path / "new") == ["a.npz"]


# IDX: what is written is read, and whatever is not a complete IDX file is rejected, quickly and in
# little memory


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
def test_a_compressed_file_is_read_like_a_plain_one(
    path: Path, values: np.ndarray, save_gzip
) -> None:
    write_idx(path, values)
    np.testing.assert_array_equal(read_array(save_gzip(path, path.read_bytes())), values)


@settings(deadline=None)
@given(values=VALUES, data=st.data())
def test_a_file_truncated_raises(
    path: Path, values: np.ndarray, data: st.DataObject, save_gzip
) -> None:
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
def test_a_gzip_stream_truncated_raises(
    path: Path, values: np.ndarray, data: st.DataObject, save_gzip
) -> None:
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
    with raises(UnusableImageFile, reason=Containing("its header gives the shape")):
        read_array(path)
    with raises(UnusableImageFile, reason=Containing("its header gives the shape")):
        read_array(save_gzip(path, complete + more))
    path.write_bytes(save_gzip(path, complete).read_bytes() + b"!" + more)
    with raises(UnusableImageFile, path=path, kind="array file"):
        read_array(path)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 80000), "looks like a recording of 2 channels"),
        ((5000, 2), "looks like a recording of 2 channels"),
        ((700,), "looks like a recording of 1 channel:"),
    ],
)
def test_an_array_of_too_few_axes_is_taken_for_what_it_looks_like(
    shape: tuple[int, ...], words: str
) -> None:
    with raises(UnclearAxes, shape=shape) as caught:
        load(np.zeros(shape, np.float32))
    assert words in str(caught.value)


def test_a_file_of_text_is_named_as_text(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("Dear diary,\nit was good – today.\n" * 30)
    with raises(InvalidImages, given=f"{tmp_path / 'notes.md'}, a text"):
        load(tmp_path / "notes.md")


@settings(deadline=None)
@given(
    content=st.binary(max_size=60) | st.binary(max_size=40).map(lambda tail: b"\0\0\x08\x01" + tail)
)
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
        (b"", "first bytes: none"),
        (b"\0\0", "or IDX file"),
        (b"\0\1\x08\3" + bytes(16), "or IDX file"),
        (b"\0\0\x0a\3" + bytes(16), "or IDX file"),
        (b"\0\0\x08\0", "or IDX file"),
        (b"\0\0\x08\5" + bytes(20), "or IDX file"),
        (b"\x89PNG\r\n\x1a\n", "or IDX file"),
        (b"\0\0\x08\3" + bytes(11), ""),
        (header(0, 28, 28), "the shape (0, 28, 28) (0 bytes"),
        (header(2, 28, 0), "0 bytes"),
    ],
)
def test_a_bad_header_raises(path: Path, content: bytes, reason: str, save_gzip) -> None:
    path.write_bytes(content)
    with raises(UnusableImageFile, path=path, reason=Containing(reason)):
        read_array(path)
    with raises(UnusableImageFile, reason=Containing(reason)):
        read_array(save_gzip(path, content))


def test_a_header_that_asks_for_terabytes_raises_before_anything_is_allocated(
    path: Path, save_gzip, little_memory
) -> None:
    content = header(2**32 - 1, 1000, code=0x0E) + bytes(100)
    path.write_bytes(content)
    began = time.process_time()
    with (
        little_memory(1 << 20),
        raises(UnusableImageFile, reason=Containing("its header gives the shape")),
    ):
        read_array(path)
    with (
        little_memory(1 << 20),
        raises(UnusableImageFile, reason=Containing("34,359,738,360,000")),
    ):
        read_array(save_gzip(path, content))
    assert time.process_time() - began < 1


def test_a_gzip_bomb_raises_as_soon_as_too_much_arrives(path: Path, little_memory) -> None:
    stream = zlib.compressobj(wbits=31)
    start, a_megabyte = (
        stream.compress(content) + stream.flush(zlib.Z_FULL_FLUSH)
        for content in (header(1, 28, 28), bytes(1 << 20))
    )
    path.write_bytes(start + 8192 * a_megabyte)  # 8 GB
    began = time.process_time()
    with (
        little_memory(4 << 20),
        raises(UnusableImageFile, reason=Containing("its header gives the shape")),
    ):
        read_array(path)
    assert time.process_time() - began < 2


def test_a_damaged_gzip_stream_raises(path: Path, save_gzip) -> None:
    compressed = bytearray(save_gzip(path, header(100) + bytes(range(100))).read_bytes())
    compressed[-6] ^= 1  # in the checksum
    path.write_bytes(compressed)
    with raises(UnusableImageFile, reason=Containing("CRC check failed")):
        read_array(path)


# .npy and .npz: never unpickled, rejected if the header lies --------------------------------------


def npy_bytes(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


def lying_header(text: str, version: int = 1) -> bytes:
    body = text.encode().ljust(100) + b"\n"
    return (
        NPY_MAGIC
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(body))
        + body
    )


def zip_with(path: Path, name: str, content: bytes, compression: int) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def npz_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npy")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (pytest.fail, ("a pickle was opened",))

    content = npy_bytes(np.array([Trap()], dtype=object))
    (tmp_path / "a.npy").write_bytes(content)
    with raises(UnusableImageFile, reason=Containing("Python objects")):
        read_array(tmp_path / "a.npy")
    with raises(UnusableImageFile, reason=Containing("Python objects")):
        load(zip_with(tmp_path / "a.npz", "images.npy", content, zipfile.ZIP_STORED))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        NPY_MAGIC,
        lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 28, 28)}"),
        lying_header(
            "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 99999999999, 28)}"
        ),
        lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 28, 28)}"),
        lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}"),
        lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': ()}"),
        lying_header("{'descr': '|V0', 'fortran_order': False, 'shape': (3, 3)}"),
        lying_header("{'descr': 'zzz', 'fortran_order': False, 'shape': (3,)}"),
        lying_header("__import__('os').getpid()"),
        lying_header("(" * 90),
        lying_header("{}", version=2),
        lying_header("{}", version=3),
        NPY_MAGIC + b"\2\0\xff\xff\xff\xff" + b" " * 9000,
        npy_bytes(np.zeros((3, 4, 4), np.uint8))[:-1],
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_a_bad_npy_header_raises(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with raises(ImageError) as caught:
        load(tmp_path / "a.npy")
    assert str(tmp_path / "a.npy") in str(caught.value)
    compressed = zip_with(tmp_path / "a.npz", "images.npy", content, zipfile.ZIP_DEFLATED)
    with raises(ImageError) as caught:
        load(compressed)
    assert str(tmp_path / "a.npz") in str(caught.value)


def test_only_the_requested_array_is_decompressed(
    tmp_path: Path, grey: np.ndarray, little_memory
) -> None:
    others = {f"other{number}": np.zeros(1 << 22, np.uint8) for number in range(4)}
    np.savez_compressed(tmp_path / "a.npz", images=grey, **others)
    with little_memory(2 << 20):
        np.testing.assert_array_equal(load(tmp_path / "a.npz").pixels[:][:, 0], grey)


@settings(deadline=None, max_examples=100)
@given(compressed=st.booleans(), cut=st.floats(0, 1, exclude_max=True))
def test_an_npz_truncated_raises(npz_folder: Path, compressed: bool, cut: float) -> None:
    path = npz_folder / "a.npz"
    (np.savez_compressed if compressed else np.savez)(
        path, images=np.arange(300, dtype=np.uint8).reshape(3, 10, 10)
    )
    complete = path.read_bytes()
    path.write_bytes(complete[: int(cut * len(complete))])
    with pytest.raises(ImageError), open_npz(path) as archive:
        archive["images"]


@settings(deadline=None, max_examples=200)
@given(compressed=st.booleans(), data=st.data())
def test_a_damaged_npz_raises_or_is_read(
    npz_folder: Path, compressed: bool, data: st.DataObject
) -> None:
    """A changed byte may go unnoticed in a value or a date, but nothing else than ImageError is
    ever raised."""
    path = npz_folder / "b.npz"
    (np.savez_compressed if compressed else np.savez)(
        path, images=np.arange(300, dtype=np.uint8).reshape(3, 10, 10)
    )
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        with open_npz(path) as archive:
            for name in archive:
                assert archive[name].nbytes <= len(content) * 1032
    except ImageError:
        pass


def test_what_decompresses_to_more_than_the_limit_raises(tmp_path: Path, save_gzip) -> None:
    with limited(decompressed=1000):
        zeros = np.zeros((5, 15, 15), np.uint8)
        np.savez_compressed(tmp_path / "bomb.npz", zeros)
        with raises(UnusableImageFile, reason=Containing("1,253 bytes", "at most 1,000")):
            load(tmp_path / "bomb.npz")
        write_idx(tmp_path / "idx", zeros)
        with raises(UnusableImageFile, reason=Containing("1,125 bytes")):
            read_array(save_gzip(tmp_path / "idx.gz", (tmp_path / "idx").read_bytes()))


def test_a_file_that_is_overwritten_after_it_was_loaded_changes_nothing(tmp_path: Path) -> None:
    """A map would end the process with SIGBUS, so it is tried in a process of its own."""
    values = np.random.default_rng(0).integers(0, 256, (50, 40, 40), np.uint8)
    np.save(tmp_path / "images.npy", values)
    write_idx(tmp_path / "images.idx", values)
    for name in ("images.npy", "images.idx"):
        reader = process(read_images_that_are_cut_off, tmp_path / name, int(values.sum()))
        reader.join()
        assert reader.exitcode == 0


def read_images_that_are_cut_off(path: Path, expected: int) -> None:
    images = load(path)
    with path.open("r+b") as file:
        file.truncate(200)
    np.testing.assert_allclose(float(images[:].sum()) * 255, expected, atol=100)
