"""Convolutional sparse codes of signals: the engine `greedy` next to alphacsc's `lgcd` and SPORCO's ADMM.

    pip install alphacsc sporco
    python benchmarks/signals_peers.py code --out benchmarks/results/signals_peers.json
    python benchmarks/signals_peers.py learn --seeds 0 1 2 --out benchmarks/results/signals_peers_learn.json

One thread for everyone; times are seconds of processor time, which other programs disturb less. 10 signals of 16,384
samples: events of 10 waveforms of 64 samples at random times, with noise at 10 dB (whole signal against noise).

**code**: min ½ ‖x - Σ d ∗ z‖² + reg Σ z, z ≥ 0, with the true waveforms, reg a tenth of the smallest that leaves no
event. Measured is the time of a call that ends within 1 % of the best objective that any method reached: the largest
tolerance, or the fewest steps, that suffice. Signals get a frame of 63 zeros at both ends, so that all methods have the
same minimum (alphacsc has no waveforms across an end, SPORCO is periodic). Every code is evaluated by the same function
in float64.

**learn**: both start from the same pieces of the signals, with reg = 4 σ. Measured is the time until each of the 10
true waveforms correlates by 0.95 with a learned one, at its best shift. Evaluating is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whatwhere as ww
from whatwhere.inference import machine
from whatwhere.learning.defaults import start_from_pieces

ATOMS, LENGTH, SIGNALS, SAMPLES = 10, 64, 10, 16_384
CLOSE = 1.01
RECOVERED = 0.95


def alike(a: np.ndarray, b: np.ndarray) -> float:
    """The largest correlation of two waveforms of unit length over shifts by at most half of it."""
    return float(np.abs(np.correlate(np.pad(a, LENGTH // 2), b, "valid")).max())


def draw_waveforms(rng: np.random.Generator) -> np.ndarray:
    """Oscillations in a window, [ATOMS, LENGTH], of which no two correlate by more than 0.8."""
    t, found = np.arange(LENGTH) - (LENGTH - 1) / 2, list[np.ndarray]()
    while len(found) < ATOMS:
        frequency, phase, width, chirp = rng.uniform((0.01, 0, 3, -0.002), (0.25, 2 * np.pi, 12, 0.002))
        d = np.cos(2 * np.pi * (frequency + chirp * t) * t + phase) * np.exp(-(t**2) / (2 * width**2))
        d *= np.cos(np.pi * t / LENGTH)
        d /= np.linalg.norm(d)
        if all(alike(d, other) < 0.8 for other in found):
            found.append(d)
    return np.array(found)


def simulate(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Signals [SIGNALS, samples] between frames of zeros, the waveforms, and σ."""
    rng = np.random.default_rng(seed)
    D = draw_waveforms(rng)
    z = (rng.random((SIGNALS, ATOMS, samples - LENGTH + 1)) < 0.002) * rng.uniform(0.5, 2, (SIGNALS, ATOMS, 1))
    x = np.array([sum(np.convolve(one, d) for one, d in zip(each, D, strict=True)) for each in z])
    sigma = float(np.sqrt(np.mean(x**2) / 10))
    return np.pad(x + sigma * rng.standard_normal(x.shape), ((0, 0), (LENGTH - 1,) * 2)), D, sigma


def model_of(D: np.ndarray) -> ww.DeconvNet:
    model = ww.DeconvNet(ww.ModelSpec.signals(ATOMS, LENGTH, pool_size=1))
    return model.with_filters(1, torch.tensor(D, dtype=torch.float32)[None, :, None])


def objective(x: np.ndarray, D: np.ndarray, z: np.ndarray, reg: float) -> float:
    fit = np.array([sum(np.convolve(one, d) for one, d in zip(each, D, strict=True)) for each in z])
    return float(0.5 * np.sum((x - fit) ** 2) + reg * np.abs(z).sum())


# Coding ------------------------------------------------------------------------------------------------------------


def code_whatwhere(x: np.ndarray, D: np.ndarray, reg: float, tolerance: float) -> np.ndarray:
    spec = ww.InferenceSpec.coding(lam=1 / reg, tolerance=tolerance)
    solution = ww.infer(model_of(D), x[:, None].astype(np.float32), spec)
    assert solution.engine == "greedy"
    return solution.features[:, :, LENGTH - 1 : x.shape[1]].double().numpy()


def code_alphacsc(x: np.ndarray, D: np.ndarray, reg: float, tolerance: float) -> np.ndarray:
    from alphacsc.update_z_multi import update_z_multi

    options = {"tol": tolerance, "max_iter": 10**7}
    z: np.ndarray = update_z_multi(x[:, None], D[:, None], reg, solver="lgcd", solver_kwargs=options)[0]
    return z


def code_sporco(x: np.ndarray, D: np.ndarray, reg: float, steps: int) -> np.ndarray:
    from sporco.admm import cbpdn

    options = cbpdn.ConvBPDN.Options({
        "Verbose": False, "MaxMainIter": steps, "RelStopTol": 0.0, "NonNegCoef": True, "RelaxParam": 1.8,
        "rho": 50 * reg + 1, "AutoRho": {"Enabled": True, "Period": 1}, "DataType": np.float32,
    })  # fmt: skip
    solver = cbpdn.ConvBPDN(D.T.astype(np.float32), x.T.astype(np.float32), reg, options, dimK=1, dimN=1)
    solver.solve()
    z = solver.getcoef().reshape(x.shape[1], len(x), ATOMS).transpose(1, 2, 0).astype(np.float64)
    return z[:, :, : x.shape[1] - LENGTH + 1]


