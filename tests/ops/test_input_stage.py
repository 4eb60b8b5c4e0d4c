"""Input stages: forward and inverse, unknown pixels, and the formula of each part."""

import numpy as np
import pytest
import torch

from raising import raises
from whatwhere.errors import InvalidSetting
from whatwhere.ops.input_stage import InputStage, blur, local_contrast, lowpass, radius
from whatwhere.spec import InputSpec, LayerSpec, ModelSpec

SPECS = {
    f"{kind}, contrast {contrast}": InputSpec(
        kind=kind, sigma=1.5, contrast=contrast, contrast_sigma=2.0
    )
    for kind in ("none", "highpass", "onoff")
    for contrast in (0.0, 0.5, 1.0)
}


def images(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_inverse_gives_the_image_back(name: str, masked: bool) -> None:
    stage, v = InputStage(SPECS[name]), 40 * images(2, 3, 9, 11) - 7
    weight = (images(2, 1, 9, 11, seed=1) > 0.3).double() if masked else None
    signal, background = stage.forward(v, weight)
    known = torch.ones_like(v, dtype=torch.bool) if weight is None else weight.expand_as(v) > 0
    torch.testing.assert_close(stage.inverse(signal, background)[known], v[known])
    assert (
        signal.shape[1]
        == ModelSpec(
            layers=(LayerSpec(maps=1),), channels=3, input=SPECS[name], nonnegative=False
        ).target_channels
    )


@pytest.mark.parametrize("name", SPECS)
def test_unknown_pixels_have_no_influence_and_become_zero(name: str) -> None:
    stage, v = InputStage(SPECS[name]), images(2, 2, 8, 8)
    weight = (images(2, 1, 8, 8, seed=1) > 0.4).double()
    signal, background = stage.forward(v, weight)
    other, other_background = stage.forward(torch.where(weight > 0, v, float("nan")), weight)
    assert torch.equal(signal, other)
    assert not signal[(weight == 0).expand_as(signal[:, :1]).expand_as(signal)].any()
    for part, other_part in zip(
        vars(background).values(), vars(other_background).values(), strict=True
    ):
        assert (part is None and other_part is None) or torch.equal(part, other_part)


def test_onoff_splits_the_high_pass_into_two_non_negative_parts() -> None:
    stage, v = InputStage(SPECS["onoff, contrast 0.0"]), images(1, 2, 6, 6)
    signal, _ = stage.forward(v)
    detail = v - lowpass(v, 1.5)
    assert (signal >= 0).all()
    assert not (signal[:, :2] * signal[:, 2:]).any(), "a pixel is either ON or OFF"
    torch.testing.assert_close(signal[:, :2] - signal[:, 2:], detail)


def test_contrast_is_the_local_root_mean_square_over_channels() -> None:
    detail = images(1, 2, 5, 6) - 0.5
    spec = InputSpec(contrast=1.0, contrast_sigma=1.0, contrast_floor=0.2)
    power = lowpass(detail.square().sum(1, keepdim=True) / 2, 1.0)
    torch.testing.assert_close(local_contrast(detail, spec), (power + 0.04).sqrt())
    weak = InputSpec(contrast=0.5, contrast_sigma=1.0, contrast_floor=0.2)
    torch.testing.assert_close(local_contrast(detail, weak), (power + 0.04) ** 0.25)


def test_contrast_normalisation_makes_contrast_even() -> None:
    texture = torch.randn(
        1, 1, 40, 80, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    texture[..., :40] *= 10
    signal, _ = InputStage(
        InputSpec(kind="highpass", sigma=3.0, contrast=1.0, contrast_floor=0.01)
    ).forward(texture)
    left, right = signal[..., :30].std(), signal[..., 50:].std()
    assert 0.9 < left / right < 1.1


@pytest.mark.parametrize("name", SPECS)
def test_reach_is_how_far_a_pixel_has_influence(name: str) -> None:
    stage, v = InputStage(SPECS[name]), images(1, 1, 1, 61)
    changed = v.clone()
    changed[..., 30] += 1
    difference = (stage.forward(v)[0] - stage.forward(changed)[0]).abs().amax((0, 1, 2))
    far = [i for i in range(61) if abs(i - 30) > stage.reach]
    assert not difference[far].any()


def test_a_high_passed_image_needs_both_signs() -> None:
    with raises(InvalidSetting, given={"input.kind": "highpass", "nonnegative": True}):
        ModelSpec(layers=(LayerSpec(maps=1),), input=InputSpec(kind="highpass"))


@pytest.mark.parametrize(
    "bad", [{"kind": "low"}, {"sigma": 0}, {"contrast": 1.5}, {"contrast_floor": float("nan")}]
)
def test_what_cannot_be_is_rejected(bad: dict) -> None:
    with raises(InvalidSetting) as caught:
        InputSpec(**bad)
    assert list(caught.value.given) == list(bad)


# The masked low-pass against SciPy's Gaussian filter and against its definition, pixel by pixel ---


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 5.3])
def test_blur_is_scipys_gaussian_filter(sigma: float) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x = image(2, 3, 17, 12)
    for n in range(2):
        for c in range(3):
            expected = ndimage.gaussian_filter(
                x[n, c].numpy(), sigma, mode="constant", radius=radius(sigma)
            )
            np.testing.assert_allclose(blur(x, sigma)[n, c], expected, atol=1e-12)


def test_lowpass_is_the_weighted_mean_of_known_pixels() -> None:
    x, sigma = image(1, 1, 6, 7), 1.5
    known = image(1, 1, 6, 7, seed=1) > 0
    found = lowpass(x, sigma, known.double())
    for i in range(6):
        for j in range(7):
            total, weight = 0.0, 0.0
            for a in range(6):
                for b in range(7):
                    if known[0, 0, a, b] and max(abs(a - i), abs(b - j)) <= radius(sigma):
                        w = np.exp(-((a - i) ** 2 + (b - j) ** 2) / (2 * sigma**2))
                        total, weight = total + w * float(x[0, 0, a, b]), weight + w
            assert float(found[0, 0, i, j]) == pytest.approx(total / weight, abs=1e-12)


def test_a_constant_image_stays_constant_up_to_its_border() -> None:
    x = torch.full((1, 2, 9, 5), 0.7)
    torch.testing.assert_close(lowpass(x, 3.0), x, rtol=0, atol=1e-6)


@pytest.mark.parametrize("value", [5.0, float("nan"), float("inf")])
def test_unknown_pixels_have_no_influence(value: float) -> None:
    x = image(2, 2, 8, 8)
    known = (image(2, 1, 8, 8, seed=3) > 0).double()
    changed = torch.where(known > 0, x, value)
    assert torch.equal(lowpass(x, 2.0, known), lowpass(changed, 2.0, known))


def test_far_from_any_known_pixel_it_is_the_mean_of_the_known_ones() -> None:
    x, known = image(1, 1, 1, 60), torch.zeros(1, 1, 1, 60, dtype=torch.float64)
    known[..., :3] = 1
    found = lowpass(x, 2.0, known)
    torch.testing.assert_close(found[..., -1], x[..., :3].mean(-1))
    assert not lowpass(x, 2.0, torch.zeros_like(known)).any()


def test_influence_ends_at_the_radius() -> None:
    x = torch.zeros(1, 1, 1, 41, dtype=torch.float64)
    x[..., 20] = 1
    found = blur(x, 2.0)[0, 0, 0]
    assert found.nonzero().flatten().tolist() == list(range(20 - radius(2.0), 21 + radius(2.0)))
    assert radius(2.0) == 2 * 3.0
