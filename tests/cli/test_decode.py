"""`whatwhere decode` as a person uses it."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_run as tiny
import whatwhere as ww
from tiny_run import PLAIN as ENGINE
from tiny_run import whatwhere
from whatwhere.cli.decode import picture_names
from whatwhere.errors import ImageError
from whatwhere.explorer.thumbnails import png
from whatwhere.files import RECORD

PLAIN = ("--preset", "recipe", *ENGINE)  # few steps


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("decode") / "run")


def test_codes_become_the_reconstruction(run: Path, tmp_path: Path) -> None:
    pixels, labels = tiny.bars(7)
    np.savez(tmp_path / "bars.npz", images=pixels, labels=labels)
    whatwhere("encode", run, tmp_path / "bars.npz", "--out", tmp_path / "codes.npz", "--where", *PLAIN)
    whatwhere("decode", run, tmp_path / "codes.npz", "--out", tmp_path / "new" / "images.npz")
    v = torch.from_numpy(pixels)[:, None]
    expected = ww.infer(ww.load(run), v, tiny.recipe().inference, engine="reference").reconstruction
    with np.load(tmp_path / "new" / "images.npz") as images:
        np.testing.assert_allclose(images["images"], expected, atol=1e-5)
        np.testing.assert_array_equal(images["labels"], labels)


def test_codes_of_several_sizes_become_pictures(run: Path, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    for name, size in (("a.png", (9, 12)), ("b.jpg", (11, 10))):
        Image.fromarray(np.full(size, 200, np.uint8)).save(tmp_path / "pictures" / name)
    whatwhere("encode", run, tmp_path / "pictures", "--out", tmp_path / "codes.npz", "--where", *PLAIN)
    whatwhere("decode", run, tmp_path / "codes.npz", "--out", tmp_path / "decoded")
    assert sorted(path.name for path in (tmp_path / "decoded").iterdir()) == [RECORD, "a.png", "b.png"]
    codes, model = ww.load_codes(tmp_path / "codes.npz"), ww.load(run)
    names = codes.names
    assert names is not None
    for i, name in enumerate(names):
        with Image.open(tmp_path / "decoded" / f"{name[0]}.png") as picture:
            shades = torch.from_numpy(np.array(picture)).float()
        torch.testing.assert_close(shades / 255, codes.decode(model, i)[0].clamp(0, 1), rtol=0, atol=0.5 / 255 + 1e-6)
    with pytest.raises(ImageError, match=r"codes of several sizes; an \.npz file of images needs one"):
        whatwhere("decode", run, tmp_path / "codes.npz", "--out", tmp_path / "images.npz")


def test_codes_without_pooling_variables_raise_and_leave_nothing_behind(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(3)[0])
    whatwhere("encode", run, tmp_path / "bars.npy", "--out", tmp_path / "codes.npz", *PLAIN)
    for out in ("images.npz", "decoded"):
        with pytest.raises(ImageError, match="encode with --where"):
            whatwhere("decode", run, tmp_path / "codes.npz", "--out", tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.npy", "codes.npz"]


def test_every_picture_has_a_file_of_its_own(run: Path, tmp_path: Path) -> None:
    """a.png and a.bmp, x/a.png and x_a.png became one file each."""
    from PIL import Image

    for names in (("a.png", "a.bmp", "A.png"), ("x/a.png", "y/x_a.png", "y/b.png")):
        folder = tmp_path / f"pictures{len(names[0])}"
        for i, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((9, 12), 60 * i, np.uint8)).save(folder / name)
        whatwhere("encode", run, folder, "--out", folder / "codes.npz", "--where", *PLAIN)
        whatwhere("decode", run, folder / "codes.npz", "--out", folder / "decoded")
        assert len(list((folder / "decoded").glob("*.png"))) == 3
    assert picture_names(["a.png", "a.bmp"]) == ["0_a.png", "1_a.png"]
    assert picture_names(["x/a.png", "x_a.png"]) == ["0_x_a.png", "1_x_a.png"]
    assert picture_names(["../../etc/a.png", "b\0.png"]) == [".._.._etc_a.png", "b_.png"]


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 2, 3)])
def test_a_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    read = np.asarray(image.open(io.BytesIO(png(pixels))))
    assert np.array_equal(read, pixels.numpy())
