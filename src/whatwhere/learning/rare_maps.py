"""Maps that hardly any image uses take over images of the maps that most images use.

A map without features gets no gradient: its filter stays as it is, and with α < 1 a feature that is
0 seldom comes back. `split_rare` gives such a map the filter of another one, and that map's
features in the half of its images that the model explains worse. This changes no reconstruction,
but for the few features that the rare map had; then the two filters follow images of their own.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from whatwhere.latents import Latents
from whatwhere.learning.filter_problem import Reduce
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet
from whatwhere.model.sized import residual
from whatwhere.spec import EveryEpoch, LearningSpec


def split_rare(
    model: DeconvNet, k: int, data: TrainingData, learning: LearningSpec, reduce: Reduce
) -> DeconvNet:
    """Split the maps of layer k that most images use, one for each rare map; change the stored
    latents, and return the model with the new filters.

    Parameters
    ----------
    reduce
        adds up over the processes of a training
    """
    assert isinstance(learning.update, EveryEpoch)
    maps = model.spec.layers[k - 1].maps
    sums = torch.zeros(maps + 1, dtype=torch.float64, device=model.device)
    for _, latents, _ in data.stored():
        used = (latents.features != 0).flatten(2).any(2)
        sums[:maps] += used.sum(0)
        sums[maps] += len(used)
    *counts, images = reduce(sums).tolist()
    pairs = pairs_to_split(counts, learning.update.split_below * images)
    if not pairs:
        return model
    for batch in data.local_batches:
        target = data.read(batch)
        latents = without(data.store.read(batch), [to for to, _ in pairs])
        sized = model.at(*target.v.shape[2:])
        v_hat = sized.reconstruct(latents.features, sized.weights(latents.pooling_params))
        missed = residual(v_hat, target.v, target.mask).square().sum((1, 2, 3))
        data.store.write(batch, share_images(latents, pairs, missed))
    return copy_maps(model, k, pairs)


def pairs_to_split(counts: Sequence[float], few: float) -> list[tuple[int, int]]:
    """Return every map that at most `few` images use, with one of the maps that most images use,
    another one for each; only maps that two images or more use are split."""
    rare = [k for k, count in enumerate(counts) if count <= few]
    order = sorted(
        (k for k, count in enumerate(counts) if count > few and count >= 2),
        key=lambda k: -counts[k],
    )
    return list(zip(rare, order, strict=False))


def without(latents: Latents, maps: Sequence[int]) -> Latents:
    """Return the latents without the features of these maps."""
    p = latents.features.clone()
    p[:, maps] = 0
    return replace(latents, p=p)


def share_images(latents: Latents, pairs: Sequence[tuple[int, int]], missed: Tensor) -> Latents:
    """Move features from the second map of each pair to the first, in the half of the images with
    features there that are explained worse.

    Parameters
    ----------
    missed
        the squared error of each image, [N]
    """
    p = latents.features.clone()
    *lower, top = latents.pooling_params
    top = top.map(Tensor.clone)
    for to, source in pairs:
        users = (p[:, source] != 0).flatten(1).any(1)
        # the median of no image is NaN, and no image misses more
        moved = users & (missed >= missed[users].quantile(0.5)) if bool(users.any()) else users
        p[moved, to] = p[moved, source]
        p[moved, source] = 0
        for theta in top:
            theta[moved, :, to] = theta[moved, :, source]
    return replace(latents, p=p, pooling_params=(*lower, top))


def copy_maps(model: DeconvNet, k: int, pairs: Sequence[tuple[int, int]]) -> DeconvNet:
    """Return the model in which the first map of each pair at layer k has the filter and the
    connections of the second."""
    filters = [f.clone() for f in model.filters]
    connectivity = [connected.clone() for connected in model.connectivity]
    for to, source in pairs:
        for parts in (filters, connectivity):
            parts[k - 1][:, to] = parts[k - 1][:, source]
    return DeconvNet.from_parts(model.spec, filters, connectivity)
