"""The choice of images: varied, determined by the seed, and bounded in size."""

import numpy as np
import pytest

from whatwhere.cli.figures import FigureOptions, choose_images
from whatwhere.data import load
from whatwhere.errors import SpecError
from whatwhere.figures.selection import default_count, spread


@pytest.fixture
def photographs() -> np.ndarray:
    """A hundred tiles: the first 60 are almost the same sky, the others are of four other kinds."""
    generator = np.random.default_rng(0)
    kinds = generator.random((5, 3, 16, 16), dtype=np.float32)
    kind = np.concatenate([np.zeros(60, int), np.repeat([1, 2, 3, 4], 10)])
    return (kinds[kind] + 0.01 * generator.random((100, 3, 16, 16), dtype=np.float32)).clip(0, 1)


@pytest.mark.parametrize("seed", range(5))
def test_every_kind_of_image_is_among_the_first(photographs, seed):
    chosen = spread(load(photographs), 20, seed)
    assert len(set(chosen)) == 20
    assert {0 if i < 60 else 1 + (i - 60) // 10 for i in chosen[:5]} == {0, 1, 2, 3, 4}


def test_the_seed_determines_the_choice(photographs):
    images = load(photographs)
    np.testing.assert_array_equal(spread(images, 10, 1), spread(images, 10, 1))
    assert set(spread(images, 10, 1)) != set(spread(images, 10, 2))


@pytest.mark.parametrize("count", [1, 7, 2500, 4000])
def test_any_number_of_images_can_be_chosen(count):
    images = load(np.random.default_rng(0).random((3000, 2, 3), dtype=np.float32))
    chosen = spread(images, count)
    assert len(set(chosen)) == len(chosen) == min(count, 3000)
    assert 0 <= chosen.min() <= chosen.max() < 3000


def test_copies_of_one_image_can_be_chosen():
    assert sorted(spread(load(np.ones((4, 5, 5), np.float32)), 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("shape", "count"), [((28, 28), 127), ((3, 32, 32), 32), ((3, 64, 64), 24), ((5, 5), 200)])
def test_fewer_images_are_inferred_if_they_are_large(shape, count):
    assert default_count(load(np.zeros((300, *shape), np.float32))) == count
    assert default_count(load(np.zeros((9, *shape), np.float32))) == 9


def test_the_image_that_was_asked_for_is_first(photographs, tmp_path):
    np.save(tmp_path / "tiles.npy", photographs)
    source = str(tmp_path / "tiles.npy")
    images = choose_images(source, FigureOptions(count=6, image=42))
    assert len(images) == 6
    np.testing.assert_array_equal(images[0], photographs[42])
    with pytest.raises(SpecError, match=r"image.*100 was given; .* has 100 images"):
        choose_images(source, FigureOptions(count=6, image=100))
