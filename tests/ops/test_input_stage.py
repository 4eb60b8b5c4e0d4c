"""Input stages: forward and inverse, unknown pixels, and the formula of each part."""

import pytest
import torch

from whatwhere.errors import SpecError
from whatwhere.ops.input_stage import InputStage, local_contrast, lowpass, merge_signs, split_signs
from whatwhere.spec import InputSpec, LayerSpec, ModelSpec

SPECS = {
    f"{kind}, contrast {contrast}": InputSpec(kind=kind, sigma=1.5, contrast=contrast, contrast_sigma=2.0)
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
        == ModelSpec(layers=(LayerSpec(maps=1),), channels=3, input=SPECS[name], nonnegative=False).signal_channels
    )


@pytest.mark.parametrize("name", SPECS)
def test_unknown_pixels_have_no_influence_and_become_zero(name: str) -> None:
    stage, v = InputStage(SPECS[name]), images(2, 2, 8, 8)
    weight = (images(2, 1, 8, 8, seed=1) > 0.4).double()
    signal, background = stage.forward(v, weight)
    other, other_background = stage.forward(torch.where(weight > 0, v, float("nan")), weight)
    assert torch.equal(signal, other)
    assert not signal[(weight == 0).expand_as(signal[:, :1]).expand_as(signal)].any()
    for part, other_part in zip(vars(background).values(), vars(other_background).values(), strict=True):
        assert (part is None and other_part is None) or torch.equal(part, other_part)


def test_onoff_splits_the_high_pass_into_two_non_negative_parts() -> None:
    stage, v = InputStage(SPECS["onoff, contrast 0.0"]), images(1, 2, 6, 6)
    signal, _ = stage.forward(v)
    detail = v - lowpass(v, 1.5)
    assert (signal >= 0).all()
    assert not (signal[:, :2] * signal[:, 2:]).any(), "a pixel is either ON or OFF"
    torch.testing.assert_close(merge_signs(signal), detail)
    assert torch.equal(merge_signs(split_signs(detail)), detail)


def test_contrast_is_the_local_root_mean_square_over_channels() -> None:
    detail = images(1, 2, 5, 6) - 0.5
    spec = InputSpec(contrast=1.0, contrast_sigma=1.0, contrast_floor=0.2)
    power = lowpass(detail.square().sum(1, keepdim=True) / 2, 1.0)
    torch.testing.assert_close(local_contrast(detail, spec), (power + 0.04).sqrt())
    weak = InputSpec(contrast=0.5, contrast_sigma=1.0, contrast_floor=0.2)
    torch.testing.assert_close(local_contrast(detail, weak), (power + 0.04) ** 0.25)


def test_contrast_normalisation_makes_contrast_even() -> None:
    texture = torch.randn(1, 1, 40, 80, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    texture[..., :40] *= 10
    signal, _ = InputStage(InputSpec(kind="highpass", sigma=3.0, contrast=1.0, contrast_floor=0.01)).forward(texture)
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
    with pytest.raises(SpecError, match="onoff"):
        ModelSpec(layers=(LayerSpec(maps=1),), input=InputSpec(kind="highpass"))


@pytest.mark.parametrize("bad", [{"kind": "low"}, {"sigma": 0}, {"contrast": 1.5}, {"contrast_floor": float("nan")}])
def test_what_cannot_be_is_rejected(bad: dict) -> None:
    with pytest.raises(SpecError, match="expected"):
        InputSpec(**bad)
