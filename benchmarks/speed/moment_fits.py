"""What a change of the moment fit costs the pooling layer on the CPU, two source trees in turns:

    python -m benchmarks.speed.moment_fits BEFORE AFTER [ROUNDS]

BEFORE and AFTER are folders that hold the package. Milliseconds of processor time for
`GaussianPool2d(2)` on 8 × 32 maps of 64 × 64, one thread, the best of 60 calls in every process.
`benchmarks/speed/cpu_check.py` measures whole inference in the same way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

CALLS = 60


def measure() -> None:
    """Print the best time of the tree that is imported."""
    import torch

    import whatwhere as ww

    torch.set_num_threads(1)
    pool = ww.nn.GaussianPool2d(2)
    maps = torch.rand(8, 32, 64, 64, generator=torch.Generator().manual_seed(0))
    times = []
    with torch.no_grad():
        for _ in range(CALLS):
            start = time.process_time()
            pool(maps)
            times.append(time.process_time() - start)
    print(1e3 * min(times))


def main(before: str, after: str, rounds: str = "3") -> None:
    for _ in range(int(rounds)):
        row = {}
        for name, tree in (("before", before), ("after", after)):
            environment = os.environ | {"PYTHONPATH": tree}
            command = [sys.executable, "-m", "benchmarks.speed.moment_fits"]
            printed = subprocess.check_output(command, env=environment, text=True)
            row[name] = round(float(printed), 3)
        print(json.dumps(row | {"ratio": round(row["after"] / row["before"], 3)}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        measure()
