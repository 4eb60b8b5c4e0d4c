"""Measure the scattering baseline: the features of kymatio on the same splits with the same SVM.

kymatio 0.3 needs scipy < 1.17, so this runs in an environment of its own:

    python -m venv scattering-env
    scattering-env/bin/pip install 'kymatio==0.3.*' 'scipy<1.17' --editable '.[sklearn]'
    scattering-env/bin/python benchmarks/scattering.py --scale quick

Its result files are next to the others under results/, and `whatwhere reproduce report` shows them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from whatwhere.reproduction.reproduce import ReproduceOptions, reproduce
from whatwhere.reproduction.scale import SCALES, read_scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", choices=SCALES, default="quick")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--only", default="Scattering", help="only cells whose name contains this")
    given = parser.parse_args()
    reproduce(["comparison"], read_scale(given.scale), ReproduceOptions(given.results, device="cpu", only=given.only))


if __name__ == "__main__":
    main()
