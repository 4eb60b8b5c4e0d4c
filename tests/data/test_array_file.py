"""Arrays in files, read by rows: the right values in both orders, little memory, and errors where mmap would crash."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whatwhere.data import load
from whatwhere.data.array_file import read_array
from whatwhere.errors import ImageError


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("array_file")


@settings(deadline=None, max_examples=100)
@given(
    order=st.sampled_from("CF"),
    dtype=st.sampled_from(["u1", ">u2", "<f4", ">f8", "?"]),
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    data=st.data(),
)
def test_rows_are_those_of_numpy(folder: Path, order: str, dtype: str, shape: list[int], data: st.DataObject) -> None:
    values = np.asarray(np.random.default_rng(0).integers(0, 200, shape).astype(dtype), order=order)
    np.save(folder / "a.npy", values)
    array = read_array(folder / "a.npy")
    row = st.integers(-shape[0], shape[0] - 1)
    rows = data.draw(
        st.slices(shape[0]) | st.lists(row, max_size=7) | st.lists(st.booleans(), min_size=shape[0], max_size=shape[0])
    )
    if rows == []:
        rows = np.array([], int)
    read = array[rows]
    assert read.dtype == values.dtype
    np.testing.assert_array_equal(read, values[rows])


def test_rows_of_more_than_one_axis_raise(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    array = read_array(tmp_path / "a.npy")
    with pytest.raises(IndexError):
        array[[3]]
    with pytest.raises(IndexError, match="rows are given as"):
        array[1]


@pytest.mark.parametrize("dtype", ["u1", "<f4"])
@pytest.mark.parametrize("fortran", [True, False])
def test_a_large_array_takes_little_memory_or_raises(
    tmp_path: Path, dtype: str, fortran: bool, little_memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse file of 1 GB: opening one of bytes reads nothing, floats are checked batch by batch."""
    monkeypatch.setattr("whatwhere.data.images.BATCH_BYTES", 1 << 22)
    itemsize = np.dtype(dtype).itemsize
    shape = ((1 << 30) // itemsize // 1024 + 1, 32, 32)
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": fortran, "shape": shape})
        file.truncate(file.tell() + itemsize * int(np.prod(shape)))
    with little_memory(64 << 20):
        if fortran:
            with pytest.raises(ImageError, match=r"Fortran order.*ascontiguousarray"):
                load(tmp_path / "a.npy")
        else:
            assert load(tmp_path / "a.npy")[5:8].sum() == 0


def test_a_file_truncated_or_changed_after_loading_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((100, 8, 8), np.uint8))
    images = load(path)
    assert images[90:].shape == (10, 1, 8, 8)
    os.truncate(path, 4000)
    with pytest.raises(ImageError, match=r"a\.npy: changed since it was loaded"):
        images[90:]
    path.unlink()
    with pytest.raises(ImageError, match=r"a\.npy: cannot be read: No such file"):
        images[:1]


def test_a_file_truncated_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    """In a process of its own: with a memory map it dies of SIGBUS."""
    program = """
import os, sys
from pathlib import Path
import numpy as np
from whatwhere.data import array_file
from whatwhere.errors import ImageError

path = Path(sys.argv[1])
np.save(path, np.zeros((1000, 8, 8)))
array, open_file = array_file.read_array(path), array_file.ArrayFile._open

def cut_after_opening(self):
    file = open_file(self)
    os.truncate(path, 100)
    return file

array_file.ArrayFile._open = cut_after_opening
try:
    array[:]
except ImageError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", program, tmp_path / "a.npy"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "truncated while it was read" in result.stdout
