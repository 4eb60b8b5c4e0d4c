"""Where the CPU engine's time goes: each part of one step of one digit, on one thread.

    python benchmarks/cpu_parts.py --out cpu_parts.json

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
from machine import machine

from whatwhere.data import load as load_images
from whatwhere.engines.cpu import convolution, pooling, start, steps
from whatwhere.engines.cpu.batch_solver import BatchSolver
from whatwhere.engines.cpu.records import Codes
from whatwhere.engines.jit import OPTIONS
from whatwhere.engines.jit.simd import LANES, load, store
from whatwhere.engines.jit.vector_math import fma
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, ModelSpec, Phase

ROUNDS, CALLS, STEPS = 7, 1000, 20

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
    """2 · 16 · LANES operations a call, in 16 chains: enough that none waits for the last."""
    a = load(state, 0)
    t0, t1, t2, t3, t4, t5, t6, t7 = a, a, a, a, a, a, a, a
    u0, u1, u2, u3, u4, u5, u6, u7 = a, a, a, a, a, a, a, a
    for _ in range(calls):
        t0, t1, t2, t3 = fma(a, t0, a), fma(a, t1, a), fma(a, t2, a), fma(a, t3, a)
        t4, t5, t6, t7 = fma(a, t4, a), fma(a, t5, a), fma(a, t6, a), fma(a, t7, a)
        u0, u1, u2, u3 = fma(a, u0, a), fma(a, u1, a), fma(a, u2, a), fma(a, u3, a)
        u4, u5, u6, u7 = fma(a, u4, a), fma(a, u5, a), fma(a, u6, a), fma(a, u7, a)
    total = t0 + t1 + t2 + t3 + t4 + t5 + t6 + t7 + u0 + u1 + u2 + u3 + u4 + u5 + u6 + u7
    store(state, 0, total)


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
    return 2 * 16 * LANES / times[0], len(state) / times[1]


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
