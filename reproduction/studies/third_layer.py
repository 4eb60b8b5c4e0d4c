"""A third layer on clothes and on pictures in colour: the error of every layer, alone and side by
side.

    python -m reproduction.studies.third_layer --data FILE.npz --name fashion --out FOLDER

FILE.npz holds `images` [N, C, H, W] (uint8), `labels` and `test`, which of them are test images, by
seed: bool [seeds, N]. Each seed has a model of its own, learned without labels from the images that
are no test images. C of the linear SVM is chosen within them. Results that FOLDER has are left out,
and no training begins after `--seconds`. `pack` makes such a file of a folder of pictures with a
folder for each class.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.machine import machine
from reproduction.few_labels import cross_validation
from reproduction.scale import SCALES, read_scale
from whatwhere import DeconvNet, save
from whatwhere.classification import describe_images, fit_svm, protocol
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import Recipe

INPUTS: dict[str, dict[str, Any]] = {
    "image as it is": {},
    "ON/OFF": {  # of the table fashion
        "kind": "onoff",
        "sigma": 4.0,
        "contrast": 1.0,
        "contrast_sigma": 4.0,
        "contrast_floor": 0.03,
    },
}
LAYERS = {
    "layer 1": (1,),
    "layer 2": (2,),
    "layer 3": (3,),
    "layers 1 and 2": (1, 2),
    "layers 2 and 3": (2, 3),
    "layers 1, 2 and 3": (1, 2, 3),
}
GRID = (1.0, 3.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Pictures:
    """Pictures to learn from and to evaluate on.

    train, test  [N, C, H, W], between 0 and 1
    labels       of `train`
    truth        of `test`
    """

    train: Tensor
    labels: np.ndarray
    test: Tensor
    truth: np.ndarray

    @classmethod
    def read(cls, file: Path, seed: int) -> Pictures:
        """The pictures of a file, in the division of a seed."""
        with np.load(file) as content:
            images = torch.from_numpy(content["images"]).float() / 255
            labels, test = content["labels"].astype(np.int64), content["test"][seed]
        held = torch.from_numpy(test)
        return cls(images[~held], labels[~test], images[held], labels[test])


def pack(folder: Path, file: Path, size: int, seeds: int = 3) -> None:
    """Write the pictures of a folder, scaled to a side of `size`; a half of each class is for
    testing, another one with each seed."""
    from PIL import Image

    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    kinds = sorted({path.parent.name for path in paths})
    pictures = [
        np.asarray(Image.open(path).convert("RGB").resize((size, size), Image.Resampling.BOX))
        for path in paths
    ]
    labels = np.array([kinds.index(path.parent.name) for path in paths])
    test = np.stack([halves(labels, seed) for seed in range(seeds)])
    np.savez_compressed(
        file, images=np.stack(pictures).transpose(0, 3, 1, 2), labels=labels, test=test
    )


def halves(labels: np.ndarray, seed: int) -> np.ndarray:
    """Half of each class at random, bool [N]."""
    chosen = np.zeros(len(labels), dtype=bool)
    generator = np.random.default_rng(seed)
    for kind in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == kind))
        chosen[rows[: len(rows) // 2]] = True
    return chosen


def recipe_of(scale: str, channels: int, images: int, kind: str, seed: int) -> Recipe:
    """The recipe of the table `deep`, with the epochs of the table `fashion`."""
    deep = {"epochs": 20, "update": {"reset_at": [10]}}
    learning = {"1": {"epochs": 15, "update": {"reset_at": [7]}}, "2": deep, "3": deep}
    layers = [{"maps": 16}, {"maps": 48, "fan_in": 8}, {"maps": 96, "fan_in": 8}]
    model = {"channels": channels, "layers": layers, "input": INPUTS[kind]}
    recipe = read_scale(scale).recipe({"model": model}, {"learning": learning})
    return replace(recipe, seed=seed, batch_size=min(recipe.batch_size, images))


def errors(model: DeconvNet, recipe: Recipe, pictures: Pictures) -> dict[str, Any]:
    """The error of a linear SVM in per cent, by the layers that are described."""
    found: dict[str, Any] = {}
    for name, layers in LAYERS.items():
        spec = replace(recipe, descriptor=replace(recipe.descriptor, layers=layers))
        on_device = model.device.type == "cuda"
        rows, test = (
            describe_images(model, each, spec, on_device=on_device)
            for each in (pictures.train, pictures.test)
        )
        found[name] = svm_error(rows, test, pictures, model.device)
        print(f"  {name}: {found[name]}", flush=True)
    return found


def svm_error(rows: Any, test: Any, pictures: Pictures, device: torch.device) -> dict[str, Any]:
    """The error of a linear SVM in per cent, C chosen by cross-validation of the training
    pictures, and the loss of the pictures it missed."""
    turns = cross_validation(pictures.labels)
    chosen = turns if len(pictures.labels) < 1000 else turns[:1]
    best, _ = protocol.choose(rows, pictures.labels, grid=GRID, validation=chosen, device=device)
    svm = fit_svm(rows, pictures.labels, best.C, device=device)
    wrong = svm.predict(test) != pictures.truth
    return {"error": 100 * float(wrong.mean()), "C": best.C, "columns": int(rows.shape[1])}


def pixel_error(pictures: Pictures) -> dict[str, Any]:
    """The error of the pictures' own numbers, in rows of unit length."""
    rows, test = (
        torch.nn.functional.normalize(each.flatten(1), dim=1).numpy()
        for each in (pictures.train, pictures.test)
    )
    return svm_error(rows, test, pictures, torch.device("cpu"))


def study(given: argparse.Namespace) -> None:
    file = given.out / f"third_layer_{given.name}.json"
    given.out.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    content = content or {"machine": machine(), "results": {}}
    began = time.monotonic()
    for seed in given.seeds:
        pictures = Pictures.read(given.data, seed)
        for kind in given.inputs:
            key = f"{kind}, seed {seed}"
            if key in content["results"] or time.monotonic() - began > given.seconds:
                continue
            channels, count = pictures.train.shape[1], len(pictures.train)
            recipe = recipe_of(given.scale, channels, count, kind, seed)
            since = time.monotonic()
            print(f"{key}: {count} pictures", flush=True)
            with TemporaryDirectory() as folder:
                options = TrainingOptions(device=given.device, checkpoint_every=0)
                run = train(pictures.train, recipe, Path(folder, "run"), options=options)
            save(run.model, given.out / f"{given.name}-{kind.replace('/', '')}-{seed}.safetensors")
            last = {epoch.layer: epoch for epoch in run.history}
            print(f"  trained in {time.monotonic() - since:.0f} s", flush=True)
            content["results"][key] = {
                "pictures": count,
                "test pictures": len(pictures.truth),
                "pixels": pixel_error(pictures),
                "errors": errors(run.model.to(given.device), recipe, pictures),
                "cost": {str(k): epoch.cost for k, epoch in last.items()},
                "unused maps": {str(k): epoch.dead_maps for k, epoch in last.items()},
                "seconds": time.monotonic() - since,
            }
            file.write_text(json.dumps(content) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True, help="of the result file")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", choices=SCALES, default="paper")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--inputs", nargs="+", choices=INPUTS, default=list(INPUTS))
    parser.add_argument("--seconds", type=float, default=3600.0)
    with torch.no_grad():
        study(parser.parse_args())


if __name__ == "__main__":
    main()
