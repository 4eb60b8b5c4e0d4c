"""The study of a third layer: divisions of pictures, its recipe and its files."""

from pathlib import Path

import numpy as np
import pytest

from reproduction.studies.third_layer import Pictures, halves, pack, pixel_error, recipe_of


def test_half_of_each_class_is_for_testing_another_one_with_each_seed() -> None:
    labels = np.repeat([3, 5], [10, 6])
    first, second = halves(labels, 0), halves(labels, 1)
    assert [int(first[labels == kind].sum()) for kind in (3, 5)] == [5, 3]
    assert (first != second).any()
    assert (first == halves(labels, 0)).all()


def test_a_folder_of_pictures_becomes_a_file(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for kind, colour in (("lemon", (250, 220, 0)), ("plum", (60, 0, 60))):
        (tmp_path / "fruit" / kind).mkdir(parents=True)
        for number in range(12):
            image.new("RGB", (20, 14), colour).save(tmp_path / "fruit" / kind / f"{number}.png")
    pack(tmp_path / "fruit", tmp_path / "fruit.npz", size=8)
    pictures = Pictures.read(tmp_path / "fruit.npz", seed=1)
    assert pictures.train.shape == pictures.test.shape == (12, 3, 8, 8)
    assert np.bincount(pictures.labels).tolist() == np.bincount(pictures.truth).tolist() == [6, 6]
    assert float(pictures.train[0, 0, 0, 0]) == pytest.approx(250 / 255)
    assert pixel_error(pictures)["error"] == 0


def test_the_recipe_has_three_layers_for_pictures_in_colour() -> None:
    recipe = recipe_of("paper", 3, 180, "ON/OFF", 2)
    assert (recipe.model.depth, recipe.model.target_channels, recipe.batch_size) == (3, 6, 180)
    assert [each.epochs for each in recipe.learning] == [15, 20, 20]
    assert recipe.seed == 2
