"""Heart beats in harder variants of MIT-BIH records: what breaks, with nothing set by hand.

    python -m benchmarks.signals.harder_beats mit-bih.npz --out harder_beats.jsonl

The file is that of `heart_beats.py`. Every variant changes the first ten minutes of a record:
baseline wander of 1.5 mV, leads that are inverted, missing, flat, weak, fading or off for a while,
hum, and muscle noise (20 to 150 Hz), also in bursts. F1 as in `heart_beats.py`.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.signals.heart_beats import RATE, compare

Variant = Callable[[np.ndarray, np.random.Generator], np.ndarray]


def _times(x: np.ndarray) -> np.ndarray:
    return np.arange(x.shape[1]) / RATE


def _muscle(x: np.ndarray, rng: np.random.Generator, size: float, bursts: bool) -> np.ndarray:
    spectrum = np.fft.rfft(rng.standard_normal(x.shape))
    hertz = np.fft.rfftfreq(x.shape[1], 1 / RATE)
    spectrum[:, (hertz < 20) | (hertz > 150)] = 0
    noise = np.fft.irfft(spectrum, x.shape[1])
    on = np.sin(2 * np.pi * _times(x) / 37) > 0.8 if bursts else 1
    return x + size * noise / noise.std() * on


def _wander(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    t = _times(x)
    return x + np.sin(2 * np.pi * 0.25 * t) + 0.5 * np.sin(2 * np.pi * 0.11 * t + 1)


def _off(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    third = x.shape[1] // 3
    y = x.copy()
    y[0, third : 2 * third] = 0.01 * rng.standard_normal(third)
    return y


def _scaled(x: np.ndarray, rng: np.random.Generator, sizes: tuple[float, float]) -> np.ndarray:
    return x * np.array(sizes)[:, None]


VARIANTS: dict[str, Variant] = {
    "as it is": lambda x, _: x,
    "inverted": lambda x, _: -x,
    "one inverted": partial(_scaled, sizes=(1, -1)),
    "lead 0": lambda x, _: x[:1],
    "lead 1": lambda x, _: x[1:],
    "lead 0 inverted": lambda x, _: -x[:1],
    "lead 1 inverted": lambda x, _: -x[1:],
    "lead 0 weak": partial(_scaled, sizes=(0.1, 1)),
    "lead 1 weak": partial(_scaled, sizes=(1, 0.1)),
    "lead 1 flat": partial(_scaled, sizes=(1, 0)),
    "lead 0 off for a third": _off,
    "fading to 0.3": lambda x, _: x * np.linspace(1, 0.3, x.shape[1]),
    "hum 0.2 mV": lambda x, _: x + 0.2 * np.sin(2 * np.pi * 50.03 * _times(x)),
    "wander 1.5 mV": _wander,
    "muscle 0.1 mV": partial(_muscle, size=0.1, bursts=False),
    "muscle 0.2 mV": partial(_muscle, size=0.2, bursts=False),
    "bursts of 0.3 mV": partial(_muscle, size=0.3, bursts=True),
}


def found_in(millivolts: np.ndarray) -> np.ndarray:
    import whatwhere as ww

    values = np.ascontiguousarray(millivolts[None], np.float32)
    signals = ww.data.load(values, signals=True, rate=RATE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = ww.train(signals)
    return np.sort(ww.find_events(run.model, signals, run.recipe.inference)["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--records", nargs="+")
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    length = round(args.minutes * 60 * RATE)
    with np.load(args.file) as file:
        for name in args.records or sorted(name for name in file.files if name.isdigit()):
            counts = file[name].T if file[name].shape[0] > file[name].shape[1] else file[name]
            beats = file[f"{name}_beats"]
            for variant in args.variants:
                rng = np.random.default_rng(int(name))
                x = VARIANTS[variant]((counts[:, :length] - 1024.0) / 200, rng)
                begun = time.process_time()
                scores = compare(beats[beats < length] / RATE, found_in(x))
                row: dict[str, Any] = {"record": name, "variant": variant, **scores}
                row |= {"processor_seconds": time.process_time() - begun}
                print(row, flush=True)
                if args.out:
                    with args.out.open("a", encoding="utf-8") as rows:
                        rows.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
