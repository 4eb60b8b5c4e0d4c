"""Time one joint step of the page's engine under Node: python -m benchmarks.speed.explorer_engine
[page folder]

A folder with an older version of the page's modules is measured in its place. Every measurement is
added to the file of results, so that it shows before and after.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from whatwhere import load, models
from whatwhere.data import load as load_data
from whatwhere.explorer.page import pack_model, pack_settings
from whatwhere.html import ASSETS
from whatwhere.spec import InferenceSpec, Power

HERE = Path(__file__).parent
PAGE = ASSETS
SETTINGS = {
    "settings of testing (λ 5, α 1)": InferenceSpec(),
    "settings of training (λ 0.5, α ½)": InferenceSpec(lam=0.5, penalty=Power(alpha=0.5)),
}


def main(page: Path = PAGE) -> None:
    results = {name: measure(spec, page) for name, spec in SETTINGS.items()}
    out = HERE / "results" / "explorer_engine.json"
    version = "this version" if page == PAGE else page.name
    measurement = {
        "version": version,
        "machine": machine(),
        "load": os.getloadavg(),
        "results": results,
    }
    earlier = json.loads(out.read_text())["measurements"] if out.exists() else []
    out.write_text(json.dumps({"measurements": [*earlier, measurement]}, indent=1))
    for name, result in results.items():
        times = [one["processor"] for one in result["milliseconds_a_step"]]
        print(
            f"{name}: median {np.median(times):.2f} ms a step, from {min(times):.2f} to"
            f" {max(times):.2f}"
        )


def measure(spec: InferenceSpec, page: Path) -> dict[str, Any]:
    """The times that Node measures on 20 digits with these settings."""
    case = {
        "model": pack_model(load(models.path("mnist"))),
        "height": 28,
        "width": 28,
        "images": [image.flatten().tolist() for image in load_data("digits", split="test")[:20]],
        "settings": pack_settings(spec),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case))
        command = ["node", str(HERE / "explorer_engine.mjs"), str(page), str(path)]
        times: dict[str, Any] = json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )
    return times


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
