"""How accurate the times of events are: simulated recordings with known times and noise, next to
the bound.

    python -m reproduction.studies.event_times --out reproduction/studies/results/event_times.json

A recording has events of one known waveform d (a windowed oscillation of 64 samples, unit length)
with amplitude 1 at times drawn from the continuum, at least two waveforms apart, in white noise of
variance σ². The signal-to-noise ratio is that of the mean power of a waveform over its 64 samples,
1/64 / σ². No unbiased estimate of a time has a smaller standard deviation than the bound of Cramér
and Rao, σ / ‖d'‖ (the amplitude is unknown, too, but ⟨d, d'⟩ = 0).

Compared: `events()` for several regions; its parts, the feature's μ and the centre of its region
alone; the plain code without pooling (regions of one sample) by its largest coefficient, by its
events, and by a parabola through the largest coefficient and its neighbours; and the
maximum-likelihood estimate, which knows that events do not overlap. Every estimate is taken for the
true event within 3 samples of it; others are missed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww

LENGTH = 64
FREQUENCY = 0.07
SPREAD = 8.0
PHASE = 0.6
REACH = 3.0  # samples


def waveform(t: np.ndarray) -> np.ndarray:
    """The waveform at times t from its centre; 0 beyond its 64 samples but for rounding."""
    return np.cos(2 * np.pi * FREQUENCY * t + PHASE) * np.exp(-(t**2) / (2 * SPREAD**2))


CENTRED = np.arange(LENGTH) - (LENGTH - 1) / 2
PEAK = float(CENTRED[np.abs(waveform(CENTRED)).argmax()])  # of the waveform, from its centre
NORM = float(np.linalg.norm(waveform(CENTRED)))
SLOPE = float(np.linalg.norm((waveform(CENTRED + 1e-4) - waveform(CENTRED - 1e-4)) / 2e-4 / NORM))


def simulate(
    rng: np.random.Generator, events: int, decibels: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """A recording [T], the times of its events, and σ."""
    times = 2 * LENGTH + np.cumsum(rng.uniform(2 * LENGTH, 3 * LENGTH, events))
    samples = np.arange(int(times[-1]) + 3 * LENGTH)
    x = sum(waveform(samples - t) for t in times) / NORM
    sigma = (1 / LENGTH / 10 ** (decibels / 10)) ** 0.5
    return x + sigma * rng.standard_normal(len(x)), times, sigma


def model_of(pool: int, stride: int) -> ww.DeconvNet:
    model = ww.DeconvNet(
        ww.ModelSpec.signals(1, LENGTH, pool_size=pool, pool_stride=stride), dtype=torch.float64
    )
    return model.with_filters(1, torch.from_numpy(waveform(CENTRED) / NORM)[None, None, None])


def likeliest(x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The time of the best fit of one waveform near each event, on a grid of a hundredth of a
    sample."""
    found = []
    for t in times:
        near = np.arange(int(t) - 48, int(t) + 49)
        grid = t + np.arange(-REACH, REACH, 0.01)
        found.append(grid[np.argmax([x[near] @ waveform(near - g) for g in grid])])
    return np.array(found)


def errors(found: np.ndarray, strength: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Of the strongest estimate near each event; NaN where there is none."""
    result = np.full(len(times), np.nan)
    for n, t in enumerate(times):
        near = np.flatnonzero(np.abs(found - t) <= REACH)
        if len(near):
            result[n] = found[near[strength[near].argmax()]] - t
    return result


def estimates(
    x: np.ndarray, times: np.ndarray, pool: int, stride: int, lam: float
) -> dict[str, np.ndarray]:
    """Errors by the ways to read a time off the code of one recording."""
    solution = ww.infer(model_of(pool, stride), x[None, None], ww.InferenceSpec.coding(lam=lam))
    events = solution.events()
    p = solution.features[0, 0].numpy()
    used = np.flatnonzero(p)
    centre = used * stride + (pool - 1) / 2 - (LENGTH - 1) / 2
    mu = solution.latents.pooling_params[0].mu[0, 1, 0, 0].numpy()[used]
    # an event's time is that of its waveform's peak; the true times are those of the centre
    ways = {"events": errors(events["sample"] - PEAK, events["amplitude"], times)}
    if pool > 1:
        return {
            **ways,
            "centre of the region": errors(centre, p[used], times),
            "μ": errors(centre + mu, p[used], times),
        }
    padded = np.pad(p, 1)
    left = padded[used]
    right = padded[used + 2]
    parabola = centre + (right - left) / (2 * (2 * p[used] - left - right))
    return {
        **ways,
        "largest": errors(centre, p[used], times),
        "parabola": errors(parabola, p[used], times),
    }


def summary(found: np.ndarray, bound: float) -> dict[str, float]:
    known = found[~np.isnan(found)]
    rms = float(np.sqrt(np.mean(known**2)))
    return {
        "rms": rms,
        "over_the_bound": rms / bound,
        "bias": float(known.mean()),
        "missed": int(np.isnan(found).sum()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--decibels", type=int, nargs="+", default=[0, 5, 10, 15, 20, 30])
    parser.add_argument(
        "--pools",
        type=int,
        nargs="+",
        default=[1, 1, 2, 1, 2, 2, 4, 2, 4, 4],
        help="sizes and strides",
    )
    parser.add_argument(
        "--threshold", type=float, default=4.0, help="1/λ in standard deviations of the noise"
    )
    args = parser.parse_args()
    rows = []
    for decibels in args.decibels:
        x, times, sigma = simulate(np.random.default_rng(1000 + decibels), args.events, decibels)
        bound = sigma / SLOPE
        rows.append(
            {
                "dB": decibels,
                "bound": bound,
                "way": "maximum likelihood",
                **summary(likeliest(x, times) - times, bound),
            }
        )
        for pool, stride in zip(args.pools[::2], args.pools[1::2], strict=True):
            for way, found in estimates(
                x, times, pool, stride, 1 / (args.threshold * sigma)
            ).items():
                row = {
                    "dB": decibels,
                    "bound": bound,
                    "pool": pool,
                    "stride": stride,
                    "way": way,
                    **summary(found, bound),
                }
                rows.append(row)
                print(row, flush=True)
    settings = {
        "events": args.events,
        "threshold": args.threshold,
        "waveform": [LENGTH, FREQUENCY, SPREAD, PHASE],
    }
    args.out.write_text(json.dumps({"settings": settings, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
