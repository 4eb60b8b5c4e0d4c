"""`whatwhere demo` as a person runs it: wall-clock and processor seconds, memory, and its errors.

    python -m benchmarks.speed.demo

The load average tells how busy the machine was with other things: on two idle cores wall-clock time
is what counts, on busy ones the processor seconds.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.machine import machine

RESULTS = Path(__file__).parent / "results" / "demo.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        before, start = os.getloadavg(), time.monotonic()
        command = [sys.executable, "-m", "whatwhere", "demo", "--out", f"{folder}/demo", "--json"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    wall, used = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    result = json.loads(done.stdout)
    result.pop("report")
    cost = {
        "wall_seconds": round(wall, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_bytes": used.ru_maxrss * 1024,
        "load_average": [before[0], os.getloadavg()[0]],
    }
    RESULTS.write_text(
        json.dumps({"machine": machine(), **cost, "result": result}, indent=1) + "\n"
    )
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
