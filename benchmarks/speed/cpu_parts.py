"""Where the CPU engine's time goes: each part of one step of one digit, on one thread.

    python -m benchmarks.speed.cpu_parts --out cpu_parts.json

The paper's model with random filters, after 20 steps. Every part is called many times on the same
state; the best of several rounds counts, in processor time.

The roofline of a part is the least time that its arithmetic and its traffic allow on this
processor: max(operations / peak operations, bytes / peak bytes), both peaks measured here on one
thread, in the cache, where an image's state stays. Operations of a convolution are those of the
direct form; Winograd's method needs fewer, so that its share may exceed 100 %.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import torch

from benchmarks.machine import machine
from whatwhere.data import load as load_images
from whatwhere.engines.cpu import convolution, pooling, start, steps
from whatwhere.engines.cpu.batch_solver import BatchSolver
from whatwhere.engines.cpu.records import Codes
from whatwhere.engines.jit import OPTIONS
from whatwhere.engines.jit.simd import LANES, load, store
from whatwhere.engines.jit.vector_math import fma
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, ModelSpec, Phase

ROUNDS = 7
CALLS = 1000
STEPS = 20
CHAINS = 12  # of products, where the peak is measured

# part → what it calls, with the state, the filters, the table of layers and the latents at hand
PARTS = {
    "down 2, dense": (
        steps.unpool_and_convolve,
        "state, filters, layers[1], layers[2], layers[2].error, layers[1].gain",
    ),
    "down 2, from non-zeros": (
        convolution.scatter_down,
        "state, filters, layers[1], layers[2], layers[1].features",
    ),
    "down 1": (
        steps.unpool_and_convolve,
        "state, filters, layers[0], layers[1], layers[1].features, layers[0].features",
    ),
    "up 1": (convolution.convolve_up, "state, filters, layers[0], layers[1]"),
    "pool 1": (pooling.pool, "state, layers[1]"),
    "up 2": (convolution.convolve_up, "state, filters, layers[1], layers[2]"),
    "pool 2": (pooling.pool, "state, layers[2]"),
    "θ 1": (pooling.update_pooling, "state, layers[1], 0.0, Bounds(0.01, 100.0), False"),
    "θ 2": (pooling.update_pooling, "state, layers[2], 0.0, Bounds(0.01, 100.0), False"),
    "features": (
        steps.update_features,
        "state, layers[2], Codes(state, top, top), settings[0], 0.0, 0.0",
    ),
    "penalty": (
        steps.penalty_and_nonzeros,
        "state, layers[2], (settings[0].penalty_kind, settings[0].penalty_parameter)",
    ),
    "weights of layer 1, at the start": (pooling.compute_weights, "state, layers[1]"),
    "weights of layer 2, at the start": (pooling.compute_weights, "state, layers[2]"),
    "latents in or out, once": (start.copy_latents, "packed, state, layers, True"),
}


class Work(NamedTuple):
    """What a part computes, and what it reads and writes, at least."""

    operations: int
    numbers: int


def work_of_parts() -> dict[str, Work]:
    """Of the parts whose work does not depend on the number of features: the paper's model on a
    digit. 28 → z₁ 32×32×16, p₁ 16×16×16 → z₂ 20×20×48, p₂ 10×10×48; a map of layer 2 is connected
    to 8 of layer 1."""
    taps = 5 * 5
    first = 2 * taps * 16 * 28 * 28
    second = 2 * taps * 48 * 8 * 16 * 16
    z_1, p_1, z_2, p_2 = 32 * 32 * 16, 16 * 16 * 16, 20 * 20 * 48, 10 * 10 * 48
    # a region of 2×2 has 4 weights; w_y w_x z, summed, are 6 multiplications and 3 additions
    pool_1 = Work(9 * p_1, z_1 + 4 * p_1 + p_1)
    pool_2 = Work(9 * p_2, z_2 + 4 * p_2 + p_2)
    return {
        "down 2, dense": Work(second + 6 * p_2, z_2 + p_1),
        "down 1": Work(first + 6 * p_1, z_1 + 28 * 28),
        "up 1": Work(first, z_1 + 28 * 28),
        "up 2": Work(second, z_2 + p_1),
        "pool 1": pool_1,
        "pool 2": pool_2,
        "penalty": Work(2 * p_2, p_2),
    }


@numba.njit(**OPTIONS)
def many_products(state: Any, calls: int) -> None:
    """2 · CHAINS · LANES operations a call, in so many chains that none waits for the last, and so
    few that they stay in registers."""
    a = load(state, 0)
    b = load(state, LANES)
    s0 = a
    s1 = a
    s2 = a
    s3 = a
    s4 = a
    s5 = a
    s6 = a
    s7 = a
    s8 = a
    s9 = a
    s10 = a
    s11 = a
    for _ in range(calls):
        s0 = fma(a, b, s0)
        s1 = fma(a, b, s1)
        s2 = fma(a, b, s2)
        s3 = fma(a, b, s3)
        s4 = fma(a, b, s4)
        s5 = fma(a, b, s5)
        s6 = fma(a, b, s6)
        s7 = fma(a, b, s7)
        s8 = fma(a, b, s8)
        s9 = fma(a, b, s9)
        s10 = fma(a, b, s10)
        s11 = fma(a, b, s11)
    store(state, 0, s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11)


@numba.njit(**OPTIONS)
def many_copies(state: Any, calls: int) -> None:
    """Read one half of the state and write the other, `calls` times."""
    half = len(state) // 2
    for _ in range(calls):
        for i in range(0, half, 4 * LANES):
            store(state, half + i, load(state, i))
            store(state, half + i + LANES, load(state, i + LANES))
            store(state, half + i + 2 * LANES, load(state, i + 2 * LANES))
            store(state, half + i + 3 * LANES, load(state, i + 3 * LANES))


def peaks() -> tuple[float, float]:
    """Operations and numbers (read or written, in a cache of 64 KiB) a microsecond."""
    state = np.full(2**14, 0.5, np.float32)
    times = []
    for function, calls in ((many_products, 1_000_000), (many_copies, 2_000)):
        function(state, 1)
        best = float("inf")
        for _ in range(ROUNDS):
            since = time.thread_time()
            function(state, calls)
            best = min(best, time.thread_time() - since)
        times.append(best / calls * 1e6)
    return 2 * CHAINS * LANES / times[0], len(state) / times[1]


def roofline(microseconds: dict[str, float]) -> dict[str, Any]:
    """The least time of every part, and the share of it that the part reaches."""
    operations, numbers = peaks()
    rows = {}
    for name, work in work_of_parts().items():
        least = max(work.operations / operations, work.numbers / numbers)
        rows[name] = {
            "least microseconds": round(least, 2),
            "share reached": round(least / microseconds[name], 3),
        }
    return {
        "peak, GFLOP/s": round(operations / 1e3, 1),
        "peak, GB/s in the cache": round(4 * numbers / 1e3, 1),
        "parts": rows,
    }


def timed(part: Any, arguments: str, at_hand: tuple[Any, ...]) -> float:
    """Microseconds of one call."""
    source = f"""
