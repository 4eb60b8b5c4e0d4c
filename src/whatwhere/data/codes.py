"""Sparse codes in an .npz file: collected image by image, read dense or sparse.

docs/reference/file_formats.md lists its arrays. Images may be of several sizes.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data.arrays import Archive, write_npz
from whatwhere.errors import ImageError
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap

Array = np.ndarray[Any, Any]
FORMAT = "whatwhere codes 1"
MOST_PLACES = 2**31  # of a code, so that indices are int32
KNOWN = re.compile(
    r"(features|where[1-9])_(shape|indptr|indices)|features_values|(mu|gamma)[1-9]|image_shape|low|scale|labels"
    "|names"
)
"""The names of the arrays; others are not read."""

DENSE_LIMIT, DENSE_RATIO = 1 << 30, 1000
"""Dense features may have this many bytes, or this many times those of the sparse ones."""


@dataclass(frozen=True, repr=False)
class Codes:
    """The codes of N images, which may be of several sizes.

    `codes[i]` is what and where of one image; `codes.features` are the features of all, dense.
    """

    arrays: Mapping[str, Array]
    name: str

    def __len__(self) -> int:
        return len(self.arrays["features_shape"])

    def __repr__(self) -> str:
        values = len(self.arrays["features_values"])
        where = "with" if self.depth else "without"
        return f"Codes({self.name!r}, {len(self):,} images, {values:,} non-zeros, {where} pooling variables)"

    @cached_property
    def depth(self) -> int:
        """Layers whose pooling variables the file has; 0 without `--where`."""
        return sum(name.startswith("mu") for name in self.arrays)

    @property
    def labels(self) -> Array | None:
        """int64 [N], if there are any."""
        return self.arrays.get("labels")

    @property
    def names(self) -> list[str] | None:
        """The files of the pictures, if the images were a folder."""
        return None if "names" not in self.arrays else [str(name) for name in self.arrays["names"]]

    @property
    def features(self) -> Array:
        """The top layer's features of all images, float32 [N, B, H, W]."""
        self.require_one_size("dense features")
        grid = self._shape("features_shape", 0)
        self._check_dense(len(self) * math.prod(grid))
        return np.asarray(torch.cat([self._map("features", i).dense() for i in range(len(self))]).view(-1, *grid))

    def __getitem__(self, image: int) -> SparseLatents:
        """What and where of one image."""
        image = range(len(self))[image]
        where = tuple(self._map(f"where{k}", image) for k in range(1, self.depth + 1))
        return SparseLatents(self._map("features", image), where, self._background(image))

    def latents(self, image: int) -> Latents:
        """What and where of one image, dense, as `infer` returns them."""
        code = self[image]
        self._check_dense(sum(part.values.shape[1] * math.prod(part.grid) for part in (code.features, *code.where)))
        return code.dense()

    def decode(self, model: Any, image: int) -> Tensor:
        """The image [C, H, W] that a code reconstructs with the model that made it, a `DeconvNet`."""
        if not self.depth:
            raise ImageError(f"{self.name}: without pooling variables it cannot be decoded; encode with --where")
        _, height, width = self._shape("image_shape", image)
        sized = model.at(height, width)
        grids = [regions.grid for regions in sized.regions[: self.depth]]
        if [self._shape(f"where{k}_shape", image) for k in range(1, self.depth + 1)] != grids:
            raise ImageError(f"{self.name}: codes of another model; give the one that encoded them")
        with torch.no_grad():
            reconstruction: Tensor = sized.decode(self.latents(image).to(sized.filters[0].device))[0]
        return reconstruction

    def _map(self, name: str, image: int) -> SparseMap:
        first, last = self.arrays[f"{name}_indptr"][image : image + 2]
        values = [torch.from_numpy(self.arrays[key][first:last]) for key in _value_names(name)]
        columns = torch.cat([v[:, None] if v.ndim == 1 else v for v in values], 1)
        indices = torch.from_numpy(self.arrays[f"{name}_indices"][first:last].astype(np.int64))
        return SparseMap(self._shape(f"{name}_shape", image), indices, columns)

    def _background(self, image: int) -> Background:
        C, H, W = self._shape("image_shape", image)
        before, parts = self.arrays["image_shape"][:image], {}
        for name, channels, first in (("low", C, before.prod(1).sum()), ("scale", 1, before[:, 1:].prod(1).sum())):
            if name in self.arrays:
                values = self.arrays[name].reshape(-1)[first : first + channels * H * W]
                parts[name] = torch.from_numpy(values.reshape(1, channels, H, W))
        return Background(**parts)

    def _shape(self, name: str, image: int) -> tuple[int, int, int]:
        a, b, c = (int(side) for side in self.arrays[name][image])
        return a, b, c

    def _check_dense(self, places: int) -> None:
        """Raise an ImageError for more memory than a file of this size can mean."""
        needed, stored = places * 4, sum(values.nbytes for values in self.arrays.values())
        if needed > max(DENSE_LIMIT, DENSE_RATIO * stored):
            raise ImageError(f"{self.name}: {stored:,} bytes of codes that would take {needed:,} bytes as dense arrays")

    def require_one_size(self, purpose: str) -> None:
        """Raise an ImageError for codes of images of several sizes."""
        if len(np.unique(self.arrays["features_shape"], axis=0)) != 1:
            raise ImageError(
                f"{self.name}: codes of several sizes; {purpose} needs one (codes[i] is that of one image)"
            )


