"""Convolutional sparse codes of signals: the engine `greedy` next to alphacsc's `lgcd` and SPORCO's
ADMM and PGM.

    pip install alphacsc sporco
    python -m benchmarks.signals.signals_peers code --out
    benchmarks/signals/results/signals_peers.json
    python -m benchmarks.signals.signals_peers learn --seeds 0 1 2 --out
    benchmarks/signals/results/signals_peers_learn.json

One thread for everyone; times are seconds of processor time, which other programs disturb less. 10
signals of 16,384 samples: events of 10 waveforms of 64 samples at random times, with noise at 10 dB
(whole signal against noise).

**code**: min ½ ‖x - Σ d ∗ z‖² + reg Σ z, z ≥ 0, with the true waveforms, reg a tenth of the
smallest that leaves no event. Measured is the time of a call that ends within 1 % of the best
objective that any method reached: the largest tolerance, or the fewest steps, that suffice. Signals
get a frame of 63 zeros at both ends, so that all methods have the same minimum (alphacsc has no
waveforms across an end, SPORCO is periodic). Every code is evaluated by the same function in
float64. Times are those of whole calls. SPORCO is given several settings, and the best of them is
timed.

**learn**: all start from the same pieces of the signals, with reg = 4 σ, and stop at a limit of
time. Measured is how many of the 10 true waveforms correlate by 0.95 with a learned one, at its
best shift, and since when. Evaluating is not counted. alphacsc learns from one signal at a time
(`online`) and from all (`batch`); it divides signals by their deviation, so reg and tolerance are
divided, too. Our batches of two windows were chosen on seeds 10 to 19.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.fft import next_fast_len

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.learning.defaults import start_from_pieces

Look = Callable[[int, np.ndarray], bool]
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
        frequency, phase, width, chirp = rng.uniform(
            (0.01, 0, 3, -0.002), (0.25, 2 * np.pi, 12, 0.002)
        )
        d = np.cos(2 * np.pi * (frequency + chirp * t) * t + phase) * np.exp(
            -(t**2) / (2 * width**2)
        )
        d *= np.cos(np.pi * t / LENGTH)
        d /= np.linalg.norm(d)
        if all(alike(d, other) < 0.8 for other in found):
            found.append(d)
    return np.array(found)


def simulate(seed: int, samples: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Signals [SIGNALS, samples] between frames of zeros, the waveforms, and σ."""
    rng = np.random.default_rng(seed)
    D = draw_waveforms(rng)
    z = (rng.random((SIGNALS, ATOMS, samples - LENGTH + 1)) < 0.002) * rng.uniform(
        0.5, 2, (SIGNALS, ATOMS, 1)
    )
    x = np.array([sum(np.convolve(one, d) for one, d in zip(each, D, strict=True)) for each in z])
    sigma = float(np.sqrt(np.mean(x**2) / 10))
    return np.pad(x + sigma * rng.standard_normal(x.shape), ((0, 0), (LENGTH - 1,) * 2)), D, sigma


def model_of(D: np.ndarray) -> ww.DeconvNet:
    model = ww.DeconvNet(ww.ModelSpec.signals(ATOMS, LENGTH, pool_size=1))
    return model.with_filters(1, torch.tensor(D, dtype=torch.float32)[None, :, None])


def objective(x: np.ndarray, D: np.ndarray, z: np.ndarray, reg: float) -> float:
    fit = np.array([sum(np.convolve(one, d) for one, d in zip(each, D, strict=True)) for each in z])
    return float(0.5 * np.sum((x - fit) ** 2) + reg * np.abs(z).sum())


# Coding -------------------------------------------------------------------------------------------


def code_whatwhere(x: np.ndarray, D: np.ndarray, reg: float, tolerance: float) -> np.ndarray:
    spec = ww.InferenceSpec.coding(lam=1 / reg, tolerance=tolerance)
    solution = ww.infer(model_of(D), x[:, None].astype(np.float32), spec)
    assert solution.engine == "greedy"
    return solution.features[:, :, LENGTH - 1 : x.shape[1]].double().numpy()


