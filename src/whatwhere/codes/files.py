"""Sparse codes in files: written block by block, read by image, dense or sparse.

A block is the codes of some images, a NumPy archive whose arrays docs/reference/file_formats.md
lists; `codes.small_codes` says how it becomes small. A file of codes holds blocks one after the
other, so that it is written and read in little memory. A folder of parts (`--shard`) is read as
one. Images may be of several sizes.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import torch
from torch import Tensor

from whatwhere.codes import tables
from whatwhere.codes.small_codes import expand
from whatwhere.data.arrays import check_members, open_npz
from whatwhere.data.parts import UNKNOWN, PartRecord, find_parts, read_record
from whatwhere.errors import ImageError, InvalidImages, NoSuchImages, printable, sentence
from whatwhere.files import (
    check_format,
    disk_errors,
    new_folder,
    open_atomic,
    open_regular,
    readable,
    untrusted,
)
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap
from whatwhere.model import DeconvNet

if TYPE_CHECKING:
    import pandas
    import xarray


Array = np.ndarray
FORMAT = "whatwhere codes 1"  # the format of a block
BLOCKS = "whatwhere codes 2"  # the format of a file of blocks
# The largest number of places that a file may have: in total, and for each of its values
_DENSE_LIMIT = 1 << 28
_DENSE_RATIO = 1000
KNOWN = re.compile(
    r"(features|where[1-9])_(shape|indptr|indices)|features_values|(mu|gamma)[1-9]|image_shape|"
    r"low|scale|labels"
    "|names"
)
"""The names of the arrays; others are not read."""

REMEDY = "copy it again, or encode the images again"


class CodesOfAnotherModel(ImageError):
    """Codes that another model made than the one that should decode them.

    Attributes
    ----------
    name
        the codes
    model
        the checksum of the model that made them; empty if the file does not say it
    given
        the model that was given
    """

    def __init__(self, name: str, model: str, given: str) -> None:
        self.name = name
        self.model = model
        self.given = given
        made = f" with the checksum {model[:8]}…" if model else ""
        super().__init__(
            f"Cannot decode {name} with {given}: another model{made} encoded it. Give that model."
        )


class Codes:
    """The codes of N images, which may be of several sizes.

    `codes[i]` holds what and where of one image; `codes.features` holds the features of all images,
    dense. Only the block of the last image that was read is in memory.

    Parameters
    ----------
    blocks
        where the codes are stored
    name
        the name of their file, for messages
    model
        the checksum of the model that made them; empty if it is not known
    """

    def __init__(self, blocks: Sequence[_StoredBlock], name: str, model: str = "") -> None:
        self.name = name
        self.model = model
        self._blocks = blocks
        self._starts = np.cumsum([0, *(block.count for block in blocks)])
        self._loaded: tuple[int, _CodeBlock] | None = None

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __repr__(self) -> str:
        where = "with" if self.depth else "without"
        return f"Codes({self.name!r}, {len(self):,} images, {where} pooling variables)"

    @property
    def depth(self) -> int:
        """Layers whose pooling variables the file has; 0 without `--where`."""
        return self._block(0).depth

    @cached_property
    def labels(self) -> Array | None:
        """The labels, int64 [N]; None if there are none."""
        return self._joined("labels")

    @cached_property
    def names(self) -> list[str] | None:
        """The files of the pictures, if the images were a folder."""
        names = self._joined("names")
        return None if names is None else [str(name) for name in names]

    @cached_property
    def image_shapes(self) -> Array:
        """Channels, height and width of every image, int64 [N, 3]."""
        shapes = self._joined("image_shape")
        assert shapes is not None
        return shapes

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The arrays of a file of one block."""
        if len(self._blocks) != 1:
            raise InvalidImages(
                f"{self.name}, codes in {len(self._blocks)} blocks",
                "one block",
                "Read the codes image by image: codes[i].",
            )
        return self._block(0).arrays

    @property
    def features(self) -> Array:
        """The top layer's features of all images, float32 [N, B, H, W]."""
        self.require_one_size("dense features")
        return np.concatenate([self._block(number).features for number in range(len(self._blocks))])

    def __getitem__(self, image: int) -> SparseLatents:
        """Return what and where of one image."""
        block, row = self._find(image)
        return block[row]

    def latents(self, image: int) -> Latents:
        """Return what and where of one image, dense, as `infer` returns them."""
        return self[image].dense()

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas.DataFrame with a row for every feature that is not 0: its image, map,
        row, column and value, μ and γ of its region if the codes have them, and the image's name
        and label if they have these."""
        return tables.to_pandas(self)

    def to_xarray(self) -> xarray.DataArray:
        """Return the dense features as an xarray.DataArray with the axes image, map, row and
        column; names and labels are coordinates of the images."""
        return tables.to_xarray(self)

    def decode(self, model: DeconvNet, image: int) -> Tensor:
        """Return the image [C, H, W] that a code reconstructs with the model that made it, a
        `DeconvNet`.

        With another model, it raises an error. `model.at(H, W).decode(codes.latents(i))` decodes
        with any model, such as one that was trained further.
        """
        self._check_model(model)
        block, row = self._find(image)
        return block.decode(model, row)

    def require_one_size(self, purpose: str) -> None:
        """Raise an ImageError for codes of images of several sizes."""
        if len(np.unique(self.image_shapes, axis=0)) != 1:
            raise InvalidImages(
                f"{self.name}, codes of several sizes",
                f"one size for {purpose}",
                "codes[i] is the code of one image.",
            )

    def _check_model(self, model: DeconvNet) -> None:
        """Raise an ImageError if another model made the codes. A file of one block does not
        record its model."""
        if self.model and model.checksum != self.model:
            given = "this model" if model.source is None else printable(model.source)
            raise CodesOfAnotherModel(self.name, self.model, f"{given}, {model.checksum[:8]}…")

    def _find(self, image: int) -> tuple[_CodeBlock, int]:
        """Return the block of an image, and its row there."""
        image = range(len(self))[image]
        number = int(np.searchsorted(self._starts, image, side="right")) - 1
        return self._block(number), image - int(self._starts[number])

    def _block(self, number: int) -> _CodeBlock:
        if self._loaded is None or self._loaded[0] != number:
            self._loaded = (number, self._blocks[number].load())
        return self._loaded[1]

    def _joined(self, name: str) -> Array | None:
        """Return an array of all images; None if not all blocks have it."""
        parts = [self._block(number).arrays.get(name) for number in range(len(self._blocks))]
        present = [part for part in parts if part is not None]
        return np.concatenate(present) if len(present) == len(parts) else None


@dataclass(frozen=True)
class _StoredBlock:
    """Codes of some images that are stored together: their number, and how they are read."""

    count: int
    load: Callable[[], _CodeBlock]


@dataclass(frozen=True, repr=False)
class _CodeBlock:
    """The codes of a block of images: arrays of values, image after image."""

    arrays: Mapping[str, Array]
    name: str

    def __len__(self) -> int:
        return len(self.arrays["features_shape"])

    @cached_property
    def depth(self) -> int:
        """Layers whose pooling variables the file has; 0 without `--where`."""
        return sum(name.startswith("mu") for name in self.arrays)

    @property
    def features(self) -> Array:
        """The top layer's features of all images, float32 [N, B, H, W]."""
        grid = self._shape("features_shape", 0)
        return np.asarray(
            torch.cat([self._map("features", i).dense() for i in range(len(self))]).view(-1, *grid)
        )

    def __getitem__(self, image: int) -> SparseLatents:
        """Return what and where of one image."""
        image = range(len(self))[image]
        where = tuple(self._map(f"where{k}", image) for k in range(1, self.depth + 1))
        return SparseLatents(self._map("features", image), where, self._background(image))

    def decode(self, model: DeconvNet, image: int) -> Tensor:
        """Return the image [C, H, W] that a code reconstructs with the model that made it, a
        `DeconvNet`."""
        if not self.depth:
            raise InvalidImages(
                f"{self.name}, codes without pooling variables",
                "codes with them, to decode",
                "Encode the images again with --where.",
            )
        _, height, width = self._shape("image_shape", image)
        sized = model.at(height, width)
        grids = [regions.grid for regions in sized.regions[: self.depth]]
        if [self._shape(f"where{k}_shape", image) for k in range(1, self.depth + 1)] != grids:
            raise CodesOfAnotherModel(self.name, "", "this model")
        with torch.no_grad():
            latents = self[image].dense().to(sized.filters[0].device)
            reconstruction: Tensor = sized.decode(latents)[0]
        return reconstruction

    def _map(self, name: str, image: int) -> SparseMap:
        first, last = self.arrays[f"{name}_indptr"][image : image + 2]
        values = [torch.from_numpy(self.arrays[key][first:last]) for key in _value_names(name)]
        columns = torch.cat([v[:, None] if v.ndim == 1 else v for v in values], 1)
        indices = torch.from_numpy(self.arrays[f"{name}_indices"][first:last].astype(np.int64))
        return SparseMap(self._shape(f"{name}_shape", image), indices, columns)

    def _background(self, image: int) -> Background:
        C, H, W = self._shape("image_shape", image)
        before = self.arrays["image_shape"][:image]
        parts = {}
        for name, channels, first in (
            ("low", C, before.prod(1).sum()),
            ("scale", 1, before[:, 1:].prod(1).sum()),
        ):
            if name in self.arrays:
                values = self.arrays[name].reshape(-1)[first : first + channels * H * W]
                parts[name] = torch.from_numpy(values.reshape(1, channels, H, W))
        return Background(**parts)

    def _shape(self, name: str, image: int) -> tuple[int, int, int]:
        a, b, c = (int(side) for side in self.arrays[name][image])
        return a, b, c