class CodesWriter:
    """Collects the codes of images, and writes them to an .npz file.

    where   write the pooling variables and the background, too: all that decoding needs
    """

    def __init__(self, *, where: bool = False) -> None:
        self.where = where
        self._shapes: list[tuple[int, int, int]] = []  # of the images
        self._grids: dict[str, list[tuple[int, int, int]]] = {}
        self._parts: dict[str, list[Array]] = {}  # of each array, one for each image

    def __len__(self) -> int:
        return len(self._shapes)

    def add(self, code: SparseLatents, shape: tuple[int, int, int]) -> None:
        """The code of one image of this shape [C, H, W]."""
        self._shapes.append(shape)
        self._add_map("features", code.features)
        if self.where:
            for k, layer in enumerate(code.where, start=1):
                self._add_map(f"where{k}", layer)
            for name in ("low", "scale"):
                if (pixels := getattr(code.background, name)) is not None:
                    self._parts.setdefault(name, []).append(pixels.cpu().numpy().ravel())

    def save(self, path: Path, **more: Array) -> dict[str, list[int]]:
        """Write the file, with these arrays besides; returns the shapes of its arrays."""
        arrays = {name: np.concatenate(parts) for name, parts in self._parts.items()} | more
        for name, grids in self._grids.items():
            lengths = [len(part) for part in self._parts[f"{name}_indices"]]
            arrays[f"{name}_shape"] = np.array(grids, np.int64)
            arrays[f"{name}_indptr"] = np.cumsum([0, *lengths], dtype=np.int64)
        arrays |= {"image_shape": np.array(self._shapes, np.int64), "format": np.array(FORMAT)}
        write_npz(path, arrays)
        return {name: list(values.shape) for name, values in arrays.items()}

    def _add_map(self, name: str, layer: SparseMap) -> None:
        """The places of one image in ascending order, and their values, which are several arrays of equal width."""
        if math.prod(layer.grid) >= MOST_PLACES:
            raise ImageError(f"a code of {layer.grid} was given; expected fewer than {MOST_PLACES:,} places")
        indices, values, keys = layer.indices.cpu().numpy(), layer.values.cpu().numpy(), _value_names(name)
        order = np.argsort(indices)
        columns = np.split(values[order], len(keys), axis=1)
        columns = [part[:, 0] for part in columns] if name == "features" else columns
        for key, part in zip((f"{name}_indices", *keys), (indices[order].astype(np.int32), *columns), strict=True):
            self._parts.setdefault(key, []).append(part)
        self._grids.setdefault(name, []).append(layer.grid)


def load_codes(path: str | os.PathLike[str]) -> Codes:
    """The codes in an .npz file that `whatwhere encode` wrote.

    path  of the file

    >>> from whatwhere.cli import app
    >>> np.save("three.npy", ww.data.load("digits").pixels[:3])
    >>> command = ["encode", "mnist", "three.npy", "--out", "codes.npz", "--quiet"]
    >>> app([*command, "--set", "inference.steps=2"], standalone_mode=False)
    codes.npz: ...
    >>> ww.load_codes("codes.npz").features.shape
    (3, 48, 10, 10)
    """
    file = Path(path)
    try:
        archive = Archive(file)
        if "format" not in archive or str(archive["format"][...]) != FORMAT:
            raise ImageError(f"{path}: not a file of sparse codes; expected one that `whatwhere encode` wrote")
        names = [name for name in archive if KNOWN.fullmatch(name)]
        needed, size = archive.nbytes(names), file.stat().st_size
        _require(needed <= size, f"its arrays have {needed:,} bytes, the file {size:,}: it was compressed")
        arrays: dict[str, Array] = {name: archive[name][...] for name in names}
        depth = sum(name.startswith("mu") for name in arrays)
        _check_images(arrays)
        for layer in ("features", *(f"where{k}" for k in range(1, depth + 1))):
            _check_map(layer, arrays)
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except KeyError as error:
        raise ImageError(f"{path}: not a valid file of codes: {error} is missing; encode the images again") from None
    except _Invalid as error:
        raise ImageError(f"{path}: not a valid file of codes: {error}; copy or encode it again") from None
    return Codes(arrays, str(path))


