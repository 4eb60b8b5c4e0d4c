"""Names of the columns of descriptors, which say what each number measures: the layer, the map and
the place."""

from __future__ import annotations

import numpy as np

from whatwhere.classification.anywhere import scales_of
from whatwhere.classification.descriptors import patch_elements, patch_sizes
from whatwhere.classification.descriptors import strides as positions
from whatwhere.model import DeconvNet
from whatwhere.spec import DescriptorSpec


def column_names(
    model: DeconvNet, height: int, width: int, spec: DescriptorSpec | None = None
) -> list[str]:
    """Return a name for every column of the descriptors of images of one size.

    `layer2_map7_patch3x1_cell3x4` is the cell that begins in row 3 and column 4 of map 7, scaled
    with the patch that begins in row 3 and column 1. `layer2_map7_row3_column4` is one feature, in
    descriptors of raw features. `layer1_map7_scale2` is the strength of map 7 anywhere in an image
    of half the size. Maps, rows and columns count from 0, as in `solution.features`.

    Parameters
    ----------
    model
        the model
    height, width
        size of the images
    spec
        how features are described; None means `DescriptorSpec()`. 'auto' places count as 'keep'

    Examples
    --------
    >>> names = column_names(ww.load("mnist"), 28, 28)
    >>> len(names), names[0], names[-1]
    (4800, 'layer2_map0_patch0x0_cell0x0', 'layer2_map47_patch4x4_cell7x7')
    """
    spec = spec or DescriptorSpec()
    regions = model.at(height, width).regions
    layers = spec.layers or (model.spec.depth,)
    names = []
    if spec.where != "forget":
        names += [name for k in layers for name in _layer_names(k, regions[k - 1].grid, spec)]
    if spec.where in ("forget", "both"):
        maps = range(model.spec.layers[0].maps)
        names += [f"layer1_map{b}_scale{s}" for s in scales_of(height, width) for b in maps]
    return names


def _layer_names(layer: int, grid: tuple[int, int, int], spec: DescriptorSpec) -> list[str]:
    """Return the names of the columns of one layer, whose features are [maps, rows, columns]."""
    maps, rows, columns = grid
    if spec.raw:
        places = np.ndindex(maps, rows, columns)
        return [f"layer{layer}_map{b}_row{y}_column{x}" for b, y, x in places]
    patch, stride, cell = patch_sizes(maps, (rows, columns), spec, layer)
    elements = patch_elements(maps, (rows, columns), patch, stride, cell, "cpu")
    extents = [extent - min(cell, patch, extent) + 1 for extent in (rows, columns)]
    b, y, x = np.unravel_index(elements.numpy(), (maps, *extents))
    tops, lefts = (
        positions(extent - min(patch, extent), stride).tolist() for extent in (rows, columns)
    )
    return [
        f"layer{layer}_map{b[i, j, n]}_patch{top}x{left}_cell{y[i, j, n]}x{x[i, j, n]}"
        for i, top in enumerate(tops)
        for j, left in enumerate(lefts)
        for n in range(elements.shape[2])
    ]