METHODS: dict[str, tuple[Any, list[float]]] = {
    "whatwhere": (code_whatwhere, [0.1, 0.05, 0.03, 0.02, 0.01, 0.005]),
    "alphacsc lgcd": (code_alphacsc, [1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1]),
    "sporco ADMM": (code_sporco, [10, 20, 30, 50, 75, 100, 150, 200]),
}


def compare_codes(args: argparse.Namespace) -> dict[str, Any]:
    x, D, _ = simulate(args.seeds[0], args.samples)
    reg = 0.1 * max(np.correlate(signal, d, "valid").max() for signal in x for d in D)
    best = objective(x, D, code_whatwhere(x, D, reg, 1e-6), reg)
    rows, chosen = [], {}
    for name in args.methods:
        code, settings = METHODS[name]
        code(x[:1, :2000], D, reg, settings[0])  # compiles
        for setting in settings:
            begun = time.process_time()
            z = code(x, D, reg, setting)
            seconds, value = time.process_time() - begun, objective(x, D, z, reg)
            rows.append({"method": name, "setting": setting, "seconds": seconds, "over_the_best": value / best - 1})
            print(rows[-1], flush=True)
            if value <= CLOSE * best:
                chosen[name] = setting
                break
    within = {name: list[float]() for name in chosen}
    for _ in range(args.repeats):  # in turns, so that a busy moment disturbs all
        for name, setting in chosen.items():
            begun = time.process_time()
            METHODS[name][0](x, D, reg, setting)
            within[name].append(time.process_time() - begun)
    print({name: min(seconds) for name, seconds in within.items()})
    return {"reg": reg, "best": best, "rows": rows, "within_1_percent_seconds": within}


# Learning ----------------------------------------------------------------------------------------------------------


class Watch:
    """The recovery of the true waveforms over time, without the time of looking."""

    def __init__(self, D: np.ndarray, limit: float) -> None:
        self.D, self.limit, self.begun, self.rows = D, limit, time.process_time(), list[dict[str, float]]()

    def look(self, learned: np.ndarray) -> bool:
        """Note the recovery; True when all are recovered, or time is up."""
        now = time.process_time()
        learned = learned / np.linalg.norm(learned, axis=1, keepdims=True)
        best = [max(alike(d, f) for f in learned) for d in self.D]
        recovered = sum(one >= RECOVERED for one in best)
        self.rows.append(
            {"seconds": now - self.begun, "least": min(best), "mean": float(np.mean(best)), "recovered": recovered}
        )
        print(self.rows[-1], flush=True)
        self.begun += time.process_time() - now
        return recovered == ATOMS or self.rows[-1]["seconds"] > self.limit


class Recovered(Exception):
    """Stops a learning that calls back."""


def learn_whatwhere(x: np.ndarray, start: ww.DeconvNet, sigma: float, watch: Watch, args: argparse.Namespace) -> None:
    recipe = replace(ww.read_recipe("signals"), model=start.spec)
    inference = {"lam": 1 / (args.noise * sigma), "steps": 1000, "tolerance": args.share}
    changes = {
        "learning": {"each": {"epochs": 1, "cg_steps": args.cg, "inference": inference}},
        "batch_size": args.batch,
    }
    recipe, model = ww.override(recipe, changes), start
    while not watch.look(model.filters[0][0, :, 0].numpy()):
        model = ww.train(
            x.astype(np.float32)[:, None], recipe, start=model, options=ww.TrainingOptions(device="cpu")
        ).model


def learn_alphacsc(x: np.ndarray, start: ww.DeconvNet, sigma: float, watch: Watch, args: argparse.Namespace) -> None:
    from alphacsc import learn_d_z_multi

    def look(encoder: Any, pobj: Any) -> None:
        if watch.look(encoder.D_hat[:, 0]):
            raise Recovered

    D = start.filters[0][0, :, 0].double().numpy()
    with suppress(Recovered):
        learn_d_z_multi(
            x[:, None], ATOMS, LENGTH, n_iter=1000, lmbd_max="fixed", reg=args.noise * sigma, rank1=False,
            solver_z="lgcd", solver_z_kwargs={"tol": args.tolerance, "max_iter": 10**6}, D_init=D[:, None], verbose=0,
            callback=look, random_state=0, raise_on_increase=False,
        )  # fmt: skip


def compare_learning(args: argparse.Namespace) -> dict[str, Any]:
    runs = []
    for seed in args.seeds:
        x, D, sigma = simulate(seed, args.samples)
        pieces = start_from_pieces(model_of(D), torch.tensor(x, dtype=torch.float32)[:, None, None], seed)
        for name in args.methods:
            print(seed, name, flush=True)
            learn = learn_whatwhere if name == "whatwhere" else learn_alphacsc
            learn(x[:1], pieces, sigma, Watch(D, 0.01), args)  # compiles
            watch = Watch(D, args.limit)
            learn(x, pieces, sigma, watch, args)
            done = [row["seconds"] for row in watch.rows if row["recovered"] == ATOMS]
            runs.append(
                {"seed": seed, "method": name, "seconds_to_recovery": done[0] if done else None, "rows": watch.rows}
            )
    return {"runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("code", "learn"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["whatwhere", "alphacsc lgcd"])
    for name, default in {"samples": SAMPLES, "repeats": 3, "limit": 300, "batch": 8, "cg": 2}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tolerance", type=float, default=0.3, help="of lgcd in learning")
    parser.add_argument("--share", type=float, default=0.03, help="tolerance of greedy in learning")
    parser.add_argument("--noise", type=float, default=4.0, help="reg in standard deviations of the noise")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = compare_codes(args) if args.part == "code" else compare_learning(args)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    args.out.write_text(json.dumps({"machine": machine(), "settings": settings, **found}, indent=1))


if __name__ == "__main__":
    main()