class _Invalid(Exception):
    """What is wrong with the arrays of a file."""


def _require(valid: object, problem: str) -> None:
    if not valid:
        raise _Invalid(problem)


def _check_images(arrays: Mapping[str, Array]) -> None:
    """The shapes of the images, and what belongs to their pixels."""
    shapes = arrays["image_shape"]
    _check_shapes("image_shape", shapes, len(shapes) if shapes.ndim else 0)
    pixels = {"low": shapes.prod(1), "scale": shapes[:, 1:].prod(1)}
    for name, sizes in pixels.items():
        if name in arrays:
            _require(arrays[name].size == sizes.sum(), f"{name} is not of the size of the images")
            _require(arrays[name].dtype.kind == "f" and np.isfinite(arrays[name]).all(), f"{name} is not finite floats")
    for name, kind in (("labels", "i"), ("names", "U")):
        if name in arrays:
            valid = arrays[name].shape == (len(shapes),) and arrays[name].dtype.kind == kind
            _require(valid, f"{name} {arrays[name].shape} of {arrays[name].dtype} for {len(shapes)} images")


def _check_map(layer: str, arrays: Mapping[str, Array]) -> None:
    """Places in ascending order inside their grids, and as many values, all of them finite."""
    shape, indptr, indices = (arrays[f"{layer}_{part}"] for part in ("shape", "indptr", "indices"))
    count = len(arrays["image_shape"])
    _check_shapes(f"{layer}_shape", shape, count)
    _require(indptr.shape == (count + 1,) and indptr.dtype == np.int64, f"{layer}_indptr is not int64 [{count + 1}]")
    _require(indices.ndim == 1 and indices.dtype == np.int32, f"{layer}_indices is not int32 [n]")
    lengths = np.diff(indptr)
    _require(indptr[0] == 0 and indptr[-1] == len(indices) and (lengths >= 0).all(), f"{layer}_indptr is not ascending")
    inside = (indices >= 0) & (indices < np.repeat(shape.prod(1), lengths))
    _require(inside.all(), f"{layer}_indices are outside their grid")
    image = np.repeat(np.arange(count), lengths)
    ascending = (np.diff(indices.astype(np.int64)) > 0) | (np.diff(image) > 0)
    _require(ascending.all(), f"{layer}_indices are not in ascending order, or double")
    for key in _value_names(layer):
        values = arrays[key]
        _require(values.dtype.kind == "f" and np.isfinite(values).all(), f"{key} is not finite floats")
        rank = 1 if layer == "features" else 2
        _require(values.ndim == rank and len(values) == len(indices), f"{key} {values.shape} for {len(indices)} places")
    if layer != "features":
        mu, gamma = (arrays[key] for key in _value_names(layer))
        _require(mu.shape == gamma.shape and 1 <= mu.shape[1] <= 3, f"mu {mu.shape} and gamma {gamma.shape}")
        _require((gamma >= 0).all(), f"gamma of {layer} is negative")


def _check_shapes(name: str, shapes: Array, count: int) -> None:
    _require(shapes.shape == (count, 3) and count and shapes.dtype == np.int64, f"{name} is not int64 [{count}, 3]")
    _require((shapes > 0).all() and (shapes < MOST_PLACES).all(), f"{name} has sides out of range")
    places = shapes.astype(np.float64).prod(1)  # which no product overflows
    _require((places < MOST_PLACES).all(), f"{name} has more than {MOST_PLACES:,} places")


def _value_names(layer: str) -> tuple[str, ...]:
    return ("features_values",) if layer == "features" else (f"mu{layer[5:]}", f"gamma{layer[5:]}")
