"""The memory of finding events in recordings of 10⁵ to 10⁷ samples: the peak of a process of its
own for each.

    python -m benchmarks.memory.recording_memory --out
    benchmarks/memory/results/recording_memory.json

A recording of ten waveforms of 64 samples, 20 events in 1,000 samples, with noise, lies in a .npy
file of float32. Each process runs what `whatwhere events recording.npy RUN --out events.csv`
does, in one thread. The peak is that of its resident memory. `over_the_first_mb` compares it with
that of the process for 10⁴ samples; on a busy machine start-up alone differs by up to 25 MB from
process to process. `growth_mb` compares it with the peak that the same process has after its first
10⁴ samples. A process before all others compiles the machine code, which takes more
memory than any recording.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.signals.signals_peers import ATOMS, LENGTH, draw_waveforms

RATE = 0.002  # events of a waveform, per sample
SHORT = 10_000  # samples of the first recording of every process


def write_recording(path: Path, samples: int) -> None:
    """Piece by piece, in little memory."""
    rng = np.random.default_rng(0)
    D = draw_waveforms(rng)
    file = np.lib.format.open_memmap(path, "w+", np.float32, (samples,))
    for begin in range(0, samples, 1 << 17):
        length = min(1 << 17, samples - begin)
        z = (rng.random((ATOMS, length)) < RATE) * rng.uniform(0.5, 2, (ATOMS, length))
        x = sum(np.convolve(one, d)[:length] for one, d in zip(z, D, strict=True))
        file[begin : begin + length] = x + 0.03 * rng.standard_normal(length)


def find(path: Path, pool: int, threshold: float | None) -> dict[str, float]:
    """In this process: the events of a recording, written to a table."""
    import torch

    import whatwhere as ww
    from whatwhere.signals.event_table import write_events

    torch.set_num_threads(1)
    D = draw_waveforms(np.random.default_rng(0))
    model = ww.DeconvNet(ww.ModelSpec.signals(ATOMS, LENGTH, pool_size=pool))
    model = model.with_filters(1, torch.tensor(D, dtype=torch.float32)[None, :, None])
    recipe = ww.read_recipe("signals")
    table = path.with_suffix(".csv")
    options = threshold
    first = np.load(path, mmap_mode="r")[:SHORT]
    write_events(table, recipe, model, ww.data.load(np.array(first), signals=True), options)
    peak_of_first = peak_mb()
    begun = time.process_time()
    signals = ww.data.load(path, signals=True)
    events = write_events(table, recipe, model, signals, options)
    seconds = time.process_time() - begun
    peak = peak_mb()
    growth = peak - peak_of_first
    return {"peak_mb": peak, "growth_mb": growth, "events": events, "seconds": seconds}


def peak_mb() -> float:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    parser.add_argument("--samples", type=int, nargs="+", default=[10**4, 10**5, 10**6, 10**7])
    parser.add_argument("--pool", type=int, default=1, help="pool_size of the model")
    parser.add_argument(
        "--threshold", type=float, help="of events; without it, chosen from the recording"
    )
    parser.add_argument("--find", type=Path, help="what a process of its own runs")
    args = parser.parse_args()
    if args.find:
        print(json.dumps(find(args.find, args.pool, args.threshold)))
        return
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.npy"
        command = [
            sys.executable,
            "-m",
            "benchmarks.memory.recording_memory",
            "--find",
            str(path),
            "--pool",
            str(args.pool),
        ]
        if args.threshold is not None:
            command += ["--threshold", str(args.threshold)]
        write_recording(path, args.samples[0])
        subprocess.run(command, capture_output=True, check=True)
        for samples in args.samples:
            write_recording(path, samples)
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append(
                {
                    "samples": samples,
                    "pool_size": args.pool,
                    "threshold": args.threshold,
                    **json.loads(done.stdout.splitlines()[-1]),
                }
            )
            rows[-1]["over_the_first_mb"] = rows[-1]["peak_mb"] - rows[0]["peak_mb"]
            print(rows[-1], flush=True)
    if args.out:
        args.out.write_text(json.dumps({"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
