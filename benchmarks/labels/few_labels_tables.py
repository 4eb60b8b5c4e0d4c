"""The tables of few labels on MNIST and Fashion-MNIST, by this version and by an earlier one.

    python -m benchmarks.labels.few_labels_tables DATA --out FILE.json \
        [--versions now=src before=OTHER/src] [--sets mnist fashion-mnist] [--part test]

Rows are those of docs/results/few_labels.md: models learn in a stream from the first 50,000
training images, both layers are described, every kind of descriptor has its own metric. Test: the
60,000 training images are in the graph, and test images join it. Validation: 50,000 are, and the
other 10,000 join. Rows are made once; each version's `GraphClassifier` is fitted to the same ones
in a process of its own (`few_labels_of_rows.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.labels import ten_labels as study
from benchmarks.labels.one_rule import ROWS, DataSet, Rows
from whatwhere.classification.descriptors import unit_length

# the kinds of descriptors that stand side by side
FEATURES = {
    "mnist": {
        "one model": ("image",),
        "one model, both views": ("image", "image upright"),
        "three models, both views": (
            "image",
            "image upright",
            "sigma 4",
            "sigma 4 upright",
            "sigma 2",
            "sigma 2 upright",
        ),
        "scattering, both views": ("scattering", "scattering upright"),
    },
    "fashion-mnist": {
        "three models": ("image", "sigma 4", "sigma 2"),
        "one model": ("image",),
        "scattering": ("scattering",),
    },
}
OF_ROWS = Path(__file__).with_name("few_labels_of_rows.py")


def side_by_side(data: DataSet, part: str, keys: tuple[str, ...]) -> Rows:
    """Rows and classes of several kinds of descriptors."""
    _, how = ROWS[data.name]
    parts = [data.kind(key).rows(part, how) for key in keys]
    known = unit_length(torch.cat([rows[0] for rows in parts], 1))
    new = unit_length(torch.cat([rows[2] for rows in parts], 1))
    return known, parts[0][1], new, parts[0][3]


def write_rows(rows: Rows, file: Path) -> None:
    known, labels, new, new_labels = (part.cpu().numpy() for part in rows)
    np.savez(
        file,
        rows=known.astype(np.float32),
        labels=labels,
        new_rows=new.astype(np.float32),
        new_labels=new_labels,
    )


def errors_by(source: str, rows: Path, device: str) -> dict[str, Any]:
    """The errors of the version whose package lies in the folder `source`."""
    out = rows.with_suffix(".json")
    environment = {**os.environ, "PYTHONPATH": str(Path(source).resolve())}
    command = [sys.executable, str(OF_ROWS), str(rows), "--out", str(out), "--device", device]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.stderr[-1000:]}
    return dict(json.loads(out.read_text()))


class Results:
    """Results as JSON, written after every step."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, dict[str, Any]] = {}

    def keep(self, name: str, key: str, value: Any) -> None:
        self.found.setdefault(name, {})[key] = value
        temporary = self.file.with_suffix(".part")
        temporary.write_text(json.dumps(self.found, indent=1) + "\n")
        os.replace(temporary, self.file)


def measure(
    data: DataSet, part: str, title: str, versions: dict[str, str], results: Results
) -> None:
    """Make the rows of one kind, and fit every version to them."""
    name = f"{data.name}, {part}, {title}"
    start = time.perf_counter()
    try:
        rows = side_by_side(data, part, FEATURES[data.name][title])
    except ImportError as error:  # kymatio may not be installed
        results.keep(name, "failed", str(error))
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.npz"
        write_rows(rows, file)
        results.keep(name, "columns", rows[0].shape[1])
        results.keep(name, "seconds of rows", round(time.perf_counter() - start, 1))
        for version, source in versions.items():
            results.keep(name, version, errors_by(source, file, study.DEVICE))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--versions", nargs="+", default=["now=src"])
    parser.add_argument("--sets", nargs="+", default=list(FEATURES), choices=list(FEATURES))
    parser.add_argument("--part", default="test", choices=("validation", "test"))
    parser.add_argument("--tiny", action="store_true", help="few images, to see that it runs")
    options = parser.parse_args()
    if options.tiny:
        study.TINY = True
        study.BATCH = 100
    results = Results(options.out)
    versions = dict(given.split("=", 1) for given in options.versions)
    with tempfile.TemporaryDirectory() as models:
        for name in options.sets:
            data = DataSet(name, options.data, Path(models))
            for title in FEATURES[name]:
                measure(data, options.part, title, versions, results)


if __name__ == "__main__":
    main()
