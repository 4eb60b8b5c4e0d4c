"""One picture read window by window is the same picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from whatwhere.data import array_file, load
from whatwhere.data.windows import PictureWindows

WINDOW = (slice(None), slice(3, 9), slice(5, 30))


def files(folder: Path) -> dict[str, Path]:
    from PIL import Image

    rng = np.random.default_rng(0)
    arrays = {
        "grey": rng.integers(0, 255, (3, 20, 30), np.uint8),
        "first": rng.random((3, 2, 20, 30)).astype(np.float32),
        "last": rng.integers(0, 60000, (3, 20, 30, 3), np.uint16),
        "fortran": np.asfortranarray(rng.random((3, 20, 30))),
    }
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    np.savez(folder / "stored.npz", arrays["grey"])
    np.savez_compressed(folder / "compressed.npz", arrays["first"])
    (folder / "pictures").mkdir()
    for i in range(3):
        Image.fromarray(rng.integers(0, 255, (20, 30, 3), np.uint8)).save(folder / "pictures" / f"{i}.png")
    return {path.stem: path for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["grey", "first", "last", "fortran", "stored", "compressed", "pictures"])
def test_a_window_is_a_part_of_the_image(tmp_path: Path, name: str) -> None:
    images = load(files(tmp_path)[name])
    for row in (0, 2):
        picture = PictureWindows(images, row)
        assert picture.shape == images.shape
        assert torch.equal(picture[WINDOW], images[row][WINDOW])
        assert torch.equal(picture[:, :, :], images[row])


def test_only_the_rows_of_a_window_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = files(tmp_path)["first"]
    images, read, values = load(path), array_file.ArrayFile._read_into, []

    def counting(self: Any, file: Any, first: int, rows: np.ndarray) -> None:
        values.append(rows.size)
        read(self, file, first, rows)

    monkeypatch.setattr(array_file.ArrayFile, "_read_into", counting)
    _ = PictureWindows(images, 1)[WINDOW]
    assert sum(values) == 2 * 6 * 30
