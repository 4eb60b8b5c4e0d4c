"""The images of a training: every kind of source gives the same model."""

from pathlib import Path

import numpy as np
import torch

import tiny_training as tiny
from whatwhere.data import load
from whatwhere.learning import train


def test_arrays_tensors_images_and_files_train_the_same_model(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).random((5, 8, 8), np.float32)
    np.save(tmp_path / "images.npy", pixels)
    sources = (pixels, torch.from_numpy(pixels)[:, None], load(pixels), tmp_path / "images.npy")
    models = [train(tiny.recipe(), source, options=tiny.OPTIONS).model for source in sources]
    for model in models[1:]:
        assert all(torch.equal(a, b) for a, b in zip(models[0].filters, model.filters, strict=True))
