"""Denoising: nearer to the truth than its input, and exact where there is nothing to do."""

import numpy as np
import pytest
import torch

from pictures_to_restore import error, model, noisy, picture
from whatwhere.errors import ImageError, SpecError
from whatwhere.restoration import RestorationSpec, denoise

NET = model()


@pytest.mark.parametrize("level", [15, 25, 50])
@pytest.mark.parametrize("pool", [1, 2])
def test_the_result_is_nearer_to_the_truth_than_the_input(level: int, pool: int) -> None:
    truth, noise = picture(), level / 255
    given = noisy(truth, noise)
    result = denoise(model(pool=pool), given, noise, engine="reference")
    assert error(result, truth) < 0.8 * error(given, truth)


def test_the_noise_is_estimated_where_it_is_not_given() -> None:
    truth = picture()
    quiet, loud = noisy(truth, 0.1), noisy(truth, 0.3)
    result = denoise(NET, torch.cat([quiet, loud]), engine="reference")
    assert error(result[:1], truth) < 0.8 * error(quiet, truth)
    assert error(result[1:], truth) < 0.6 * error(loud, truth)


def test_without_noise_the_images_come_back_to_the_bit() -> None:
    truth = noisy(picture(), 0.1)
    assert torch.equal(denoise(NET, truth, 0.0), truth)
    flat = torch.full((1, 1, 20, 20), 0.3)
    assert torch.equal(denoise(NET, flat), flat)  # its estimated noise is 0
    mixed = torch.cat([flat, noisy(flat, 0.1)])
    assert torch.equal(denoise(NET, mixed, engine="reference")[:1], flat)


@pytest.mark.parametrize("scales", [1, 2])
def test_a_constant_image_stays_constant(scales: int) -> None:
    flat = torch.full((1, 3, 70, 65), 0.37)
    result = denoise(NET, flat, 0.1, spec=RestorationSpec(steps=3, scales=scales), engine="reference")
    assert (result - flat).abs().max() < 1e-5


def test_colour_is_restored_by_a_model_of_one_channel_and_by_its_own() -> None:
    truth = picture() * torch.tensor([1.0, 0.6, 0.3]).view(1, 3, 1, 1)
    given = noisy(truth, 0.1)
    for net in (NET, model(channels=3)):
        assert error(denoise(net, given, 0.1, engine="reference"), truth) < 0.7 * error(given, truth)


def test_brightness_and_colour_apart_beat_channel_by_channel() -> None:
    truth = picture() * torch.tensor([1.0, 0.9, 0.8]).view(1, 3, 1, 1)
    given = noisy(truth, 0.15)
    planes = denoise(NET, given.transpose(0, 1), 0.15, engine="reference").transpose(0, 1)
    assert error(denoise(NET, given, 0.15, engine="reference"), truth) < 0.95 * error(planes, truth)


def test_arrays_and_dtypes_come_back_as_they_were() -> None:
    given = noisy(picture(), 0.1).double().numpy()
    result = denoise(NET, given, 0.1, engine="reference")
    assert isinstance(result, np.ndarray)
    assert (result.dtype, result.shape) == (given.dtype, given.shape)
    same = denoise(NET, torch.from_numpy(given), 0.1, engine="reference")
    assert same.dtype == torch.float64
    np.testing.assert_array_equal(same.numpy(), result)


def test_the_result_follows_the_units_of_the_images() -> None:
    given = noisy(picture(), 0.1)
    small, large = (denoise(NET, k * given, k * 0.1, engine="reference") / k for k in (1.0, 255.0))
    assert (small - large).abs().max() < 1e-3


def test_what_cannot_be_denoised_raises_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.restoration.scales.infer", None)  # calling it would be another error
    good = picture()
    for bad in (good[0], good.mul(255).byte(), good.byte().numpy(), [[0.5]], good / 0, good[:, :, :0], 1e20 * good):
        with pytest.raises(ImageError, match="given"):
            denoise(NET, bad, 0.1)  # type: ignore[type-var]
    with pytest.raises(ImageError, match="C = 3"):
        denoise(model(channels=3), good, 0.1)
    for noise in (-0.1, float("nan"), float("inf"), True, "much", 10**400):
        with pytest.raises(SpecError, match="standard deviation"):
            denoise(NET, good, noise)  # type: ignore[arg-type]


def test_models_with_other_input_stages() -> None:
    truth = picture()
    given = noisy(truth, 0.1)
    nothing = denoise(model(kind="none"), given - 0.5, 0.1, engine="reference") + 0.5
    assert nothing.shape == truth.shape
    assert nothing.isfinite().all()


@pytest.mark.parametrize("level", [15, 25, 50])
@pytest.mark.parametrize("name", ["china.jpg", "flower.jpg"])
def test_the_shipped_model_improves_pictures_that_it_has_not_seen(name: str, level: int) -> None:
    from sklearn.datasets import load_sample_image

    from whatwhere import models
    from whatwhere.model import load

    crop = load_sample_image(name)[140:172, 240:272]  # held back when the model was trained
    truth = torch.from_numpy(crop / 255.0).permute(2, 0, 1)[None].float()
    given = noisy(truth, level / 255)
    result = denoise(load(models.path("photographs")), given, engine="reference")
    assert error(result, truth) < error(given, truth)
    stated = denoise(load(models.path("photographs")), given, level / 255, engine="reference")
    assert error(stated, truth) < error(given, truth)
