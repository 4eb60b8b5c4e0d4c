"""Inpainting: unknown pixels have no influence, known ones stay, and the rest is nearer to the
truth than a mean."""

import numpy as np
import pytest
import torch
from torch import Tensor

from pictures_to_restore import discs, error, noisy
from raising import raises
from whatwhere.errors import ImageError, InvalidSetting, WhatwhereError
from whatwhere.restoration import RestorationSpec, inpaint, load_denoiser

DENOISER = load_denoiser()
QUICK = RestorationSpec(rounds=2)


def picture() -> Tensor:
    return discs(24, 28)[None, None]


def random_mask(images: Tensor, missing: float, channels: int = 1) -> Tensor:
    N, _, H, W = images.shape
    return (
        torch.rand(N, channels, H, W, generator=torch.Generator().manual_seed(1)) >= missing
    ).float()


def test_known_pixels_come_out_as_they_went_in() -> None:
    truth = noisy(picture(), 0.1).expand(1, 3, -1, -1).contiguous()
    mask = random_mask(truth, 0.5)
    result = inpaint(truth, mask, DENOISER, spec=QUICK)
    known = mask.expand_as(truth) > 0
    assert torch.equal(result[known], truth[known])
    assert not torch.equal(result, truth)
    array = inpaint(truth.numpy(), mask.numpy() > 0, DENOISER, spec=QUICK)
    np.testing.assert_array_equal(array[known.numpy()], truth.numpy()[known.numpy()])


def test_unknown_pixels_have_no_influence() -> None:
    truth = picture()
    mask = random_mask(truth, 0.5)
    results = [
        inpaint(torch.where(mask > 0, truth, value), mask, DENOISER, spec=QUICK)
        for value in (0.0, 7.0, float("nan"))
    ]
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_a_mask_for_each_channel() -> None:
    truth = picture() * torch.tensor([1.0, 0.6, 0.3]).view(1, 3, 1, 1)
    mask = random_mask(truth, 0.5, channels=3)
    result = inpaint(truth * mask, mask, DENOISER, spec=QUICK)
    assert error(result, truth) < 0.3 * error(truth * mask, truth)
    assert torch.equal(result[mask > 0], truth[mask > 0])


@pytest.mark.parametrize("channels", [1, 3])
def test_a_constant_image_is_filled_with_its_constant(channels: int) -> None:
    flat = torch.full((1, channels, 30, 26), 0.6)
    flat[:, -1] += 0.2 * (channels > 1)
    mask = random_mask(flat, 0.5)
    mask[:, :, 8:20, 8:20] = 0
    result = inpaint(flat * mask, mask, DENOISER, spec=QUICK)
    assert (result - flat).abs().max() < 1e-4


def test_the_result_does_not_depend_on_tiles_or_the_batch() -> None:
    truth = torch.stack([discs(150, 40), discs(150, 40, 1)])[:, None]
    mask = random_mask(truth, 0.5)
    both = inpaint(truth * mask, mask, DENOISER, spec=QUICK)
    tiled = inpaint((truth * mask)[1:], mask[1:], DENOISER, spec=RestorationSpec(rounds=2, tile=48))
    torch.testing.assert_close(both[1:], tiled, rtol=0, atol=1e-4)


def test_wrong_masks_raise_before_work_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.restoration.denoiser.Denoiser.denoise", None)
    truth = picture()
    good = torch.ones_like(truth)
    for bad in (
        good[:, :, 1:],
        good.expand(1, 2, -1, -1),
        good.expand(2, -1, -1, -1),
        -good,
        good / 0,
        0 * good,
        good.to(torch.complex64),
    ):
        with pytest.raises(ImageError, match="mask"):
            inpaint(truth, bad, DENOISER, spec=QUICK)
    for bad in (3, None, "ones"):
        with pytest.raises(WhatwhereError, match=r"mask|ones"):
            inpaint(truth, bad, DENOISER, spec=QUICK)
    with pytest.raises(ImageError, match="NaN"):
        inpaint(truth / 0, good, DENOISER, spec=QUICK)  # of known pixels
    with raises(InvalidSetting, given={"noise": -1.0}):
        inpaint(truth, good, DENOISER, noise=-1.0)
