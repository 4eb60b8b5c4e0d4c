"""Promised intervals of false alarms, by brute force: simulated scores whose true rate is known.

    python -m benchmarks.defects.promise

Groups of normal pictures, such as photographs of one part, share a part of their score; some scores
have a heavy tail, whose largest are left out as `fit` does. The table says how often the true rate
lies in the interval that is promised with 95 %, with the estimate of how many pictures count as one
and without it. Results go to results/promise.json.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from scipy.stats import norm

from whatwhere.anomaly.threshold import choose_threshold, far_above, pictures_alike

RESULTS = Path(__file__).parent / "results" / "promise.json"
TRIALS = 400


def held(count: int, of: int, likeness: float, *, heavy: bool) -> dict[str, float]:
    """How often the interval holds the true rate, for `count` pictures in groups of `of`."""
    generator = np.random.default_rng(0)
    with_groups, independent, rates, highs = [], [], [], []
    for _ in range(TRIALS):
        shared = np.repeat(generator.normal(size=-(-count // of)), of)[:count]
        own = generator.normal(size=count)
        score = math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * own
        seen = np.exp(score) if heavy else score
        far = far_above(seen)
        others = np.delete(seen, far)
        chosen = choose_threshold(others, 0.05, len(far), pictures_alike(seen))
        plain = choose_threshold(others, 0.05, len(far))
        value = math.log(max(chosen.value, 1e-300)) if heavy else chosen.value
        rate = float(norm.sf(value))
        rates.append(rate)
        highs.append(chosen.interval[1])
        with_groups.append(chosen.interval[0] <= rate <= chosen.interval[1])
        independent.append(plain.interval[0] <= rate <= plain.interval[1])
    return {
        "held": round(float(np.mean(with_groups)), 3),
        "held, as if independent": round(float(np.mean(independent)), 3),
        "true rate": round(float(np.mean(rates)), 3),
        "upper end": round(float(np.mean(highs)), 3),
    }


def main() -> None:
    """Measure all cases."""
    rows = {}
    for count in (20, 40, 90, 200):
        for of, likeness in ((1, 0.0), (2, 0.6), (3, 0.6), (6, 0.5), (6, 0.9)):
            for heavy in (False, True):
                tail = "heavy tail" if heavy else "normal tail"
                key = f"{count} pictures, groups of {of}, likeness {likeness}, {tail}"
                rows[key] = held(count, of, likeness, heavy=heavy)
                print(key, rows[key], flush=True)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