def code_alphacsc(x: np.ndarray, D: np.ndarray, reg: float, tolerance: float) -> np.ndarray:
    from alphacsc.update_z_multi import update_z_multi

    options = {"tol": tolerance, "max_iter": 10**7}
    z: np.ndarray = update_z_multi(
        x[:, None], D[:, None], reg, solver="lgcd", solver_kwargs=options
    )[0]
    return z


def code_sporco(
    x: np.ndarray,
    D: np.ndarray,
    reg: float,
    steps: int,
    look: Look | None = None,
    rho: float | None = None,
) -> np.ndarray:
    """ADMM with ρ = `rho` reg; 0 is its automatic choice, None PGM with the exact constant.

    look  called with a number of steps and the code after them; True stops
    """
    from sporco.admm import cbpdn as by_admm
    from sporco.pgm import cbpdn as by_pgm

    def code_of(solver: Any) -> np.ndarray:
        z: np.ndarray = (
            solver.getcoef()
            .reshape(S.shape[1], len(x), ATOMS)
            .transpose(1, 2, 0)
            .astype(np.float64)
        )
        return z[:, :, : x.shape[1] - LENGTH + 1]

    S = np.pad(x, ((0, 0), (0, next_fast_len(x.shape[1], real=True) - x.shape[1]))).astype(
        np.float32
    )
    options = {
        "MaxMainIter": steps,
        "RelStopTol": 0.0,
        "NonNegCoef": True,
        "FastSolve": True,
        "DataType": np.float32,
    }
    if look is not None:
        options["Callback"] = lambda solver: (
            solver.k + 1 in STEPS and look(solver.k + 1, code_of(solver))
        )
    if rho is None:
        options["L"] = float((np.abs(np.fft.rfft(D, S.shape[1])) ** 2).sum(0).max())
    else:
        options |= {"HighMemSolve": True, "AutoRho": {"Enabled": rho == 0}} | (
            {"rho": rho * reg} if rho else {}
        )
    module = by_pgm if rho is None else by_admm
    solver = module.ConvBPDN(
        D.T.astype(np.float32), S.T.copy(), reg, module.ConvBPDN.Options(options), dimK=1, dimN=1
    )
    solver.solve()
    return code_of(solver)


STEPS = [*range(6, 30, 2), *range(30, 60, 5), *range(60, 120, 10), 120, 160, 200, 240]
CODERS: dict[str, tuple[Any, list[float]]] = {
    "whatwhere": (code_whatwhere, [0.1, 0.05, 0.03, 0.02, 0.01, 0.005]),
    "alphacsc lgcd": (code_alphacsc, [1.0, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1]),
    "sporco PGM": (code_sporco, STEPS),
    "sporco ADMM, ρ = reg": (partial(code_sporco, rho=1.0), STEPS),
    "sporco ADMM, ρ = 5 reg": (partial(code_sporco, rho=5.0), STEPS),
    "sporco ADMM, ρ = 10 reg": (partial(code_sporco, rho=10.0), STEPS),
    "sporco ADMM, ρ = 20 reg": (partial(code_sporco, rho=20.0), STEPS),
    "sporco ADMM, ρ = 50 reg": (partial(code_sporco, rho=50.0), STEPS),
    "sporco ADMM, automatic ρ": (partial(code_sporco, rho=0.0), STEPS),
}


