"""Scattering beside the model: the features of kymatio, columns standardised, on the same splits with the same SVM.

kymatio 0.3 needs scipy < 1.17, so this runs in an environment of its own:

    python -m venv scattering-env
    scattering-env/bin/pip install 'kymatio==0.3.*' 'scipy<1.17' --editable '.[sklearn]'
    scattering-env/bin/python benchmarks/scattering.py --scale quick

Its result files lie beside the others under results/, and `whatwhere reproduce report` shows them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from kymatio.torch import Scattering2D

from whatwhere.data import Images
from whatwhere.reproduction.baselines import BASELINES, SCATTERING, standardise
from whatwhere.reproduction.measure import Laboratory
from whatwhere.reproduction.models import Models
from whatwhere.reproduction.reproduce import shown, work
from whatwhere.reproduction.results import Results, value_of
from whatwhere.reproduction.scales import SCALES, read_scale


def scatter(training: Images, test: Images) -> tuple[np.ndarray, np.ndarray]:
    """Scattering coefficients of every image, side by side, standardised by the training images."""
    transform = Scattering2D(
        J=SCATTERING["J"], L=SCATTERING["L"], max_order=SCATTERING["order"], shape=training.shape[1:]
    )

    def describe(images: Images) -> np.ndarray:
        with torch.no_grad():
            return np.concatenate([transform(images[rows]).flatten(1).numpy() for rows in images.batches(250)])

    return standardise(describe(training), describe(test))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=SCALES, default="quick")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--only", default="", help="only cells whose name holds this, such as 'all labels'")
    given = parser.parse_args()

    BASELINES["scattering"] = replace(BASELINES["scattering"], describe=scatter)
    results = Results(given.results / given.scale)
    nowhere = Path("there are no models here")
    laboratory = Laboratory(results, Models(results, nowhere, nowhere, device="cpu"))
    for subject, cell in work(["comparison"], read_scale(given.scale), only=given.only).items():
        if subject.settings.get("baseline", {}).get("name") != "scattering":
            continue
        found = laboratory.measure(subject)
        print(f"{cell.name}: {shown(value_of(found, cell.measure), cell)}")


if __name__ == "__main__":
    main()
