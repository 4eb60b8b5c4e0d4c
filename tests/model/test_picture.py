import base64
import io
import re

import numpy as np
import pytest
import torch

import whatwhere as ww
from examples import SPECS, random_images
from whatwhere.model.picture import figure, png, tiles


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 2, 3)])
def test_a_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    read = np.asarray(image.open(io.BytesIO(png(pixels))))
    assert np.array_equal(read, pixels.numpy())


def test_tiles_are_laid_out_by_rows_and_scaled() -> None:
    images = torch.tensor([0.0, 1.0, 2.0]).view(3, 1, 1, 1).expand(3, 1, 2, 2)
    sheet = tiles(images, columns=2, low=0.0, high=2.0)
    assert sheet.shape == (7, 7)
    assert [int(sheet[1, 1]), int(sheet[1, 4]), int(sheet[4, 1]), int(sheet[4, 4])] == [0, 128, 255, 128]


def embedded(html: str) -> list[np.ndarray]:
    image = pytest.importorskip("PIL.Image")
    return [
        np.asarray(image.open(io.BytesIO(base64.b64decode(source))))
        for source in re.findall(r"data:image/png;base64,([^\"]+)", html)
    ]


def test_a_caption_is_escaped() -> None:
    assert "<b>" not in figure(torch.zeros(1, 1, dtype=torch.uint8), "<b>", 1)


@pytest.mark.parametrize("name", ["1 layer, colour", "2 layers", "2 layers, signed", "2 layers, 3-D pooling"])
def test_a_model_shows_the_filters_of_every_layer(name: str) -> None:
    model = ww.DeconvNet(SPECS[name])
    pictures = embedded(model._repr_html_())
    assert len(pictures) == SPECS[name].depth
    brightest = int(model.filters[0].abs().amax((0, 2, 3)).argmax())  # in its tile there is a white or black pixel
    size = model.filters[0].shape[-1] + 1
    tile = pictures[0][1:size, 1 + brightest * size : (brightest + 1) * size]
    assert {0, 255} & set(tile.flatten().tolist())


def test_a_solution_shows_its_reconstructions() -> None:
    model, v = ww.DeconvNet(SPECS["2 layers"]), random_images(SPECS["2 layers"], 3).float()
    solution = ww.infer(model, v, ww.InferenceSpec(steps=5, lam=50.0))
    truth = model.at(9, 8).decode(solution.latents)
    assert torch.equal(solution.reconstruction, truth)
    (picture,) = embedded(solution._repr_html_())
    assert picture.shape == (11, 3 * 9 + 1)
    shown = picture[1:10, 1:9] / 255 * max(1.0, float(truth.max()))
    np.testing.assert_allclose(shown, truth[0, 0], atol=0.01)
