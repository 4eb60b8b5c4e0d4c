"""Codes that `whatwhere encode` wrote: sparse in the file, dense or sparse in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from whatwhere.data.codes_writer import FORMAT
from whatwhere.errors import ImageError, MissingExtra
from whatwhere.latents import Background, Latents, SparseLatents, SparseMap

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = np.ndarray[Any, Any]


class Model(Protocol):
    """What turns latents back into images: a `DeconvNet`."""

    def at(self, height: int, width: int) -> Any: ...


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
        grid = self._one_grid("dense features")
        return np.asarray(torch.cat([self._map("features", i).dense() for i in range(len(self))]).view(-1, *grid))

    def to_scipy(self) -> csr_array:
        """The features as a sparse matrix of SciPy, [N, B · H · W]."""
        try:
            from scipy.sparse import csr_array
        except ImportError:
            raise MissingExtra("scipy", "sklearn", "a sparse matrix of codes") from None
        size = int(np.prod(self._one_grid("a matrix")))
        parts = (self.arrays[f"features_{part}"] for part in ("values", "indices", "indptr"))
        return csr_array(tuple(parts), shape=(len(self), size))

    def __getitem__(self, image: int) -> SparseLatents:
        """What and where of one image."""
        image = range(len(self))[image]
        where = tuple(self._map(f"where{k}", image) for k in range(1, self.depth + 1))
        return SparseLatents(self._map("features", image), where, self._background(image))

    def latents(self, image: int) -> Latents:
        """What and where of one image, dense, as `infer` returns them."""
        return self[image].dense()

    def decode(self, model: Model, image: int) -> Tensor:
        """The image [C, H, W] that a code reconstructs with the model that made it."""
        if not self.depth:
            raise ImageError(f"{self.name}: without pooling variables it cannot be decoded; encode with --where")
        _, height, width = self._shape("image_shape", image)
        with torch.no_grad():
            reconstruction: Tensor = model.at(height, width).decode(self.latents(image))[0]
        return reconstruction

    def _map(self, name: str, image: int) -> SparseMap:
        first, last = self.arrays[f"{name}_indptr"][image : image + 2]
        keys = ("features_values",) if name == "features" else (f"mu{name[5:]}", f"gamma{name[5:]}")
        values = [torch.from_numpy(self.arrays[key][first:last]) for key in keys]
        columns = torch.cat([v[:, None] if v.ndim == 1 else v for v in values], 1)
        indices = torch.from_numpy(self.arrays[f"{name}_indices"][first:last].astype(np.int64))
        return SparseMap(self._shape(f"{name}_shape", image), indices, columns)

    def _background(self, image: int) -> Background:
        shapes = self.arrays["image_shape"]
        parts: dict[str, Tensor] = {}
        for name in ("low", "scale"):
            if name in self.arrays:
                C, H, W = self._shape("image_shape", image)
                channels = C if name == "low" else 1
                before = shapes[:image].prod(1) if name == "low" else shapes[:image, 1:].prod(1)
                first = int(before.sum())
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
                f"{self.name}: codes of several sizes; {purpose} needs one (codes[i] is that of one image)"
            )

    def _one_grid(self, purpose: str) -> tuple[int, int, int]:
        self.require_one_size(purpose)
        return self._shape("features_shape", 0)


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
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        raise ImageError(f"{path}: cannot be read: {error.strerror or error}") from None
    except Exception as error:  # whatever zipfile and numpy may raise on damaged bytes
        raise ImageError(f"{path}: not a valid .npz file ({error}); copy or encode it again") from None
    if str(arrays.get("format", "no format")) != FORMAT:
        raise ImageError(f"{path}: not a file of sparse codes; expected one that `whatwhere encode` wrote ({FORMAT})")
    check_codes(str(path), arrays)
    return Codes(arrays, str(path))


def check_codes(name: str, arrays: Mapping[str, Array]) -> None:
    """Raise an ImageError for arrays that do not belong together."""
    layers = ["features", *(f"where{mu[2:]}" for mu in arrays if mu.startswith("mu"))]
    try:
        for layer in layers:
            shape, indptr, indices = (arrays[f"{layer}_{part}"] for part in ("shape", "indptr", "indices"))
            keys = ("features_values",) if layer == "features" else (f"mu{layer[5:]}", f"gamma{layer[5:]}")
            fits = indptr[0] == 0 and indptr[-1] == len(indices) and (np.diff(indptr) >= 0).all()
            fits &= len(indptr) == len(shape) + 1 == len(arrays["image_shape"]) + 1
            fits &= all(len(arrays[key]) == len(indices) for key in keys)
            places = np.repeat(shape.prod(1), np.diff(indptr))
            if not (fits and (indices >= 0).all() and (indices < places).all()):
                raise ValueError(f"the arrays of {layer} do not belong together")
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise ImageError(f"{name}: not a valid file of codes ({error}); copy or encode it again") from None
