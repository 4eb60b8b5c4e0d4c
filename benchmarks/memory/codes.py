"""Codes worth storing: the time, the size and the error of decoding of 5,000 digits with *where*.

    python -m benchmarks.memory.codes OUT.json

Runs `whatwhere encode digits mnist --where` as it is and with `exact=true`, after a run over a few
digits in which the engine compiles. Decoded digits of the small codes are compared with those of
the exact ones. Where pyarrow is installed, the exact code is also written as Parquet (zstd).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import whatwhere as ww

COMPARED = 500  # digits, of which the decoded pictures are compared
FORMS = {"small": [], "exact": ["--set", "exact=true"]}


def encode(images: str, out: Path, *options: str) -> float:
    """Seconds of the command, the start of Python included."""
    words = ["encode", images, "mnist", "--where", "--out", str(out), "--device", "cpu", *options]
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "whatwhere", *words], check=True)
    return time.perf_counter() - start


def decoding_errors(small: Path, exact: Path) -> dict[str, float]:
    """Between pictures decoded from both files, and between the exact code and the digits."""
    model = ww.load("mnist")
    digits = ww.data.load("digits")
    ours = ww.load_codes(small)
    truth = ww.load_codes(exact)
    between = []
    largest = []
    to_digit = []
    for image in range(COMPARED):
        decoded = ours.decode(model, image).numpy()
        reference = truth.decode(model, image).numpy()
        between.append(float(np.square(decoded - reference).mean()))
        largest.append(float(np.abs(decoded - reference).max()))
        to_digit.append(float(np.square(reference - digits[image].numpy()).mean()))
    return {
        "dB between the two, mean": float(np.mean(-10 * np.log10(between))),
        "dB between the two, least": float(-10 * np.log10(max(between))),
        "largest difference, of white": max(largest),
        "dB between exact code and digit, mean": float(np.mean(-10 * np.log10(to_digit))),
    }


def parquet_bytes(exact: Path, folder: Path) -> int | None:
    """The exact code as lists in a Parquet file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return None
    codes = ww.load_codes(exact)
    columns: dict[str, list[Any]] = {}
    for image in range(len(codes)):
        for name, values in sparse_columns(codes[image]).items():
            columns.setdefault(name, []).append(values)
    file = folder / "codes.parquet"
    pq.write_table(pa.table(columns), file, compression="zstd")
    return file.stat().st_size


def sparse_columns(code: Any) -> dict[str, Any]:
    """Places and values of one image's maps."""
    found = {
        "features_indices": code.features.indices.int().numpy(),
        "features_values": code.features.values[:, 0].numpy(),
    }
    for layer, where in enumerate(code.where, 1):
        found[f"where{layer}_indices"] = where.indices.int().numpy()
        for number, values in enumerate(where.values.T):
            found[f"where{layer}_{number}"] = values.numpy()
    return found


def main() -> None:
    out = Path(sys.argv[1])
    results: dict[str, Any] = {"cores": len(os.sched_getaffinity(0)), "digits": 5000}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "few.npy", ww.data.load("digits").pixels[:100])
        encode(str(folder / "few.npy"), folder / "few.npz")
        for form, options in FORMS.items():
            file = folder / f"{form}.npz"
            seconds = encode("digits", file, *options)
            results[form] = {"seconds": round(seconds, 1), "bytes": file.stat().st_size}
            out.write_text(json.dumps(results, indent=1))
        small = folder / "small.npz"
        exact = folder / "exact.npz"
        results["decoding"] = decoding_errors(small, exact)
        out.write_text(json.dumps(results, indent=1))
        results["parquet, exact, bytes"] = parquet_bytes(exact, folder)
    out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
