"""Time one joint step of the page's engine under Node: python benchmarks/explorer_engine.py"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import whatwhere.explorer
from whatwhere import models
from whatwhere.benchmark.machine import machine
from whatwhere.data import load as load_data
from whatwhere.explorer.pack import pack_model, pack_settings
from whatwhere.model import load
from whatwhere.spec import InferenceSpec

HERE = Path(__file__).parent
PAGE = Path(whatwhere.explorer.__file__).parent / "page"


def main() -> None:
    images = load_data("digits", split="test")[:20]
    case = {
        "model": pack_model(load(models.path("mnist"))),
        "height": 28,
        "width": 28,
        "images": [image.flatten().tolist() for image in images],
        "settings": pack_settings(InferenceSpec()),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "case.json"
        path.write_text(json.dumps(case))
        script = HERE / "explorer_engine.mjs"
        printed = subprocess.run(["node", script, PAGE, path], capture_output=True, text=True, check=True).stdout
    found = json.loads(printed)
    steps = np.array(found["milliseconds"])
    summary = {
        "median_step_ms": float(np.median(steps)),
        "largest_step_ms": float(steps.max()),
        "median_50_steps_ms": float(np.median(steps.sum(1))),
    }
    out = HERE / "results" / "explorer_engine.json"
    out.write_text(json.dumps({"machine": machine(), **summary, **found}, indent=1))
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
