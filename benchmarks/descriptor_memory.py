"""The memory that 60,000 descriptors of the paper's layer 2 take, and LIBLINEAR upon them.

    python benchmarks/descriptor_memory.py [--images 60000] [--nonzeros 300] [--fit]

Features are drawn at random, as sparse as inferred ones (about 300 of 4,800 are not 0), and described batch by batch.
`--fit` goes on to LIBLINEAR, for a few passes only: it takes its memory at the start. Peaks are resident bytes.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from whatwhere.classification import describe
from whatwhere.classification.matrix import collect_rows
from whatwhere.inference import machine
from whatwhere.spec import DescriptorSpec

RESULTS = Path(__file__).parent / "results" / "descriptor_memory.json"
MAPS, SIDE = 48, 10


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60_000)
    parser.add_argument("--nonzeros", type=int, default=300)
    parser.add_argument("--fit", action="store_true")
    given = parser.parse_args()
    generator = torch.Generator().manual_seed(0)
    share = given.nonzeros / (MAPS * SIDE * SIDE)

    def rows(batch: slice) -> np.ndarray:
        shape = (batch.stop - batch.start, MAPS, SIDE, SIDE)
        p = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) < share)
        return describe([p], DescriptorSpec(), [2]).numpy()

    measured = {"images": given.images, "nonzeros": given.nonzeros, "peak_before": peak()}
    start = time.perf_counter()
    x = collect_rows(rows, given.images, 1000)
    measured |= {"seconds": round(time.perf_counter() - start, 1), "peak_describing": peak()}
    dense = isinstance(x, np.ndarray)
    measured |= {"dimensions": x.shape[1], "kind": "dense" if dense else "CSR"}
    measured["density"] = float(np.count_nonzero(x) if dense else x.nnz) / (x.shape[0] * x.shape[1])
    if given.fit:
        from sklearn.svm import LinearSVC

        y = np.random.default_rng(0).integers(0, 10, given.images)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LinearSVC(C=0.01, dual=False, max_iter=2).fit(x, y)
        measured["peak_fitting"] = peak()
    print(json.dumps(measured))
    results = json.loads(RESULTS.read_text())["runs"] if RESULTS.is_file() else []
    RESULTS.write_text(json.dumps({"machine": machine(), "runs": [*results, measured]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