def many(calls, state, filters, layers, packed, settings):
    top = layers[2].features
    for _ in range(calls):
        part({arguments})
"""
    names = {"part": part, "Codes": Codes, "Bounds": pooling.Bounds}
    exec(source, names)
    many = numba.njit(**OPTIONS)(names["many"])
    many(1, *at_hand)
    best = float("inf")
    for _ in range(ROUNDS):
        since = time.thread_time()
        many(CALLS, *at_hand)
        best = min(best, time.thread_time() - since)
    return best / CALLS * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    spec = InferenceSpec(steps=STEPS)
    digit, phase = load_images("digits")[slice(0, 1)], Phase(layer=2, update_pooling=(1, 2))
    solver = BatchSolver(Problem(DeconvNet(ModelSpec.paper()), digit, phase, spec))
    memory = solver.new_memory(1)
    step = float("inf")
    for _ in range(1 + ROUNDS):  # the first compiles
        since = time.thread_time()
        solver.advance(0, STEPS, slice(0, 1), memory)
        step = min(step, (time.thread_time() - since) / STEPS * 1e6)
    at_hand = (
        memory.states[0],
        solver.filters,
        solver.layers,
        solver.packed.numpy()[0],
        solver.settings,
    )
    microseconds = {
        name: round(timed(part, arguments, at_hand), 1) for name, (part, arguments) in PARTS.items()
    }
    microseconds["a whole step with line search"] = round(step, 1)
    nonzeros = int(solver.all.trace[0, -1, 2])
    text = json.dumps(
        {
            "benchmark": "parts of a step",
            "machine": machine(),
            "nonzeros": nonzeros,
            "microseconds": microseconds,
            "roofline": roofline(microseconds),
        },
        indent=1,
        ensure_ascii=False,
    )
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
