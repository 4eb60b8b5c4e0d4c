"""Pictures in the cells of a table: of a Hugging Face `Dataset`, of a Parquet file, of a stream.

A cell holds a PIL picture, the bytes of a PNG or JPEG file, a dictionary with such `bytes` or a
`path`, as Hugging Face and Ray Data store them, or an array [H, W] or [H, W, C].
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeGuard, cast, overload

import numpy as np
import torch
from numpy.typing import ArrayLike

from whatwhere.data.arrays import is_one_picture
from whatwhere.data.images import AllPictures, Images, LazyPixels, white_used
from whatwhere.data.mixed import Kind, Recorded, centre_square, convert, usual_side
from whatwhere.data.pictures import open_picture, read_page
from whatwhere.errors import (
    EmptySet,
    ImageError,
    InvalidImages,
    MissingColumn,
    listed,
    printable,
    unique_printable,
    warn,
)
from whatwhere.files import open_regular, readable
from whatwhere.spec.execution import Shard

if TYPE_CHECKING:
    from PIL.Image import Image as PillowPicture

_PICTURE_COLUMNS = ("image", "img", "picture", "pixel_values", "png", "jpg", "jpeg")
_LABEL_COLUMNS = ("label", "labels", "cls", "fine_label")


def is_dataset(source: object) -> "TypeGuard[Table]":
    """Tell whether this is a Hugging Face `Dataset`: a table with named columns and their
    features."""
    return all(hasattr(source, name) for name in ("column_names", "features", "__len__"))


def is_list_of_paths(source: object) -> TypeGuard[Sequence[str | Path]]:
    """Tell whether this is a list of files."""
    return (
        isinstance(source, list | tuple)
        and len(source) > 0
        and all(isinstance(path, str | Path) for path in source)
    )


def is_cell(value: object) -> bool:
    """Tell whether this is one picture as a table holds it, other than an array."""
    if isinstance(value, Mapping):
        return value.get("bytes") is not None or value.get("path") is not None
    return isinstance(value, bytes | bytearray) or hasattr(value, "getbands")


def is_list_of_pictures(source: object) -> bool:
    """Tell whether this is a list of single pictures: paths, pictures of Pillow, or arrays."""
    return isinstance(source, list | tuple) and len(source) > 0 and all(map(_is_picture, source))


def _is_picture(value: object) -> bool:
    if isinstance(value, np.ndarray | torch.Tensor):
        return is_one_picture(value.shape) or (value.ndim == 3 and value.shape[0] == 1)
    return isinstance(value, str | Path) or is_cell(value)


def is_list_of_cells(source: object) -> TypeGuard[Sequence[object]]:
    """Tell whether this is a list of pictures as a table holds them, other than arrays."""
    return isinstance(source, list | tuple) and len(source) > 0 and all(map(is_cell, source))


def as_table(source: object) -> "Table | None":
    """Return a Hugging Face `Dataset`, a picture of Pillow or a list of them as a table; None for
    anything else."""
    if is_dataset(source):
        return source
    if is_cell(source):
        return cast("Table", PictureTable([source]))
    return cast("Table", PictureTable(source)) if is_list_of_cells(source) else None


def cell_pixels(cell: object) -> np.ndarray:
    """Return the pixels of a cell, [C, H, W]: uint8, or uint16 or float32 where it has such
    values."""
    if isinstance(cell, Mapping):
        cell = Path(cell["path"]) if cell.get("bytes") is None else cell["bytes"]
    if isinstance(cell, bytes | bytearray | memoryview):
        with open_picture(io.BytesIO(cell), "a picture in a table") as opened:
            return read_page(opened)
    if isinstance(cell, Path):
        remedy = "correct its path in the table"
        with (
            readable(cell, "picture", remedy, ImageError),
            open_regular(cell) as stream,
            open_picture(stream, printable(cell)) as opened,
        ):
            return read_page(opened)
    if hasattr(cell, "getbands"):  # PIL
        return read_page(cast("PillowPicture", cell).copy())
    values = np.asarray(cell)
    if values.ndim not in (2, 3):
        raise InvalidImages(
            f"{type(cell).__name__} of shape {values.shape} as a picture",
            "a PIL picture, the bytes of a PNG or JPEG file, or an array [H, W] or [H, W, C]",
        )
    return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


class RowsBecomeSquares(UserWarning):
    """Rows of a table whose pictures have several sizes.

    Attributes
    ----------
    name
        the table
    sizes
        the number of sizes
    side
        side of the squares, in pixels
    """

    def __init__(self, name: str, sizes: int, side: int) -> None:
        self.name = name
        self.sizes = sizes
        self.side = side
        super().__init__(
            f"{name} has pictures of {sizes} sizes. whatwhere scales each one so that its shorter"
            f" side has {side} pixels and crops its centre. Give size=… for another side."
        )


class UnusableCell(ImageError):
    """A cell of a table that is not a picture.

    Attributes
    ----------
    row
        the number of its row, from 0
    column
        the name of its column
    """

    def __init__(self, row: int, column: str, error: ImageError) -> None:
        self.row = row
        self.column = column
        super().__init__(f"Row {row:,}, column {column!r}: {error}")


def picture_of_sample(sample: object) -> object:
    """Return the picture of one sample of a stream: its entry that is named like one, its first
    entry, or the sample itself."""
    if isinstance(sample, Mapping) and not is_cell(sample):
        named = next((name for name in _PICTURE_COLUMNS if name in sample), None)
        if named is None:
            return sample
        return sample[named]
    return sample[0] if isinstance(sample, tuple | list) and sample else sample


class OpenPicture(Protocol):
    """A picture of Pillow."""

    def getbands(self) -> tuple[str, ...]: ...


class Table(Protocol):
    """A table with named columns and their features, as a Hugging Face `Dataset`."""

    @property
    def features(self) -> Mapping[str, object]: ...
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, row: int, /) -> Mapping[str, object]: ...
    @overload
    def __getitem__(self, column: str, /) -> ArrayLike: ...


@dataclass(frozen=True)
class PictureTable:
    """A list of pictures, as a table of one column."""

    pictures: Sequence[object]
    name: ClassVar[str] = "pictures"
    features: ClassVar[Mapping[str, object]] = {_PICTURE_COLUMNS[0]: None}

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> Mapping[str, object]:
        return {_PICTURE_COLUMNS[0]: self.pictures[row]}


@dataclass(frozen=True)
class _Column:
    """The pictures of a column, decoded when they are read."""

    table: Table
    name: str

    def read(self, row: int) -> np.ndarray:
        try:
            return cell_pixels(self.table[row][self.name])
        except ImageError as error:
            raise UnusableCell(row, self.name, error) from error


def read_dataset(table: Table, recorded: Recorded, shard: Shard, size: int | None) -> Images:
    """Return the pictures of a Hugging Face `Dataset`, with its labels if it has any.

    Every picture is decoded once here, and again when it is used.

    Parameters
    ----------
    size
        side of the squares that all pictures become; None keeps pictures of one size whole
    """
    features = table.features
    column = _Column(table, _picture_column(features))
    info = getattr(table, "info", None)
    name = printable(
        getattr(table, "name", None) or getattr(info, "dataset_name", None) or "dataset"
    )
    rows = shard.rows_of_pictures(len(table))
    numbers = np.arange(rows.start, rows.stop)
    if len(numbers) == 0:
        raise EmptySet
    shapes: list[tuple[int, int, int]] = []
    dtypes: set[np.dtype] = set()
    deepest = 0
    for row in numbers:
        pixels = column.read(int(row))
        channels, height, width = pixels.shape
        shapes.append((channels, height, width))
        dtypes.add(pixels.dtype)
        if pixels.dtype == np.uint16:
            deepest = max(deepest, int(pixels.max()))
    deep_white = (recorded.white or white_used(deepest, name)) if deepest else None
    kind = _common_kind({shape[0] for shape in shapes}, dtypes, deep_white, name)
    sizes = sorted({(height, width) for _, height, width in shapes})
    side = size or recorded.side if len(sizes) == 1 else size or recorded.side or usual_side(sizes)
    if len(sizes) > 1 and size is None:
        warn(RowsBecomeSquares(name, len(sizes), side or usual_side(sizes)))
    height, width = (side, side) if side else sizes[0]
    read = partial(_read_rows, column, numbers, kind, deep_white, side)
    labels, classes = _labels(table, features, numbers)
    return Images(
        LazyPixels((len(numbers), kind.channels, height, width), kind.dtype, read),
        labels,
        name,
        classes,
        brightest=kind.brightest,
        deep_white=deep_white,
        all_pictures=None if shard.is_all else AllPictures.of(len(table), [name]),
    )


def _read_rows(
    column: _Column,
    numbers: np.ndarray,
    kind: Kind,
    deep_white: int | None,
    side: int | None,
    rows: np.ndarray,
) -> np.ndarray:
    whites = {"uint8": 255, "uint16": deep_white, "int16": 32768}
    pictures = []
    for row in numbers[rows]:
        pixels = column.read(int(row))
        pixels = convert(pixels, whites.get(pixels.dtype.name), kind)
        pictures.append(centre_square(pixels, side) if side else pixels)
    return np.stack(pictures)


def _common_kind(
    channels: set[int], dtypes: set[np.dtype], deep_white: int | None, name: str
) -> Kind:
    """Return the kind that pictures of these channels and types become."""
    if len(channels - {1}) > 1:
        given = f"{name}, pictures of {listed(sorted(channels))} channels"
        raise InvalidImages(given, "the same number in all, except in grey ones")
    most = max(channels)
    if dtypes == {np.dtype(np.uint8)}:
        return Kind(most, np.dtype(np.uint8), 255)
    if dtypes <= {np.dtype(np.uint8), np.dtype(np.uint16)}:
        return Kind(most, np.dtype(np.uint16), deep_white if len(dtypes) == 1 else 65535)
    return Kind(most, np.dtype(np.float32), None)


def _picture_column(features: Mapping[str, object]) -> str:
    """Return the column with the pictures: the only one of the type `Image`, or one named like
    it."""
    typed = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    named = [name for name in _PICTURE_COLUMNS if name in features]
    if len(typed) == 1:
        return typed[0]
    usual = [name for name in named if not typed or name in typed]
    if not usual:
        raise MissingColumn("image", features)
    return usual[0]


def _labels(
    table: Table, features: Mapping[str, object], numbers: np.ndarray
) -> tuple[np.ndarray | None, tuple[str, ...] | None]:
    """Return the labels of these rows and the names of the classes, if the table has them."""
    classed = [name for name, feature in features.items() if hasattr(feature, "names")]
    named = [name for name in _LABEL_COLUMNS if name in features]
    if not classed and not named:
        return None, None
    column = named[0] if named and (named[0] in classed or not classed) else classed[0]
    values = np.asarray(table[column])[numbers]
    if values.dtype.kind not in "iu" or values.min() < 0:  # -1: no label is known
        return None, None
    names = getattr(features[column], "names", None)
    classes = None if names is None else tuple(map(unique_printable, names))
    return values.astype(np.int64), classes


def stream_images(given: object, channels: int | None) -> torch.Tensor | None:
    """Return a batch [n, C, H, W] of what a stream yields: a batch, or one picture.

    Parameters
    ----------
    channels
        of the model, if they are known: a batch [n, H, W] is grey for a model of one

    Returns
    -------
    torch.Tensor | None
        None for anything else
    """
    given = picture_of_sample(given)
    if is_cell(given):
        return torch.from_numpy(np.array(cell_pixels(given)))[None]
    if isinstance(given, Sequence) and given and all(map(is_cell, given)):
        pixels = [cell_pixels(cell) for cell in given]
        if len({one.shape for one in pixels}) > 1:
            return None
        return torch.from_numpy(np.stack(pixels))
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(np.array(given))
    if not isinstance(given, torch.Tensor):
        return None
    if given.ndim == 2:
        return given[None, None]
    if given.ndim == 3 and (channels == 1 or given.shape[0] == 1):
        return given[:, None]
    return given if given.ndim == 4 else None
