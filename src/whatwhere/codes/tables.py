"""Codes as tables of other packages: pandas, one row a feature, and xarray, dense with names of
axes."""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from whatwhere.errors import MissingExtra

if TYPE_CHECKING:
    import pandas
    import xarray

    from whatwhere.codes.files import Codes


def to_pandas(codes: "Codes") -> "pandas.DataFrame":
    """Return a row for every feature that is not 0: its image, place and value, and where it is in
    its region, if the codes have pooling variables of the top layer."""
    pandas = _package("pandas", "a table of codes")
    parts: dict[str, list[np.ndarray]] = {}

    def add(name: str, values: ArrayLike) -> None:
        parts.setdefault(name, []).append(np.asarray(values))

    for image in range(len(codes)):
        code = codes[image]
        features = code.features
        _, height, width = features.grid
        places = features.indices.numpy()
        add("image", np.full(len(places), image))
        add("map", places // (height * width))
        add("row", places // width % height)
        add("column", places % width)
        add("value", features.values[:, 0])
        if codes.depth:
            top = code.where[-1].dense().flatten(1)[:, features.indices]
            axes = ("map", "row", "column")[-len(top) // 2 :]
            names = [f"{variable}_{axis}" for variable in ("mu", "gamma") for axis in axes]
            for name, values in zip(names, top, strict=True):
                add(name, values)
    table = pandas.DataFrame({name: np.concatenate(values) for name, values in parts.items()})
    for name, of_images in (("name", codes.names), ("label", codes.labels)):
        if of_images is not None:
            table[name] = np.asarray(of_images)[table["image"]]
    return table


def to_xarray(codes: "Codes") -> "xarray.DataArray":
    """Return the dense features as a `DataArray` with the axes image, map, row and column, and
    names and labels as coordinates of the images."""
    xarray = _package("xarray", "an array of codes")
    of_images = {"name": codes.names, "label": codes.labels}
    coordinates = {
        name: ("image", np.asarray(values))
        for name, values in of_images.items()
        if values is not None
    }
    axes = ("image", "map", "row", "column")
    return xarray.DataArray(codes.features, dims=axes, coords=coordinates, name="features")


def _package(name: str, purpose: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtra(name, purpose) from None
