"""Where the CPU engine's time goes: each part of one step of one digit, on one thread.

    python benchmarks/cpu_parts.py --out cpu_parts.json

The paper's model with random filters, after 20 steps. Every part is called many times on the same
state; the best of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numba
import torch
from machine import machine

from whatwhere.data import load
from whatwhere.engines.cpu import convolution, pooling, start, steps
from whatwhere.engines.cpu.batch_solver import BatchSolver
from whatwhere.engines.cpu.records import Codes
from whatwhere.engines.jit import OPTIONS
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
    "θ 1": (pooling.update_pooling, "state, layers[1], 0.0, (0.01, 100.0), False"),
    "θ 2": (pooling.update_pooling, "state, layers[2], 0.0, (0.01, 100.0), False"),
    "features": (
        steps.update_features,
        "state, layers[2], Codes(state, top, top), settings[0], 0.0, 0.0",
    ),
    "penalty": (steps.penalty_and_nonzeros, "state, layers[2], 1.0"),
    "weights of layer 1, at the start": (pooling.compute_weights, "state, layers[1]"),
    "weights of layer 2, at the start": (pooling.compute_weights, "state, layers[2]"),
    "latents in or out, once": (start.copy_latents, "packed, state, layers, True"),
}


def timed(part: Any, arguments: str, at_hand: tuple[Any, ...]) -> float:
    """Microseconds of one call."""
    source = f"""
def many(calls, state, filters, layers, packed, settings):
    top = layers[2].features
    for _ in range(calls):
        part({arguments})
"""
    names = {"part": part, "Codes": Codes}
    exec(source, names)
    many = numba.njit(**OPTIONS)(names["many"])
    many(1, *at_hand)
    best = float("inf")
    for _ in range(ROUNDS):
        since = time.perf_counter()
        many(CALLS, *at_hand)
        best = min(best, time.perf_counter() - since)
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
    digit, phase = load("digits")[slice(0, 1)], Phase(layer=2, update_pooling=(1, 2))
    solver = BatchSolver(Problem(DeconvNet(ModelSpec.paper()), digit, phase, spec))
    memory = solver.new_memory(1)
    step = float("inf")
    for _ in range(1 + ROUNDS):  # the first compiles
        since = time.perf_counter()
        solver.advance(0, STEPS, slice(0, 1), memory)
        step = min(step, (time.perf_counter() - since) / STEPS * 1e6)
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
        },
        indent=1,
        ensure_ascii=False,
    )
    print(text)
    if out:
        out.write_text(text + "\n")


if __name__ == "__main__":
    main()
