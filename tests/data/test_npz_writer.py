"""Writing .npz files batch by batch: NumPy reads what was written, and incomplete arrays are never written."""

import os
from pathlib import Path

import numpy as np
import pytest

from whatwhere.data.npz_writer import write_npz


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.random((10, 3, 4)).astype(np.float32)
    positions = generator.random((10, 2)).transpose()[::-1].transpose()  # not contiguous
    labels = np.arange(10)
    batches = ({"features": features[i : i + 4], "positions": positions[i : i + 4]} for i in range(0, 10, 4))
    shapes = write_npz(tmp_path / "new" / "a.npz", 10, batches, {"labels": labels})
    assert shapes == {"features": [10, 3, 4], "positions": [10, 2], "labels": [10]}
    with np.load(tmp_path / "new" / "a.npz", allow_pickle=False) as written:
        assert list(written) == list(shapes)
        np.testing.assert_array_equal(written["features"], features)
        np.testing.assert_array_equal(written["positions"], positions)
        np.testing.assert_array_equal(written["labels"], labels)
    assert os.listdir(tmp_path / "new") == ["a.npz"]


@pytest.mark.parametrize("rows", [9, 11])
def test_the_wrong_number_of_rows_raises_and_the_old_file_stays(tmp_path: Path, rows: int) -> None:
    (tmp_path / "a.npz").write_bytes(b"old")
    with pytest.raises(ValueError, match="bytes were written"):
        write_npz(tmp_path / "a.npz", 10, iter([{"a": np.zeros((rows, 2))}]), {})
    assert os.listdir(tmp_path) == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == b"old"


def test_rows_of_another_shape_or_type_raise(tmp_path: Path) -> None:
    for other in (np.zeros((5, 3)), np.zeros((5, 2), np.float32)):
        with pytest.raises(ValueError, match="expected"):
            write_npz(tmp_path / "a.npz", 10, iter([{"a": np.zeros((5, 2))}, {"a": other}]), {})
    assert os.listdir(tmp_path) == []
