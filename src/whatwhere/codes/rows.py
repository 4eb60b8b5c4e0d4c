"""Codes of images from their latents: which regions are kept, and the arrays of a block."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from whatwhere.codes.files import FORMAT
from whatwhere.codes.small_codes import CodeRows, effective, join, shrink
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet

Array = np.ndarray


def code_rows(
    model: DeconvNet,
    latents: Latents,
    shape: tuple[int, int, int],
    *,
    where: bool = True,
    exact: bool = False,
) -> CodeRows:
    """Return the codes in the latents of a batch of images.

    Parameters
    ----------
    shape
        shape of the images: channels, height, width
    where
        whether to keep the pooling variables, too
    exact
        whether to keep the variables of every region in use; otherwise only of regions with an
        effect
    """
    if not where:
        return CodeRows.of(latents, (), shape)
    sized = model.at(*shape[1:])
    with torch.no_grad():
        weights = sized.weights(latents.pooling_params)
        stages = sized.descend(latents.features, weights, to=1)
        used = [stage != 0 for stage in stages]
        if not exact:
            two = _two_elements(model)
            for k, stage in enumerate(stages[:-1]):
                used[k] = effective(stage, latents.pooling_params[k], two[k])
    return CodeRows.of(latents, used, shape)


def block_arrays(
    model: DeconvNet,
    parts: Sequence[CodeRows],
    *,
    exact: bool = False,
    more: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Return the arrays of a block of codes, which `codes.files.write_block` writes.

    Parameters
    ----------
    more
        arrays of all images: labels, names
    """
    arrays = {**join(parts), **(more or {})}
    if not exact:
        depth = len(parts[0].where)
        _, height, width = parts[0].shape
        reach = []
        for regions in model.at(height, width).regions[:depth]:
            sides = [regions.size[axis] for axis in regions.axes]
            reach.append(np.array([max(1, side - 1) / 2 for side in sides]))
        arrays = shrink(arrays, _two_elements(model)[:depth], reach)
    return {**arrays, "format": np.array(FORMAT)}


def _two_elements(model: DeconvNet) -> list[bool]:
    """Tell for each layer whether its regions have two elements along every axis."""
    layers = model.spec.layers
    return [layer.pool_shape == (2, 2) and layer.pool_maps in (1, 2) for layer in layers]