# Writing -----------------------------------------------------------------------------------------


def write_block(file: BinaryIO, arrays: Mapping[str, Array], *, compress: bool) -> None:
    """Write a block as a NumPy archive."""
    # bzip2 compresses levels and gaps as well as LZMA does, in a seventh of the time
    method = zipfile.ZIP_BZIP2 if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(values), allow_pickle=False)


def join_blocks(
    path: Path,
    blocks: Sequence[Path],
    counts: Sequence[int],
    record: PartRecord = UNKNOWN,
    made_of: str = "",
) -> None:
    """Join the files of blocks to one file of codes, by copying their bytes.

    Parameters
    ----------
    counts
        how many images each block has
    record
        the model, the settings and the pictures, the same for all parts of one command
    made_of
        a checksum of the images in this file
    """
    doing = f"writing {path}"
    with (
        disk_errors(doing, "free some disk space, or choose another folder"),
        new_folder(path.parent),
        open_atomic(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive,
    ):
        head = {
            "format": np.array(BLOCKS),
            "counts": np.array(counts, np.int64),
            **record.arrays(),
            "made_of": np.array(made_of),
        }
        for name, values in head.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
        for number, block in enumerate(blocks):
            # with the current date, equal codes would give different files
            with (
                archive.open(zipfile.ZipInfo(block_name(number)), "w", force_zip64=True) as member,
                open(block, "rb") as content,
            ):
                shutil.copyfileobj(content, member)


def made_of(path: Path) -> str:
    """Return the checksum of the images in a file of codes; empty in any other file."""
    try:
        with open_npz(path, "file of codes", REMEDY) as archive:
            return str(archive.get("made_of", ""))
    except (ImageError, OSError):
        return ""


def block_name(number: int) -> str:
    """Return the name of a block in a file of codes."""
    return f"block{number:07}.npz"


# Reading -----------------------------------------------------------------------------------------


def load_codes(path: str | os.PathLike[str]) -> Codes:
    """Read the codes in a file that `whatwhere encode` wrote, or in a folder of its parts
    (`--shard`).

    Parameters
    ----------
    path
        path of the file or the folder

    Examples
    --------
    >>> images, few = ww.data.load("digits").pixels[:3], ww.InferenceSpec(steps=2)
    >>> _ = ww.codes.write_codes("codes.npz", ww.load("mnist"), images, few)
    >>> ww.load_codes("codes.npz").features.shape
    (3, 48, 10, 10)
    """
    given = Path(path)
    files = find_parts(given) if given.is_dir() else [given]
    blocks = [block for file in files for block in _stored_blocks(file)]
    if not blocks:
        raise NoSuchImages("codes in", printable(given), remedy=sentence(REMEDY))
    return Codes(blocks, str(path), read_record(files[0]).model)


def _stored_blocks(path: Path) -> list[_StoredBlock]:
    """Return the blocks of one file; a file of the former format is one block, read at once."""
    with open_npz(path, "file of codes", REMEDY) as archive:
        if _format_of(archive) == FORMAT:
            block = _checked_block(archive, str(path))
            return [_StoredBlock(len(block), lambda: block)]
        check_format(_format_of(archive), BLOCKS)
        counts = np.asarray(archive["counts"])
        if counts.ndim != 1 or counts.dtype.kind != "i" or (counts < 1).any():
            raise ValueError("the counts of images in its blocks are wrong")
        for number in range(len(counts)):
            if block_name(number) not in archive.files:
                raise ValueError(f"block {number + 1} of {len(counts)} is missing")
    return [_stored_block(path, number, int(count)) for number, count in enumerate(counts)]


def _format_of(archive: Mapping[str, Array]) -> str | None:
    """Return the format that an archive names; None if it names none."""
    return str(archive["format"]) if "format" in archive else None


def _stored_block(path: Path, number: int, count: int) -> _StoredBlock:
    def load() -> _CodeBlock:
        with ExitStack() as opened:
            opened.enter_context(readable(path, "file of codes", REMEDY, ImageError))
            file = opened.enter_context(open_regular(path))
            with untrusted():
                inner = io.BytesIO(zipfile.ZipFile(file).read(block_name(number)))
                archive = opened.enter_context(np.load(inner, allow_pickle=False))
            check_members(archive)
            block = _checked_block(archive, str(path))
            if len(block) != count:
                raise ValueError(f"block {number + 1} has {len(block)} images; expected {count}")
        return block

    return _StoredBlock(count, load)


def _checked_block(archive: Mapping[str, Array], name: str) -> _CodeBlock:
    """Return the arrays of a block, after checking that they belong together; raises a ValueError
    otherwise."""
    check_format(_format_of(archive), FORMAT)
    with untrusted():  # arrays of any types and shapes
        arrays = expand(archive)
    arrays = {key: values for key, values in arrays.items() if KNOWN.fullmatch(key)}
    for key, values in arrays.items():
        expected = "U" if key == "names" else "biuf"
        if values.dtype.kind not in expected:
            raise ValueError(f"its {key} has values of type {values.dtype}")
    block = _CodeBlock(arrays, name)
    _check_images(arrays)
    for layer in ("features", *(f"where{k}" for k in range(1, block.depth + 1))):
        _check_map(layer, arrays)
    return block


def _check_images(arrays: Mapping[str, Array]) -> None:
    """Raise a ValueError unless the numbers of pixels and labels fit the images."""
    shapes = arrays["image_shape"]
    sizes = {
        "low": shapes.prod(1).sum(),
        "scale": shapes[:, 1:].prod(1).sum(),
        "labels": len(shapes),
    }
    for name, size in {**sizes, "names": len(shapes)}.items():
        if name in arrays and arrays[name].size != size:
            raise ValueError(
                f"{name} has {arrays[name].size:,} values; expected {size:,} for its images"
            )


def _check_map(layer: str, arrays: Mapping[str, Array]) -> None:
    """Raise a ValueError unless the places ascend within their grids, and have one finite value
    each."""
    shape = arrays[f"{layer}_shape"]
    indptr = arrays[f"{layer}_indptr"]
    indices = arrays[f"{layer}_indices"]
    values = [arrays[key] for key in _value_names(layer)]
    counts = np.diff(indptr)
    valid = (
        {part.dtype.kind for part in (shape, indptr, indices)} == {"i"}
        and shape.shape == arrays["image_shape"].shape == (len(counts), 3)
        and (counts >= 0).all()
        and indptr[0] == 0
        and all(len(part) == len(indices) == indptr[-1] for part in values)
        and _ascend_in_grids(indices, counts, shape.prod(1))
    )
    if shape.prod(1, dtype=float).sum() > max(_DENSE_LIMIT, _DENSE_RATIO * len(indices)):
        raise ValueError(
            f"{layer} has {len(indices):,} values for grids of"
            f" {shape.prod(1, dtype=float).sum():,.0f}"
        )
    if not valid or not all(np.isfinite(part).all() for part in values):
        raise ValueError(f"the arrays of {layer} contradict each other")


def _ascend_in_grids(indices: Array, counts: Array, grid_sizes: Array) -> bool:
    """Tell whether the places of every image ascend and lie in its grid."""
    inside = (indices >= 0) & (indices < np.repeat(grid_sizes, counts))
    images = np.repeat(np.arange(len(counts)), counts)
    ascending = (np.diff(indices) > 0) | (np.diff(images) > 0)
    return bool(inside.all() and ascending.all())


def _value_names(layer: str) -> tuple[str, ...]:
    if layer == "features":
        return ("features_values",)
    return (f"mu{layer[5:]}", f"gamma{layer[5:]}")
