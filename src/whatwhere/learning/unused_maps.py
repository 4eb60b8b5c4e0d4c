"""Maps that no image uses take over images of the maps that most images use.

A map without features gets no gradient: its filter stays as it is, and with α < 1 a feature that is
0 seldom comes back. `split_unused` gives such a map the filter of another one, and that map's
features in the half of its images that the model explains worse. This changes no reconstruction
and no cost; then the two filters follow images of their own.
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


def split_unused(
    model: DeconvNet, k: int, data: TrainingData, unused: Sequence[int], reduce: Reduce
) -> DeconvNet:
    """Split the maps of layer k that most images use, one for each unused map; change the stored
    latents, and return the model with the new filters.

    unused  maps that no image of any process uses
    reduce  adds up over the processes of a training
    """
    counts = torch.zeros(model.spec.layers[k - 1].maps, dtype=torch.float64, device=model.device)
    for _, latents, _ in data.stored():
        counts += (latents.features != 0).flatten(2).any(2).sum(0)
    pairs = list(zip(unused, busiest(reduce(counts), len(unused)), strict=False))
    for batch in data.local_batches:
        target = data.read(batch)
        latents = data.store.read(batch)
        sized = model.at(*target.v.shape[2:])
        v_hat = sized.reconstruct(latents.features, sized.weights(latents.pooling_params))
        missed = residual(v_hat, target.v, target.mask).square().sum((1, 2, 3))
        data.store.write(batch, share_images(latents, pairs, missed))
    return copy_maps(model, k, pairs)


def busiest(counts: Tensor, number: int) -> list[int]:
    """Return the maps that most images use, at most this many, each with two images or more."""
    order = counts.argsort(descending=True, stable=True)[:number]
    return [int(map_) for map_ in order if counts[map_] >= 2]


def share_images(latents: Latents, pairs: Sequence[tuple[int, int]], missed: Tensor) -> Latents:
    """Move features from the second map of each pair to the first, in the half of the images with
    features there that are explained worse.

    missed  the squared error of each image, [N]
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