def compare_codes(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    x, D, _ = simulate(args.seeds[0], args.samples)
    reg = 0.1 * max(np.correlate(signal, d, "valid").max() for signal in x for d in D)
    best = objective(x, D, code_whatwhere(x, D, reg, 1e-6), reg)
    rows, chosen, clock = [], dict[str, tuple[float, float]](), [0.0]

    def look(name: str, setting: float, z: np.ndarray) -> bool:
        """Note a code and the time since the clock was set, which stands still meanwhile; True if
        it is close."""
        now, value = time.process_time(), objective(x, D, z, reg)
        seconds = now - clock[0]
        rows.append(
            {
                "method": name,
                "setting": setting,
                "seconds": seconds,
                "over_the_best": value / best - 1,
            }
        )
        print(rows[-1], flush=True)
        if close := value <= CLOSE * best:
            chosen[name] = seconds, setting
        clock[0] += time.process_time() - now
        return close

    for name in chosen_from(CODERS, args):
        code, settings = CODERS[name]
        code(x[:1, :2000], D, reg, settings[0])  # compiles
        for setting in settings[-1:] if settings is STEPS else settings:
            clock[0] = time.process_time()
            if settings is STEPS:
                code(x, D, reg, setting, partial(look, name))
            elif look(name, setting, code(x, D, reg, setting)):
                break
    theirs = sorted(
        (name for name in chosen if name.startswith("sporco")), key=lambda name: chosen[name]
    )
    # its best setting
    chosen = {name: pair for name, pair in chosen.items() if name not in theirs[1:]}
    within = {name: list[float]() for name in chosen}
    for _ in range(args.repeats):  # in turns, so that a busy moment disturbs all
        for name, (_, setting) in chosen.items():
            begun = time.process_time()
            CODERS[name][0](x, D, reg, setting)
            within[name].append(time.process_time() - begun)
    print({name: min(seconds) for name, seconds in within.items()})
    yield {"reg": reg, "best": best, "rows": rows, "within_1_percent_seconds": within}


# Learning -----------------------------------------------------------------------------------------


class Watch:
    """The recovery of the true waveforms over time, without the time of looking."""

    def __init__(self, D: np.ndarray, limit: float) -> None:
        self.D, self.limit, self.begun, self.rows = (
            D,
            limit,
            time.process_time(),
            list[dict[str, float]](),
        )

    def look(self, learned: np.ndarray) -> bool:
        """Note the recovery; True when all are recovered, or time is up."""
        now = time.process_time()
        learned = learned / np.linalg.norm(learned, axis=1, keepdims=True)
        best = [max(alike(d, f) for f in learned) for d in self.D]
        recovered = sum(one >= RECOVERED for one in best)
        self.rows.append(
            {
                "seconds": now - self.begun,
                "least": min(best),
                "mean": float(np.mean(best)),
                "recovered": recovered,
            }
        )
        print(self.rows[-1], flush=True)
        self.begun += time.process_time() - now
        return recovered == ATOMS or self.rows[-1]["seconds"] > self.limit


class Recovered(Exception):
    """Stops a learning that calls back."""


def learn_whatwhere(
    x: np.ndarray, start: ww.DeconvNet, sigma: float, watch: Watch, args: argparse.Namespace
) -> None:
    recipe = replace(ww.read_recipe("signals"), model=start.spec)
    inference = {"lam": 1 / (args.noise * sigma), "steps": 1000, "tolerance": args.share}
    changes = {
        "learning": {"each": {"epochs": 1, "cg_steps": args.cg, "inference": inference}},
        "batch_size": args.batch,
    }
    recipe, model = ww.override(recipe, changes), start
    while not watch.look(model.filters[0][0, :, 0].numpy()):
        model = ww.train(
            x.astype(np.float32)[:, None],
            recipe,
            start=model,
            options=ww.TrainingOptions(device="cpu"),
        ).model


def learn_alphacsc(
    x: np.ndarray,
    start: ww.DeconvNet,
    sigma: float,
    watch: Watch,
    args: argparse.Namespace,
    **algorithm: Any,
) -> None:
    """All signals at once (its default), or one signal at a time (`online`). It never stops by
    itself."""
    from alphacsc import learn_d_z_multi

    def look(encoder: Any, pobj: Any) -> None:
        if watch.look(encoder.D_hat[:, 0]):
            raise Recovered

    # it divides signals by their deviation
    D, scale = (
        start.filters[0][0, :, 0].double().numpy(),
        float(x.std()),
    )
    with suppress(Recovered):
        learn_d_z_multi(
            x[:, None],
            ATOMS,
            LENGTH,
            n_iter=100_000,
            lmbd_max="fixed",
            reg=args.noise * sigma / scale,
            rank1=False,
            solver_z="lgcd",
            solver_z_kwargs={"tol": args.tolerance / scale, "max_iter": 10**6},
            D_init=D[:, None],
            verbose=0,
            callback=look,
            random_state=0,
            raise_on_increase=False,
            eps=-np.inf,
            **algorithm,
        )


def learn_sporco(
    x: np.ndarray, start: ww.DeconvNet, sigma: float, watch: Watch, args: argparse.Namespace
) -> None:
    """Steps of ADMM for the code and for the waveforms in turns, its usual way."""
    from sporco.dictlrn.cbpdndl import ConvBPDNDictLearn

    reg, D = args.noise * sigma, start.filters[0][0, :, 0].numpy()
    S = np.pad(x, ((0, 0), (0, next_fast_len(x.shape[1], real=True) - x.shape[1]))).astype(
        np.float32
    )
    options = {
        "Verbose": False,
        "MaxMainIter": 100_000,
        "CBPDN": {
            "rho": args.rho * reg,
            "NonNegCoef": True,
            "AutoRho": {"Enabled": False},
            "DataType": np.float32,
        },
        "CCMOD": {"rho": args.rho_waveforms, "DataType": np.float32},
        "Callback": lambda solver: watch.look(solver.getdict().squeeze().T),
    }
    chosen = ConvBPDNDictLearn.Options(options, xmethod="admm", dmethod="cns")
    if not watch.look(D):
        ConvBPDNDictLearn(
            D.T.copy(), S.T.copy(), reg, chosen, xmethod="admm", dmethod="cns", dimK=1, dimN=1
        ).solve()


LEARNERS: dict[str, Any] = {
    "whatwhere": learn_whatwhere,
    "alphacsc lgcd, online": partial(
        learn_alphacsc, algorithm="online", algorithm_params={"batch_size": 1}
    ),
    "alphacsc lgcd, batch": learn_alphacsc,
    "sporco ADMM": learn_sporco,
}


def compare_learning(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    runs = []
    for seed in args.seeds:
        x, D, sigma = simulate(seed, args.samples)
        pieces = start_from_pieces(
            model_of(D), torch.tensor(x, dtype=torch.float32)[:, None, None], seed
        )
        for name in chosen_from(LEARNERS, args):
            print(seed, name, flush=True)
            LEARNERS[name](x[:1], pieces, sigma, Watch(D, 0.01), args)  # compiles
            watch = Watch(D, args.limit)
            LEARNERS[name](x, pieces, sigma, watch, args)
            done = [row["seconds"] for row in watch.rows if row["recovered"] == ATOMS]
            runs.append(
                {
                    "seed": seed,
                    "method": name,
                    "seconds_to_recovery": done[0] if done else None,
                    "rows": watch.rows,
                }
            )
            yield {"runs": runs}


def chosen_from(known: dict[str, Any], args: argparse.Namespace) -> list[str]:
    """The methods whose names begin with one of those that were given."""
    return [name for name in known if name.startswith(tuple(args.methods))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("code", "learn"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--methods", nargs="+", default=["whatwhere", "alphacsc", "sporco"])
    for name, default in {
        "samples": SAMPLES,
        "repeats": 3,
        "limit": 20,
        "batch": 2,
        "cg": 2,
    }.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tolerance", type=float, default=0.3, help="of lgcd in learning")
    parser.add_argument("--share", type=float, default=0.03, help="tolerance of greedy in learning")
    parser.add_argument(
        "--noise", type=float, default=4.0, help="reg in standard deviations of the noise"
    )
    parser.add_argument(
        "--rho", type=float, default=10.0, help="of SPORCO's codes in learning, in reg"
    )
    parser.add_argument(
        "--rho-waveforms", type=float, default=10.0, help="of SPORCO's waveforms in learning"
    )
    args = parser.parse_args()
    import sporco.fft  # here: other benchmarks need the signals of this one alone

    torch.set_num_threads(1)
    sporco.fft.pyfftw_threads = 1
    warnings.simplefilter("ignore")
    found = compare_codes(args) if args.part == "code" else compare_learning(args)
    settings = {name: value for name, value in vars(args).items() if name != "out"}
    packages = {name: version(name) for name in ("alphacsc", "sporco", "pyfftw")}
    for results in found:  # what there is so far
        report = {"machine": machine(), "packages": packages, "settings": settings, **results}
        args.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
