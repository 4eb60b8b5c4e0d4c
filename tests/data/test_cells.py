"""Pictures in tables and streams: the same pixels as the array that they were made from."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from raising import Containing, raises, warns
from whatwhere.data.cells import RowsBecomeSquares, UnusableCell, cell_pixels, stream_images
from whatwhere.errors import InvalidImages, MissingColumn, NoSuchImages

DIGITS = ww.data.load("digits").pixels[:6, 0]
COLOUR = np.stack([DIGITS[:3], DIGITS[1:4], DIGITS[2:5]], -1)


def png(picture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "PNG")
    return buffer.getvalue()


class Table:
    """What a Hugging Face `Dataset` offers, as far as it is used."""

    def __init__(self, rows: list[dict[str, Any]], features: dict[str, Any]) -> None:
        self.rows, self.features, self.column_names = rows, features, list(features)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return [row[key] for row in self.rows]
        return self.rows[key]


class ClassLabel:
    names = ("odd", "even")


def table(pictures: Any) -> Table:
    rows = [{"scan": picture, "kind": k % 2} for k, picture in enumerate(pictures)]
    picture_feature = type("Image", (), {})()
    return Table(rows, {"id": object(), "scan": picture_feature, "kind": ClassLabel()})


@pytest.mark.parametrize("picture", [DIGITS[0], COLOUR[0]])
def test_all_kinds_of_cells_have_the_same_pixels(picture: np.ndarray, tmp_path: Path) -> None:
    expected = picture[None] if picture.ndim == 2 else picture.transpose(2, 0, 1)
    file = tmp_path / "a.png"
    file.write_bytes(png(picture))
    cells = [
        picture,
        png(picture),
        {"bytes": png(picture), "path": None},
        {"bytes": None, "path": str(file)},
        Image.fromarray(picture),
    ]
    for cell in cells:
        assert np.array_equal(cell_pixels(cell), expected)


def test_a_dataset_is_read_with_its_labels_and_classes() -> None:
    images = ww.data.load(table(map(Image.fromarray, DIGITS)))
    assert np.array_equal(images.pixels[:][:, 0], DIGITS)
    assert images.labels is not None
    assert images.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert images.classes == ("odd", "even")
    with raises(InvalidImages, remedy=Containing("data.load(table)")):
        ww.infer(ww.load("mnist"), table(DIGITS))


def test_pictures_of_several_sizes_and_colours_become_squares() -> None:
    pictures = [DIGITS[0], COLOUR[0][:20], DIGITS[1][4:]]
    with warns(RowsBecomeSquares, sizes=3):
        images = ww.data.load(table(map(Image.fromarray, pictures)))
    assert images.shape == (3, 20, 20)
    assert ww.data.load(table(map(Image.fromarray, pictures)), size=10).shape == (3, 10, 10)


def test_a_damaged_cell_names_its_row() -> None:
    with raises(UnusableCell, row=1, column="scan"):
        ww.data.load(table([png(DIGITS[0]), png(DIGITS[1])[:40]]))
    with raises(MissingColumn, known=("text",)):
        ww.data.load(Table([{"text": "a"}], {"text": object()}))


def test_a_list_of_files_is_read_in_its_order(tmp_path: Path) -> None:
    files = []
    for number, picture in enumerate(DIGITS):
        files.append(tmp_path / str(number % 2) / f"{number}.png")
        files[-1].parent.mkdir(exist_ok=True)
        files[-1].write_bytes(png(picture))
    files.reverse()
    images = ww.data.load([str(file) for file in files])
    assert np.array_equal(images.pixels[:][:, 0], DIGITS[::-1])
    with raises(NoSuchImages, path=str(tmp_path / "none.png")):
        ww.data.load([files[0], tmp_path / "none.png"])


@pytest.mark.parametrize(
    "given",
    [
        DIGITS[:1],
        DIGITS[:1, None],
        torch.from_numpy(DIGITS[:1, None]),
        Image.fromarray(DIGITS[0]),
        (DIGITS[0], 3),
        {"image": {"bytes": png(DIGITS[0]), "path": None}, "label": 3},
        [png(DIGITS[0])],
    ],
)
def test_streams_of_every_kind_give_the_same_batch(given: Any) -> None:
    batch = stream_images(given, 1)
    assert batch is not None
    assert np.array_equal(batch.numpy(), DIGITS[:1, None])


def test_a_batch_of_three_grey_pictures_is_not_taken_for_a_colour() -> None:
    assert stream_images(DIGITS[:3], 3) is None
    batch = stream_images(DIGITS[:3], 1)
    assert batch is not None
    assert batch.shape == (3, 1, 28, 28)
