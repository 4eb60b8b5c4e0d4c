"""The pooling variables of one image: their weights, and their gradient step, LANES maps at a time."""

from __future__ import annotations

from typing import Any

from whatwhere.inference.engines.cpu.passes import Array, Layer, compiled, place
from whatwhere.inference.engines.cpu.simd import (
    LANES,
    apart,
    fma,
    larger,
    load,
    nearest,
    power_of_two,
    smaller,
    some_nonzero,
    splat,
    square_root,
    store,
)

TINY = 2e-35  # what `exponential` takes for zero


@compiled
def exponential(state: Array, a: Any) -> Any:
    """e^a of a vector with a ≤ 0: 2^n e^r with a series in the small r; exactly zero below TINY."""
    a = larger(a, splat(state, -80.0))
    n = nearest(a * 1.4426950408889634)
    r = (a - n * 0.693145751953125) - n * 1.42860682030941723212e-6  # ln 2 in two parts, the first exact
    e = fma(splat(state, 1 / 3628800), r, splat(state, 1 / 362880))
    e = fma(e, r, splat(state, 1 / 40320))
    e = fma(e, r, splat(state, 1 / 5040))
    e = fma(e, r, splat(state, 1 / 720))
    e = fma(e, r, splat(state, 1 / 120))
    e = fma(e, r, splat(state, 1 / 24))
    e = fma(e, r, splat(state, 1 / 6))
    e = fma(e, r, splat(state, 1 / 2))
    e = fma(e, r, splat(state, 1.0))
    e = fma(e, r, splat(state, 1.0))
    return larger(e * power_of_two(n) - TINY, splat(state, 0))


@compiled
def weigh_axis(state: Array, mu_at: int, gamma_at: int, w_at: int, B: int, s: int, inside: int) -> None:
    """w = √q, q = softmax(-γ (x - μ)² / 2), over the first `inside` of s elements: those that lie in the map."""
    apart()
    mu, quarter = load(state, mu_at), load(state, gamma_at) * -0.25
    most = splat(state, -1e30)
    for i in range(inside):
        d = splat(state, i - (s - 1) / 2) - mu
        most = larger(most, quarter * d * d)
    norm = splat(state, 0)
    for i in range(inside):
        d = splat(state, i - (s - 1) / 2) - mu
        w = exponential(state, quarter * d * d - most)
        norm = fma(w, w, norm)
        store(state, w_at + i * B, w)
    scale = splat(state, 1) / square_root(norm)
    for i in range(s):
        store(state, w_at + i * B, load(state, w_at + i * B) * scale if i < inside else splat(state, 0))


@compiled
def weigh_region(state: Array, layer: Layer, row: int, column: int, b: int) -> None:
    """The weights of LANES regions, one in each map from b on."""
    B, s = layer.maps, layer.pool
    region = row * layer.columns + column
    theta, w = region * 2 * B + b, layer.weights + region * 2 * s * B + b
    weigh_axis(state, layer.mu + theta, layer.gamma + theta, w, B, s, min(s, layer.height - row * s))
    weigh_axis(state, layer.mu + theta + B, layer.gamma + theta + B, w + s * B, B, s, min(s, layer.width - column * s))


@compiled
def weigh(state: Array, layer: Layer) -> None:
    for row in range(layer.rows):
        for column in range(layer.columns):
            for b in range(0, layer.maps, LANES):
                weigh_region(state, layer, row, column, b)


@compiled
def step_axis(
    state: Array, mu_at: int, gamma_at: int, w_at: int, z_at: int, along: int, other_w_at: int, across: int,
    p: Any, B: int, s: int, step: float, gamma_min: float, gamma_max: float,
) -> None:  # fmt: skip
    """One axis of `ops.pooling.pooling_gradient`, the step and the bounds; weights stay as they were."""
    apart()
    mu, gamma = load(state, mu_at), load(state, gamma_at)
    mean, variance = splat(state, 0), splat(state, 0)
    for i in range(s):
        w = load(state, w_at + i * B)
        d = splat(state, i - (s - 1) / 2) - mu
        mean = fma(w * w, d, mean)
        variance = fma(w * w, d * d, variance)
    d_mu, d_gamma = splat(state, 0), splat(state, 0)
    for i in range(s):
        slope = splat(state, 0)
        for j in range(s):
            slope = fma(load(state, z_at + i * along + j * across), load(state, other_w_at + j * B), slope)
        slope = slope * load(state, w_at + i * B)
        d = splat(state, i - (s - 1) / 2) - mu
        d_mu = fma(slope, d - mean, d_mu)
        d_gamma = fma(slope, variance - d * d, d_gamma)
    reach = splat(state, (s - 1) / 2)
    mu = mu - d_mu * gamma * p * (step / 2)
    gamma = gamma - d_gamma * p * (step / 4)
    store(state, mu_at, smaller(larger(mu, reach * -1), reach))
    store(state, gamma_at, smaller(larger(gamma, splat(state, gamma_min)), splat(state, gamma_max)))


@compiled
def step_pooling(state: Array, layer: Layer, step: float, gamma_min: float, gamma_max: float, everywhere: bool) -> None:
    """θ ← bound(θ - step ∇θ), and the weights anew, where p̂ ≠ 0: elsewhere the gradient is zero.

    `everywhere` is for the first step: variables that were handed in may lie outside their bounds.
    """
    B, s = layer.maps, layer.pool
    for row in range(layer.rows):
        for column in range(layer.columns):
            p_at = place(layer, layer.features, row, column)
            region = row * layer.columns + column
            for b in range(0, B, LANES):
                p = load(state, p_at + b)
                if not (everywhere or some_nonzero(p)):
                    continue
                theta, w = region * 2 * B + b, layer.weights + region * 2 * s * B + b
                mu, gamma = layer.mu + theta, layer.gamma + theta
                z = layer.z_error + (row * s * layer.columns + column) * s * B + b
                down, right = layer.columns * s * B, B
                step_axis(state, mu, gamma, w, z, down, w + s * B, right, p, B, s, step, gamma_min, gamma_max)
                step_axis(
                    state, mu + B, gamma + B, w + s * B, z, right, w, down, p, B, s, step, gamma_min, gamma_max
                )  # fmt: skip
                weigh_region(state, layer, row, column, b)
