"""The size of a file of codes, dense and sparse: 300 photograph tiles, 32 filters of 8×8 with 2×2 regions.

    python benchmarks/code_size.py

Crops of 64×64 pixels of china.jpg and flower.jpg of scikit-learn in grey; the model of benchmarks/large_pictures.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from large_pictures import gabor_model
from PIL import Image
from sklearn.datasets import load_sample_image

from whatwhere import load_codes
from whatwhere.cli.encode import EncodeOptions
from whatwhere.cli.encoding import Encoder
from whatwhere.data import random_crops
from whatwhere.inference import machine
from whatwhere.spec import InferenceSpec, LearningSpec, LineSearch, Recipe

RESULTS = Path(__file__).parent / "results" / "code_size.json"
TILES = 300


def sizes(kind: str, path: Path, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The size of a file with pooling variables, and of its features alone, in MB."""
    features = sum(array.nbytes for name, array in arrays.items() if name.startswith("features"))
    return {"kind": kind, "file_MB": path.stat().st_size / 1e6, "features_MB": features / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--lam", type=float, default=20.0)
    args = parser.parse_args()
    spec = InferenceSpec(lam=args.lam, steps=args.steps, step=LineSearch(momentum=True))
    model = gabor_model()
    recipe = Recipe(model=model.spec, learning=(LearningSpec(inference=spec),), inference=spec)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("china.jpg", "flower.jpg"):
            grey = np.rint(load_sample_image(name).mean(2)).astype(np.uint8)
            Image.fromarray(grey).save(Path(folder) / f"{name}.png")
        crops = random_crops(folder, 64, TILES)
        dense, sparse = Path(folder) / "dense.npz", Path(folder) / "sparse.npz"
        Encoder(recipe, model, [(crops, None)], EncodeOptions(where=True)).write(sparse, lambda images: None)
        codes = load_codes(sparse)
        theta = [codes.latents(i).pooling_params[0] for i in range(len(codes))]
        mu, gamma = (np.concatenate([np.asarray(getattr(t, name)) for t in theta]) for name in ("mu", "gamma"))
        np.savez(dense, features=codes.features, mu1=mu, gamma1=gamma)
        with np.load(dense) as file:
            rows = [sizes("dense", dense, dict(file)), sizes("sparse", sparse, codes.arrays)]
        share = len(codes.arrays["features_values"]) / codes.features.size
    print(rows, share)
    settings = {"share_of_non_zeros": share, "tiles": TILES, "size": 64, "lam": args.lam, "steps": args.steps}
    RESULTS.write_text(json.dumps({"machine": machine(), **settings, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
