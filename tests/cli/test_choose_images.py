"""The choice of images: determined by the seed, and bounded in size."""

import numpy as np
import pytest

from whatwhere.cli.figures import FigureOptions, choose_images
from whatwhere.data import load
from whatwhere.errors import SpecError


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "tiles.npy", np.random.default_rng(0).random((100, 3, 16, 16), dtype=np.float32))
    return str(tmp_path / "tiles.npy")


def test_the_seed_determines_the_choice(source):
    first, again, other = (choose_images(load(source), FigureOptions(count=10, seed=seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert len(np.unique(first.flatten(1), axis=0)) == 10
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(("shape", "count"), [((28, 28), 127), ((3, 32, 32), 32), ((3, 64, 64), 24), ((5, 5), 200)])
def test_fewer_images_are_inferred_if_they_are_large(shape, count, tmp_path):
    for images in (300, 9):
        np.save(tmp_path / "a.npy", np.zeros((images, *shape), np.float32))
        assert len(choose_images(load(tmp_path / "a.npy"), FigureOptions())) == min(count, images)


def test_the_image_that_was_asked_for_is_first(source):
    images = choose_images(load(source), FigureOptions(count=6, image=42))
    assert len(images) == 6
    np.testing.assert_array_equal(images[0], np.load(source)[42])
    with pytest.raises(SpecError, match=r"image.*100 was given; .* has 100 images"):
        choose_images(load(source), FigureOptions(count=6, image=100))
