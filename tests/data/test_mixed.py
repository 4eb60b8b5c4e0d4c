"""Pictures of several sizes and kinds: crops of them, squares of them, and groups of whole ones."""

from pathlib import Path

import numpy as np
import pytest
import torch

from raising import Containing, raises, warns
from tiny_run import PLAIN, whatwhere
from whatwhere.data import Images, SeveralSizesCropped, load, load_for_training, load_groups, mixed
from whatwhere.data.images import FewBits
from whatwhere.data.mixed import NOT_RECORDED, PicturesBecomeSquares, Recorded, TooSmall
from whatwhere.errors import InvalidImages
from whatwhere.learning import TrainingOptions, train
from whatwhere.model import load as load_model
from whatwhere.spec import LineSearch, Recipe
from whatwhere.spec.toml import override, to_toml


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Pictures whose red says which one it is, green the row and blue the column of a pixel."""
    from PIL import Image

    for name, height, width in (("a", 20, 30), ("b", 40, 60), ("c", 20, 30)):
        y, x = np.mgrid[:height, :width]
        pixels = np.stack([np.full_like(y, ord(name)), y, x], 2).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    return tmp_path


def random_crops(
    folder: Path, size: int | None = None, count: int | None = None, seed: int = 0
) -> Images:
    return mixed.random_crops(load_groups(folder), size, count, seed)[0]


def test_crops_are_parts_of_their_pictures_in_proportion_to_the_area(folder: Path) -> None:
    crops = random_crops(folder, 8, 600, seed=1)
    values = np.rint(crops[:].numpy() * 255).astype(int)
    assert values.shape == (600, 3, 8, 8)
    names, counts = np.unique(values[:, 0, 0, 0], return_counts=True)
    assert dict(zip(names, counts, strict=True)) == {ord("a"): 100, ord("b"): 400, ord("c"): 100}
    offsets = values[:, 1:] - np.mgrid[:8, :8]
    corner = offsets[:, :, :1, :1]
    assert (offsets == corner).all()
    large = values[:, 0, 0, 0] == ord("b")
    assert corner[large].reshape(-1, 2).max(0).tolist() == [32, 52]
    assert corner[~large].reshape(-1, 2).max(0).tolist() == [12, 22]
    assert corner.min() == 0
    assert 0.5 < large[:300].sum() / large[300:].sum() < 2  # in random order


def test_the_seed_decides(folder: Path) -> None:
    first, same, other = (random_crops(folder, 8, 50, seed=seed)[:] for seed in (0, 0, 1))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_by_default_crops_are_as_large_as_the_smallest_side_and_have_the_pictures_area(
    folder: Path,
) -> None:
    assert random_crops(folder).pixels.shape == ((20 * 30 * 2 + 40 * 60) // 20**2, 3, 20, 20)


def test_a_folder_of_several_sizes_is_cropped_for_training_with_a_warning(folder: Path) -> None:
    with warns(SeveralSizesCropped, sizes=2):
        images, masks = load_for_training(folder)
    assert (len(images), masks) == (9, None)
    (folder / "b.png").unlink()
    images, _ = load_for_training(folder)
    assert torch.equal(images[:], load(folder)[:])
    images, _ = load_for_training(folder, crop=10)
    assert images.shape == (3, 10, 10)


def test_masks_are_cropped_at_the_same_places(folder: Path) -> None:
    from PIL import Image

    for path in list(folder.iterdir()):
        picture = Image.open(path).convert("RGBA")
        alpha = np.asarray(picture)[..., 1] % 2 * 255  # known where the row is odd
        picture.putalpha(Image.fromarray(alpha.astype(np.uint8)))
        picture.save(path)
    images, masks = load_for_training(folder, "alpha", crop=8)
    assert masks is not None
    rows = np.rint(images[:].numpy() * 255)[:, 1].astype(int)
    np.testing.assert_array_equal(masks[:].numpy()[:, 0] > 0, rows > 0)
    assert 0.4 < float(masks[:].mean()) < 0.6


def test_grey_and_colour_and_types_are_mixed(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((20, 20), 51, np.uint8)).save(tmp_path / "grey.png")
    Image.fromarray(np.full((20, 20), 13107, np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.full((20, 20, 3), 51, np.uint8)).save(tmp_path / "colour.png")
    crops = random_crops(tmp_path, 10)
    assert crops.shape == (3, 10, 10)
    torch.testing.assert_close(crops[:], torch.full((12, 3, 10, 10), 0.2))


def test_deep_pictures_of_twelve_bits_among_others(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(np.full((20, 20), 2048, np.uint16)).save(tmp_path / "deep.png")
    Image.fromarray(np.full((20, 20, 3), 128, np.uint8)).save(tmp_path / "colour.png")
    with warns(FewBits, bits=12, white=4095):
        images = load(tmp_path)
    assert (images.shape, images.pixels.dtype) == ((3, 20, 20), np.uint16)
    torch.testing.assert_close(
        images[:].mean((1, 2, 3)), torch.tensor([128 / 255, 2048 / 4095]), atol=1e-4, rtol=0
    )


def test_whole_pictures_of_several_sizes_are_grouped(tmp_path: Path) -> None:
    from PIL import Image

    colour = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    for row, (label, size) in enumerate((("ant", 6), ("bee", 5), ("bee", 6), ("cow", 6))):
        (tmp_path / label).mkdir(exist_ok=True)
        Image.fromarray(colour[row, :size]).save(tmp_path / label / f"{row}.png")
    (large, _), (small, _) = load_groups(tmp_path)
    assert (large.shape, small.shape) == ((3, 6, 5), (3, 5, 5))
    assert torch.equal(large[:], load(colour[[0, 2, 3]], channels="last")[:])
    assert torch.equal(small[:], load(colour[[1], :5], channels="last")[:])
    assert large.classes == small.classes == ("ant", "bee", "cow")
    assert large.labels is not None
    assert small.labels is not None
    assert (large.labels.tolist(), small.labels.tolist()) == ([0, 1, 2], [1])
    assert [len(images) for images, _ in load_groups("digits")] == [5000]


def test_one_array_of_several_sizes_is_of_squares_at_the_centre(folder: Path) -> None:
    with warns(PicturesBecomeSquares, side=20):
        images = load(folder)
    values = images[:].numpy() * 255
    assert values.shape == (3, 3, 20, 20)
    y, x = np.mgrid[:20, :20]
    np.testing.assert_allclose(values[0], [np.full_like(y, ord("a")), y, x + 5], atol=1e-4)
    np.testing.assert_allclose(
        values[1, 1:, 2:-2, 2:-2], np.stack([2 * y + 0.5, 2 * (x + 5) + 0.5])[:, 2:-2, 2:-2], atol=1
    )
    assert load(folder, size=12).shape == (3, 12, 12)
    (folder / "b.png").unlink()
    assert load(folder).shape == (3, 20, 30)
    assert load(folder, size=20).shape == (3, 20, 20)


def test_small_pictures_are_left_out(folder: Path) -> None:
    with warns(TooSmall, count=2, size=32):
        crops = random_crops(folder, 32)
    assert set(np.rint(crops[:][:, 0].numpy() * 255).ravel()) == {ord("b")}
    with raises(InvalidImages, expected=Containing("at most 40")):
        random_crops(folder, 64)


@pytest.mark.parametrize("update", ["epoch", "batch"])
def test_a_folder_of_several_sizes_trains(folder: Path, tmp_path: Path, update: str) -> None:
    """By the command and by Python, by epochs and in a stream: on the same crops, to the same
    model."""
    recipe = override(
        Recipe.paper(),
        {
            "model": {"layers": [{"maps": 2, "filter_size": 3}]},
            "learning": {
                "each": {
                    "update": update,
                    "epochs": 1,
                    "inference": {"steps": 2, "step": LineSearch()},
                }
            },
        },
    )
    (tmp_path / "recipe.toml").write_text(to_toml(recipe))
    with warns(SeveralSizesCropped, sizes=2):
        whatwhere(
            "train",
            folder,
            "--out",
            tmp_path / "run",
            "--recipe",
            tmp_path / "recipe.toml",
            "--quiet",
            *PLAIN,
        )
    with warns(SeveralSizesCropped, sizes=2):
        trained = train(folder, recipe, options=TrainingOptions(engine="reference", device="cpu"))
    expected = train(
        random_crops(folder), recipe, options=TrainingOptions(engine="reference", device="cpu")
    )
    assert trained.model == expected.model == load_model(tmp_path / "run")
    assert trained.model.spec.channels == 3


def words_of_warning(folder: Path, recorded: Recorded = NOT_RECORDED) -> str:
    """The warning about the sizes of the pictures in a folder."""
    with pytest.warns(PicturesBecomeSquares) as caught:
        load(folder, recorded=recorded)
    assert len(caught) == 1
    return str(caught[0].message).removeprefix(f"{folder.name} has ")


def test_the_warning_about_sizes_says_why_and_what_to_do(folder: Path) -> None:
    assert words_of_warning(folder) == (
        "pictures of 2 sizes, from 20 to 60 pixels. whatwhere scales each one so that its shorter"
        " side has 20 pixels, like the smallest picture (a.png), and crops its centre. 20 pixels"
        " are few, which costs accuracy. Load the pictures with size=64, or leave out the smallest"
        " picture."
    )
    assert words_of_warning(folder, Recorded(12, None)) == (
        "pictures of 2 sizes, from 20 to 60 pixels. whatwhere scales each one so that its shorter"
        " side has 12 pixels, like the pictures that the run learned from, and crops its centre."
    )


def test_squares_of_large_pictures_have_the_usual_side(tmp_path: Path) -> None:
    from PIL import Image

    for name, side in (("a", 64), ("b", 80)):
        Image.new("L", (side, side)).save(tmp_path / f"{name}.png")
    assert words_of_warning(tmp_path) == (
        "pictures of 2 sizes, from 64 to 80 pixels. whatwhere scales each one so that its shorter"
        " side has 64 pixels and crops its centre."
    )
