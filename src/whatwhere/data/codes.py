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

from whatwhere.data.arrays import open_npz, write_npz
from whatwhere.errors import ImageError
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap

Array = np.ndarray[Any, Any]
FORMAT = "whatwhere codes 1"
MOST_PLACES = 2**31  # of a code, so that indices are int32
# places that a file may mean: so many, or so many for each of its values
DENSE_LIMIT, DENSE_RATIO = (
    1 << 28,
    1000,
)
KNOWN = re.compile(
    r"(features|where[1-9])_(shape|indptr|indices)|features_values|(mu|gamma)[1-9]|image_shape|low|scale|labels"
    "|names"
)
"""The names of the arrays; others are not read."""


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
        return (
            f"Codes({self.name!r}, {len(self):,} images, {values:,} non-zeros, {where} pooling"
            " variables)"
        )

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
        return np.asarray(
            torch.cat([self._map("features", i).dense() for i in range(len(self))]).view(-1, *grid)
        )

    def __getitem__(self, image: int) -> SparseLatents:
        """What and where of one image."""
        image = range(len(self))[image]
        where = tuple(self._map(f"where{k}", image) for k in range(1, self.depth + 1))
        return SparseLatents(self._map("features", image), where, self._background(image))

    def latents(self, image: int) -> Latents:
        """What and where of one image, dense, as `infer` returns them."""
        return self[image].dense()

    def decode(self, model: Any, image: int) -> Tensor:
        """The image [C, H, W] that a code reconstructs with the model that made it, a
        `DeconvNet`."""
        if not self.depth:
            raise ImageError(
                f"{self.name}: without pooling variables it cannot be decoded; encode with --where"
            )
        _, height, width = self._shape("image_shape", image)
        sized = model.at(height, width)
        grids = [regions.grid for regions in sized.regions[: self.depth]]
        if [self._shape(f"where{k}_shape", image) for k in range(1, self.depth + 1)] != grids:
            raise ImageError(f"{self.name}: codes of another model; give the one that encoded them")
        with torch.no_grad():
            reconstruction: Tensor = sized.decode(self.latents(image).to(sized.filters[0].device))[
                0
            ]
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

    def require_one_size(self, purpose: str) -> None:
        """Raise an ImageError for codes of images of several sizes."""
        if len(np.unique(self.arrays["features_shape"], axis=0)) != 1:
            raise ImageError(
                f"{self.name}: codes of several sizes; {purpose} needs one (codes[i] is that of one"
                " image)"
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
        """The places of one image in ascending order, and their values, which are several arrays
        of equal width."""
        if math.prod(layer.grid) >= MOST_PLACES:
            raise ImageError(
                f"a code of {layer.grid} was given; expected fewer than {MOST_PLACES:,} places"
            )
        indices, values, keys = (
            layer.indices.cpu().numpy(),
            layer.values.cpu().numpy(),
            _value_names(name),
        )
        order = np.argsort(indices)
        columns = np.split(values[order], len(keys), axis=1)
        columns = [part[:, 0] for part in columns] if name == "features" else columns
        for key, part in zip(
            (f"{name}_indices", *keys), (indices[order].astype(np.int32), *columns), strict=True
        ):
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
    with open_npz(
        Path(path), "file of codes", "copy it again, or encode the images again"
    ) as archive:
        if str(archive.get("format")) != FORMAT:
            raise ValueError("it was not written by `whatwhere encode`")
        arrays: dict[str, Array] = {
            name: np.asarray(archive[name]) for name in archive if KNOWN.fullmatch(name)
        }
        codes = Codes(arrays, str(path))
        _check_images(arrays)
        for layer in ("features", *(f"where{k}" for k in range(1, codes.depth + 1))):
            _check_map(layer, arrays)
    return codes


def _check_images(arrays: Mapping[str, Array]) -> None:
    """Raise a ValueError unless as many pixels and labels are there as the images have."""
    shapes = arrays["image_shape"]
    sizes = {
        "low": shapes.prod(1).sum(),
        "scale": shapes[:, 1:].prod(1).sum(),
        "labels": len(shapes),
    }
    for name, size in {**sizes, "names": len(shapes)}.items():
        if name in arrays and arrays[name].size != size:
            raise ValueError(
                f"{name} has {arrays[name].size:,} values, where the images have {size:,}"
            )


def _check_map(layer: str, arrays: Mapping[str, Array]) -> None:
    """Raise a ValueError unless the places ascend within their grids, and have one finite value
    each."""
    shape, indptr, indices = (arrays[f"{layer}_{part}"] for part in ("shape", "indptr", "indices"))
    values, counts = [arrays[key] for key in _value_names(layer)], np.diff(indptr)
    valid = (
        {part.dtype.kind for part in (shape, indptr, indices)} == {"i"}
        and shape.shape == arrays["image_shape"].shape == (len(counts), 3)
        and (counts >= 0).all()
        and indptr[0] == 0
        and all(len(part) == len(indices) == indptr[-1] for part in values)
        and ((indices >= 0) & (indices < np.repeat(shape.prod(1), counts))).all()
        and (
            (np.diff(indices) > 0) | (np.diff(np.repeat(np.arange(len(counts)), counts)) > 0)
        ).all()
    )
    if shape.prod(1, dtype=float).sum() > max(DENSE_LIMIT, DENSE_RATIO * len(indices)):
        raise ValueError(
            f"{layer} has {len(indices):,} values for grids of"
            f" {shape.prod(1, dtype=float).sum():,.0f}"
        )
    if not valid or not all(np.isfinite(part).all() for part in values):
        raise ValueError(f"the arrays of {layer} do not belong together")


def _value_names(layer: str) -> tuple[str, ...]:
    return ("features_values",) if layer == "features" else (f"mu{layer[5:]}", f"gamma{layer[5:]}")
