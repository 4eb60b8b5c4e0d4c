""".npy and .npz: read by rows if they are not compressed, never unpickled, rejected if the header lies."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whatwhere.data import load
from whatwhere.data.array_file import NPY_MAGIC, Archive, ArrayFile, read_array
from whatwhere.errors import ImageError


def npy_bytes(values: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=True)
    return stream.getvalue()


def lying_header(text: str, version: int = 1) -> bytes:
    body = text.encode().ljust(100) + b"\n"
    return NPY_MAGIC + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(body)) + body


def zip_with(path: Path, name: str, content: bytes, compression: int) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("npy")


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_read_by_rows(tmp_path: Path, grey: np.ndarray, order: str) -> None:
    np.save(tmp_path / "a.npy", np.asarray(grey, order=order))
    read = read_array(tmp_path / "a.npy")
    np.testing.assert_array_equal(read[:], grey)
    assert isinstance(read, ArrayFile) == (order == "C")


def test_npz_is_read_by_rows_if_it_is_not_compressed(tmp_path: Path, grey: np.ndarray) -> None:
    np.savez(tmp_path / "plain.npz", images=grey, labels=np.arange(5))
    np.savez_compressed(tmp_path / "compressed.npz", images=np.asfortranarray(grey), labels=np.arange(5))
    for name, by_rows in (("plain.npz", True), ("compressed.npz", False)):
        assert list(Archive(tmp_path / name)) == ["images", "labels"]
        images = Archive(tmp_path / name)["images"]
        np.testing.assert_array_equal(images[:], grey)
        np.testing.assert_array_equal(Archive(tmp_path / name)["labels"][:], np.arange(5))
        assert isinstance(images, ArrayFile) == by_rows


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple:
            return (pytest.fail, ("a pickle was opened",))

    content = npy_bytes(np.array([Trap()], dtype=object))
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(ImageError, match="never unpickled"):
        read_array(tmp_path / "a.npy")
    with pytest.raises(ImageError, match="never unpickled"):
        Archive(zip_with(tmp_path / "a.npz", "images.npy", content, zipfile.ZIP_STORED))["images"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "starts with nothing"),
        (NPY_MAGIC, "not a valid"),
        (lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 28, 28)}"), "truncated"),
        (lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 28, 28)}"), "no array has that"),
        (lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (0,)}"), "no values"),
        (lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': ()}"), "no values"),
        (lying_header("{'descr': '|V0', 'fortran_order': False, 'shape': (3, 3)}"), "never unpickled"),
        (lying_header("{'descr': 'zzz', 'fortran_order': False, 'shape': (3,)}"), "not a valid"),
        (lying_header("__import__('os').getpid()"), "not a valid"),
        (lying_header("(" * 90), "not a valid"),
        (lying_header("{}", version=2), "not a valid"),
        (lying_header("{}", version=3), "named fields"),
        (NPY_MAGIC + b"\2\0\xff\xff\xff\xff" + b" " * 9000, "not a valid"),
        (npy_bytes(np.zeros((3, 4), np.uint8))[:-1], "truncated"),
        (npy_bytes(np.zeros((3, 4), np.uint8)) + b"\0", "longer than"),
    ],
)
def test_a_bad_header_raises(tmp_path: Path, content: bytes, reason: str, little_memory) -> None:
    (tmp_path / "a.npy").write_bytes(content)
    with little_memory(2 << 20), pytest.raises(ImageError, match=reason):
        read_array(tmp_path / "a.npy")
    compressed = zip_with(tmp_path / "a.npz", "images.npy", content, zipfile.ZIP_DEFLATED)
    with little_memory(2 << 20), pytest.raises(ImageError):
        load(compressed)


def test_a_zip_bomb_raises(tmp_path: Path, little_memory) -> None:
    bomb = zip_with(
        tmp_path / "a.npz", "images.npy", npy_bytes(np.zeros(784, np.uint8)) + bytes(1 << 26), zipfile.ZIP_DEFLATED
    )
    with little_memory(4 << 20), pytest.raises(ImageError, match="longer than its header"):
        Archive(bomb)["images"]


def test_a_stored_array_that_claims_bytes_beyond_the_archive_raises(tmp_path: Path) -> None:
    lie = lying_header("{'descr': '|u1', 'fortran_order': False, 'shape': (100000, 28, 28)}")
    path = zip_with(tmp_path / "a.npz", "images.npy", lie, zipfile.ZIP_STORED)
    true_sizes, lying_sizes = struct.pack("<II", *[len(lie)] * 2), struct.pack("<II", *[len(lie) + 78_400_000] * 2)
    path.write_bytes(path.read_bytes().replace(true_sizes, lying_sizes))
    with pytest.raises(ImageError, match="damaged or truncated"):
        Archive(path)["images"]


def test_only_the_requested_array_is_decompressed(tmp_path: Path, grey: np.ndarray, little_memory) -> None:
    others = {f"other{number}": np.zeros(1 << 22, np.uint8) for number in range(4)}
    np.savez_compressed(tmp_path / "a.npz", images=grey, **others)
    with little_memory(2 << 20):
        np.testing.assert_array_equal(Archive(tmp_path / "a.npz")["images"], grey)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_raise(tmp_path: Path, grey: np.ndarray, compression: int) -> None:
    with pytest.raises(ImageError, match="neither stored nor deflated"):
        Archive(zip_with(tmp_path / "a.npz", "images.npy", npy_bytes(grey), compression))["images"]


@settings(deadline=None, max_examples=100)
@given(compressed=st.booleans(), cut=st.floats(0, 1, exclude_max=True))
def test_an_npz_truncated_raises(folder: Path, compressed: bool, cut: float) -> None:
    path = folder / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, images=np.arange(300, dtype=np.uint8).reshape(3, 10, 10))
    complete = path.read_bytes()
    path.write_bytes(complete[: int(cut * len(complete))])
    with pytest.raises(ImageError):
        Archive(path)["images"]


@settings(deadline=None, max_examples=200)
@given(compressed=st.booleans(), data=st.data())
def test_a_damaged_npz_raises_or_is_read(folder: Path, compressed: bool, data: st.DataObject) -> None:
    """A changed byte may go unnoticed in a value or a date, but nothing else than ImageError is ever raised."""
    path = folder / "b.npz"
    (np.savez_compressed if compressed else np.savez)(path, images=np.arange(300, dtype=np.uint8).reshape(3, 10, 10))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        archive = Archive(path)
        for name in archive:
            assert archive[name][:].nbytes <= len(content) * 1032
    except ImageError:
        pass
