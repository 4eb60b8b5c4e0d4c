"""The linear map of the filters: `reference.filter_map.FilterMap` with the engine's kernels.

A f is the reconstruction by a model whose filters of layer k are f, weighted by the mask. The
gradient adds up, for every element of z_k that is not zero, the part of the error below that its
filter covers.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.base import LinearMap
from whatwhere.engines.cpu.batch_solver import pack_images, pack_latents, pack_mask
from whatwhere.engines.cpu.convolution import convolve_up, element
from whatwhere.engines.cpu.layout import pack_filters, plan_state, round_up
from whatwhere.engines.cpu.pooling import compute_weights, element_offset, pool, weights_offset
from whatwhere.engines.cpu.records import Feature, Layer, Network, Target
from whatwhere.engines.cpu.start import copy_latents
from whatwhere.engines.cpu.steps import penalty_and_nonzeros, reconstruct
from whatwhere.engines.jit import Array, cached_jit, jit
from whatwhere.engines.jit.simd import LANES, any_nonzero, load, noinline, store
from whatwhere.engines.jit.vector_math import fma
from whatwhere.engines.threads import solver_pool
from whatwhere.model import Problem

CHUNK = 32  # images whose gradients a thread adds up in one call


class CPUFilterMap(LinearMap):
    """The linear map A from the filters of layer k to the reconstruction of a batch of images."""

    def __init__(self, problem: Problem, k: int) -> None:
        self.model = problem.model
        self.k = k
        self.latents = problem.latents
        self.images = pack_images(problem.images)
        self.masks = pack_mask(problem.mask, problem.images)
        _, _, height, width = problem.images.shape
        depth = len(self.latents.pooling_params)
        self.layers, self.state_size = plan_state(self.model, height, width, depth, ())

    def gradient(self, f: Tensor, *, subtract: bool) -> Tensor:
        """Keep the order of sums, which does not depend on the number of threads."""
        images = self.images if subtract else np.zeros_like(self.images)
        filters = pack_filters(self.model.with_filters(self.k, f), self.layers)
        C, B, K, L = f.shape
        maps_below = int(self.layers[self.k - 1]["maps"])
        maps = int(self.layers[self.k]["maps"])
        line = round_up(L * maps_below)

        def work(chunk: slice) -> Tensor:
            packed = pack_latents(self.latents[chunk]).numpy()
            total = f.new_zeros(maps * K * line)
            state = f.new_zeros(self.state_size).numpy()
            target = Target(images[chunk], self.masks[chunk])
            network = Network(self.layers, filters)
            _add_gradients(target, packed, state, network, self.k, total.numpy())
            return total

        chunks = [slice(i, i + CHUNK) for i in range(0, len(images), CHUNK)]
        with solver_pool() as pool:
            parts = list(pool.map(work, chunks))
        total = torch.stack(parts).sum(0, dtype=torch.float64).view(maps, K, line)
        total = total[:, :, : L * maps_below].reshape(maps, K, L, maps_below)[..., :C]
        return total[:B].permute(3, 0, 1, 2).to(f.dtype)


@cached_jit
def _add_gradients(source: str) -> Callable[..., None]:
    def _add_gradients(
        targets: Target, packed: Array, state: Array, network: Network, k: int, total: Array
    ) -> None:
        """Add Aᵀ (A f - M ⊙ image) of every image to `total`, [map, row, a line of columns and
        maps below]."""
        source  # noqa: B018
        layers, filters = network
        for n in range(len(packed)):
            copy_latents(packed[n], state, layers, True)
            for j in range(1, len(layers)):
                if not layers[j].unpooled:
                    compute_weights(state, layers[j])
            _, nonzeros = penalty_and_nonzeros(state, layers[len(layers) - 1], (0, 1.0))
            reconstruct(state, network, Target(targets.image[n], targets.mask[n]), nonzeros)
            for j in range(1, k):
                convolve_up(state, filters, layers[j - 1], layers[j])
                pool(state, layers[j])
            _correlate_nonzeros(state, layers[k - 1], layers[k], total)

    return _add_gradients


@jit
def _correlate_nonzeros(state: Array, below: Layer, layer: Layer, total: Array) -> None:
    """total(b, i, j, c) += Σ z_b(y, x) · error_c(y + i, x + j), over the z that are not zero."""
    noinline()
    C = below.maps
    length = len(total) // (layer.maps * layer.size_y)
    jump = (below.columns + 2 * below.border_x) * C
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = element_offset(layer, layer.features, row, column)
            w_at = weights_offset(layer, row, column)
            error = below.error + row * layer.stride_y * jump + column * layer.stride_x * C
            for first in range(0, layer.maps, LANES):
                if not any_nonzero(load(state, p_at + first)):
                    continue
                for b in range(first, first + LANES):
                    if state[p_at + b] != 0:
                        feature = Feature(state[p_at + b], w_at + b)
                        lines = FilterLines(b * layer.size_y * length, length)
                        _correlate_one(state, layer, feature, Error(error, jump, C), total, lines)


class Error(NamedTuple):
    """The error below a region: where it begins, and the distances of its rows and columns."""

    at: int
    row: int
    column: int


class FilterLines(NamedTuple):
    """Where the rows of a filter begin in the total, and their length: numbers beyond the end of a
    row, up to a whole vector, are unused."""

    at: int
    length: int


@jit
def _correlate_one(
    state: Array,
    layer: Layer,
    feature: Feature,
    error: Error,
    total: Array,
    lines: FilterLines,
) -> None:
    """Do the same for the elements of one region."""
    noinline()
    C = error.column
    length = lines.length
    if layer.pool_y == 2 and layer.pool_x == 2:
        # the usual size: all four elements at once, so that the total is loaded and stored once
        z00 = element(state, layer, feature, 0, 0)
        z01 = element(state, layer, feature, 0, 1)
        z10 = element(state, layer, feature, 1, 0)
        z11 = element(state, layer, feature, 1, 1)
        for i in range(layer.size_y):
            for x in range(0, length, LANES):
                at = error.at + i * error.row + x
                out = lines.at + i * length + x
                top = fma(z00, load(state, at), fma(z01, load(state, at + C), load(total, out)))
                at += error.row
                store(total, out, fma(z10, load(state, at), fma(z11, load(state, at + C), top)))
        return
    for dy in range(layer.pool_y):
        for dx in range(layer.pool_x):
            z = element(state, layer, feature, dy, dx)
            for i in range(layer.size_y if z != 0 else 0):
                for x in range(0, length, LANES):
                    at = error.at + (dy + i) * error.row + dx * C + x
                    out = lines.at + i * length + x
                    store(total, out, fma(z, load(state, at), load(total, out)))
