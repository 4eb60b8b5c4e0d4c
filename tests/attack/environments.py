"""Commands in odd environments:  python tests/attack/environments.py
(also: make attack)

Each environment runs the same commands in a process of their own. A traceback, an exit status other
than 0, or a result that differs from that of the plain environment counts as a fault and fails the
program.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from parts import Tallies, report, write_counts

ENVIRONMENTS: dict[str, dict[str, str]] = {
    "plain": {},
    "no docstrings, no assertions": {"PYTHONOPTIMIZE": "2"},
    "a home that does not exist": {"HOME": "/nowhere", "XDG_CACHE_HOME": "", "USER": ""},
    "no folder for temporary files": {"TMPDIR": "/nowhere"},
    "ASCII alone": {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    "Latin-1 output": {"PYTHONIOENCODING": "latin-1"},
    "no colours": {"NO_COLOR": "1", "TERM": "dumb"},
    "40 columns": {"COLUMNS": "40"},
    "1 column": {"COLUMNS": "1"},
    "a cache that cannot be written": {"NUMBA_CACHE_DIR": "/proc/nowhere"},
    "a number of threads in words": {"OMP_NUM_THREADS": "many"},
    "another seed of hashes": {"PYTHONHASHSEED": "12345"},
}
COMMANDS = (
    ("--help",),
    ("info",),
    ("denoise", "pictures", "--out", "clean", "--noise", "0.1", "--device", "cpu"),
    ("anomaly", "odd", "pictures", "--out", "odd"),
)


def make_pictures(folder: Path) -> None:
    """Pictures with names that are not ASCII."""
    chance = np.random.default_rng(0)
    folder.mkdir()
    for number in range(6):
        grey = chance.integers(90, 160, (40, 40)).astype(np.uint8)
        Image.fromarray(grey).save(folder / f"Größe {number} €.png")


def result(folder: Path) -> dict[str, str]:
    """The checksums of pictures and tables."""
    files = [path for path in folder.rglob("*") if path.suffix in (".png", ".csv")]
    made = [path for path in files if path.parent.name != "pictures"]
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in made}


def attack() -> Tallies:
    """Run all commands in all environments; the outcomes of each environment."""
    totals: Tallies = {}
    expected: dict[str, str] = {}
    for name, variables in ENVIRONMENTS.items():
        tally = totals[name] = collections.Counter()
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            make_pictures(folder / "pictures")
            for words in COMMANDS:
                done = subprocess.run(
                    [sys.executable, "-m", "whatwhere", *words],
                    cwd=folder,
                    env={**os.environ, **variables},
                    capture_output=True,
                    check=False,
                )
                if done.returncode or b"Traceback" in done.stderr:
                    tally[f"FAULT {words[0]} ends with {done.returncode}"] += 1
                    print(f"{name}: {words}\n{done.stderr.decode(errors='replace')}", flush=True)
                else:
                    tally["works"] += 1
            found = result(folder)
            expected = expected or found
            if found != expected:
                tally["FAULT another result"] += 1
    assert expected, "the commands wrote nothing"
    return totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write the counts to this JSON file")
    arguments = parser.parse_args()
    totals = attack()
    if arguments.out:
        write_counts(arguments.out, totals)
    sys.exit(report(totals))


if __name__ == "__main__":
    main()
