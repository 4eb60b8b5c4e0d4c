"""Writing .npz files piece by piece: NumPy reads what was written, and incomplete arrays are never written."""

import os
from pathlib import Path

import numpy as np
import pytest

from whatwhere.data.npz_writer import open_npz


def test_numpy_reads_what_was_written(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    features = generator.random((10, 3, 4)).astype(np.float32)
    positions = generator.random((10, 2)).transpose()[::-1].transpose()  # not contiguous
    with open_npz(tmp_path / "new" / "a.npz") as npz:
        for i in range(0, 10, 4):
            npz.append("features", features[i : i + 4])
            npz.append("positions", positions[i : i + 4])
            npz.expect(2.5)
        assert npz.finish(labels=np.arange(10)) == {"features": [10, 3, 4], "positions": [10, 2], "labels": [10]}
    with np.load(tmp_path / "new" / "a.npz", allow_pickle=False) as written:
        assert list(written) == ["features", "positions", "labels"]
        np.testing.assert_array_equal(written["features"], features)
        np.testing.assert_array_equal(written["positions"], positions)
        np.testing.assert_array_equal(written["labels"], np.arange(10))
    assert os.listdir(tmp_path / "new") == ["a.npz"]


def write(path: Path, *batches: np.ndarray) -> None:
    with open_npz(path) as npz:
        for batch in batches:
            npz.append("a", batch)
        npz.finish()


@pytest.mark.parametrize("other", [np.zeros((5, 3)), np.zeros((5, 2), np.float32)])
def test_rows_of_another_shape_or_type_raise_and_the_old_file_stays(tmp_path: Path, other: np.ndarray) -> None:
    (tmp_path / "a.npz").write_bytes(b"old")
    with pytest.raises(ValueError, match="expected"):
        write(tmp_path / "a.npz", np.zeros((5, 2)), other)
    assert os.listdir(tmp_path) == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == b"old"
