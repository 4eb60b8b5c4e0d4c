"""Draw the curves of results/labelling.md from reproduction/studies/results:  python docs/labelling_curves.py"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

HERE = Path(__file__).parent
RESULTS = HERE.parent / "reproduction" / "studies" / "results"
SETS = {
    "digits": "5,000 digits",
    "fashion": "10,000 of Fashion-MNIST",
    "defects": "236 defects of tiles",
    "tiles": "811 tiles, most of them normal",
}
KINDS = {"suggested": ("#D55E00", "o"), "random": ("#0072B2", "s")}


def main() -> None:
    errors = json.loads((RESULTS / "labelling.json").read_text())["errors"]
    figure, panels = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
    for axis, (name, title) in zip(panels, SETS.items(), strict=True):
        for kind, (colour, marker) in KINDS.items():
            seeds = [errors[f"{name} {kind} {seed}"] for seed in range(3)]
            counts = [int(count) for count in seeds[0]]
            values = 100 * np.array([list(seed.values()) for seed in seeds])
            axis.plot(counts, values.mean(0), color=colour, marker=marker, ms=4, label=kind)
            axis.fill_between(counts, values.min(0), values.max(0), color=colour, alpha=0.15, lw=0)
        axis.set(title=title, xlabel="labels", ylim=(0, None), xlim=(0, 62))
        axis.title.set_fontsize(10)
        axis.grid(alpha=0.3)
    panels[0].set_ylabel("errors on all pictures in %")
    panels[0].legend(frameon=False)
    figure.savefig(HERE / "results" / "labelling-curves.png", dpi=110)


if __name__ == "__main__":
    main()
