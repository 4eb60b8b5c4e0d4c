"""The linear map of the filters: `inference.filter_map.FilterMap` with the engine's kernels.

A f is the reconstruction by a model whose filters of layer k are f, weighted by the mask. The
gradient adds up, for every element of z_k that is not zero, the part of the error below that its
filter covers.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.engines.base import LinearMap
from whatwhere.engines.cpu.batch_solver import pack_images, pack_latents, pack_mask
from whatwhere.engines.cpu.convolution import convolve_up, element
from whatwhere.engines.cpu.layout import pack_filters, plan_state, round_up
from whatwhere.engines.cpu.pooling import compute_weights, element_offset, pool, weights_offset
from whatwhere.engines.cpu.records import Layer, Network, Target
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
        self.model, self.k, self.latents, images = problem.model, k, problem.latents, problem.images
        self.images, self.masks = pack_images(images), pack_mask(problem.mask, images)
        self.layers, self.state_size = plan_state(
            self.model, images.shape[2], images.shape[3], len(self.latents.pooling_params), ()
        )

    def gradient(self, f: Tensor, *, subtract: bool) -> Tensor:
        """The order of sums does not depend on the number of threads."""
        images = self.images if subtract else np.zeros_like(self.images)
        filters = pack_filters(self.model.with_filters(self.k, f), self.layers)
        C, B, K, L = f.shape
        maps_below, maps = int(self.layers[self.k - 1]["maps"]), int(self.layers[self.k]["maps"])
        line = round_up(L * maps_below)

        def work(chunk: slice) -> Tensor:
            packed = pack_latents(self.latents[chunk])
            total, state = f.new_zeros(maps * K * line), f.new_zeros(self.state_size)
            target = Target(images[chunk], self.masks[chunk])
            add_gradients(
                target,
                packed.numpy(),
                state.numpy(),
                Network(self.layers, filters),
                self.k,
                total.numpy(),
            )
            return total

        with solver_pool() as pool:
            parts = list(
                pool.map(work, (slice(i, i + CHUNK) for i in range(0, len(images), CHUNK)))
            )
        total = torch.stack(parts).sum(0, dtype=torch.float64).view(maps, K, line)
        total = total[:, :, : L * maps_below].reshape(maps, K, L, maps_below)[..., :C]
        return total[:B].permute(3, 0, 1, 2).to(f.dtype)


@cached_jit
def add_gradients(source: str) -> Any:
    def add_gradients(
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
            correlate_nonzeros(state, layers[k - 1], layers[k], total)

    return add_gradients


@jit
def correlate_nonzeros(state: Array, below: Layer, layer: Layer, total: Array) -> None:
    """total(b, i, j, c) += Σ z_b(y, x) · error_c(y + i, x + j), over the z that are not zero."""
    noinline()
    C, line = below.maps, len(total) // (layer.maps * layer.size_y)
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
                        feature, to = (state[p_at + b], w_at + b), b * layer.size_y * line
                        correlate_one(state, layer, feature, (error, jump, C), total, (to, line))


@jit
def correlate_one(
    state: Array,
    layer: Layer,
    feature: tuple[float, int],
    signal: tuple[int, int, int],
    total: Array,
    line: tuple[int, int],
) -> None:
    """The same for the elements of one region, `feature` = (p, where its weights are).

    signal = (where the error begins, from row to row, from column to column); line = (where the
    total begins, its length): numbers beyond the end of a row, up to a whole vector, are unused.
    """
    noinline()
    K, (error, jump, C), (to, length) = layer.size_y, signal, line
    if layer.pool_y == 2 and layer.pool_x == 2:
        z00, z01 = element(state, layer, feature, 0, 0), element(state, layer, feature, 0, 1)
        z10, z11 = element(state, layer, feature, 1, 0), element(state, layer, feature, 1, 1)
        for i in range(K):
            for x in range(0, length, LANES):
                at, out = error + i * jump + x, to + i * length + x
                top = fma(z00, load(state, at), fma(z01, load(state, at + C), load(total, out)))
                at += jump
                store(total, out, fma(z10, load(state, at), fma(z11, load(state, at + C), top)))
        return
    for dy in range(layer.pool_y):
        for dx in range(layer.pool_x):
            z = element(state, layer, feature, dy, dx)
            for i in range(K if z != 0 else 0):
                for x in range(0, length, LANES):
                    at, out = error + (dy + i) * jump + dx * C + x, to + i * length + x
                    store(total, out, fma(z, load(state, at), load(total, out)))
