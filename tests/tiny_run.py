"""A run so small that it is trained in a moment, on bars of light in two directions, and the
commands upon it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from whatwhere.app import app
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import (
    EveryEpoch,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Recipe,
)

PLAIN = ("--set", "engine=reference", "--device", "cpu")


def recipe() -> Recipe:
    model = ModelSpec(
        layers=(LayerSpec(maps=3, filter_size=3), LayerSpec(maps=4, filter_size=3, fan_in=2))
    )
    learning = LearningSpec(
        inference=InferenceSpec(lam=2.0, steps=3, step=LineSearch(per="batch")),
        epochs=2,
        update=EveryEpoch(reset_at=()),
    )
    return Recipe(
        model=model, learning=(learning,) * 2, inference=InferenceSpec(steps=5), batch_size=16
    )


def bars(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images [N, 10, 10] with one bar each, upright (0), lying (1) or a cross (2), and what they
    are."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    images = 0.2 * generator.random((count, 10, 10)).astype(np.float32)
    for image, label, place in zip(images, labels, generator.integers(2, 8, count), strict=True):
        if label != 1:
            image[:, place] = 1
        if label != 0:
            image[place] = 1
    return images, labels


def make(folder: Path, seed: int = 0) -> Path:
    train(
        np_images(bars(40)[0]),
        replace(recipe(), seed=seed),
        folder,
        options=TrainingOptions(engine="reference", device="cpu"),
    )
    return folder


def np_images(images: np.ndarray):  # type: ignore[no-untyped-def]
    import torch

    return torch.from_numpy(images)[:, None]


def whatwhere(*arguments: object) -> str:
    """What a command prints; what it raises is raised."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout
