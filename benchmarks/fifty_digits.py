"""Seconds of each call on 50 digits with its defaults, with machine code in place: python
benchmarks/fifty_digits.py

Written to benchmarks/results/fifty_digits.json: wall time and processor time of each.
"""

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import machine

import whatwhere as ww
from whatwhere.classification import describe_images

FILE = Path(__file__).parent / "results" / "fifty_digits.json"
digits = ww.data.load("digits")
images, labels = digits[:50], digits.labels[:50]  # type: ignore[index]
X, model = images.numpy(), ww.load("mnist")
features = ww.DeconvNetFeatures()
hole = torch.ones(50, 1, 28, 28)
hole[..., 10:16, 10:16] = 0
few = np.where(np.arange(50) < 10, labels, -1)
CALLS: dict[str, Callable[[], Any]] = {
    "infer": lambda: ww.infer(model, images),
    "infer, converged codes": lambda: ww.infer(model, images, ww.InferenceSpec.coding()),
    "train": lambda: ww.train(images),
    "DeconvNetFeatures().fit": lambda: features.fit(X),
    "DeconvNetFeatures().transform": lambda: features.transform(X),
    "DeconvNetFeatures().encode": lambda: features.encode(X),
    "DeconvNetFeatures(invariant_to=Distortions()).fit": lambda: ww.DeconvNetFeatures(
        invariant_to=ww.Distortions()
    ).fit(X),
    "describe_images": lambda: describe_images(model, images, ww.Recipe.paper()),
    "GraphClassifier().fit": lambda: ww.GraphClassifier().fit(features.transform(X), few),
    "AnomalyDetector().fit": lambda: ww.AnomalyDetector().fit(X),
    "restoration.denoise": lambda: ww.restoration.denoise(ww.restoration.load_denoiser(), images),
    "generate": lambda: ww.generate(ww.infer(model, images), 50),
    "Labelling": lambda: ww.Labelling(digits.subset(np.arange(50)), run="mnist"),
    "restoration.inpaint": lambda: ww.restoration.inpaint(
        ww.restoration.load_denoiser(), images, hole
    ),
}


def main() -> None:
    warnings.simplefilter("ignore")
    ww.infer(model, images[:1], engine="cpu")  # machine code
    rows = {}
    for name, call in CALLS.items():
        wall, processor = time.perf_counter(), time.process_time()
        try:
            call()
            rows[name] = {
                "seconds": round(time.perf_counter() - wall, 2),
                "processor_seconds": round(time.process_time() - processor, 2),
            }
        except (TypeError, ValueError, ww.errors.WhatwhereError) as error:
            rows[name] = {"error": str(error)[:200]}
        print(name, rows[name], flush=True)
        out = {"machine": machine(), "load": os.getloadavg()[0], "calls": rows}
        FILE.write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
