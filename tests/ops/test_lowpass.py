"""The masked low-pass against SciPy's Gaussian filter and against its definition, pixel by pixel."""

import numpy as np
import pytest
import torch

from whatwhere.ops.input_stage import REACH, blur, lowpass, radius


def image(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("sigma", [0.7, 2.0, 5.3])
def test_blur_is_scipys_gaussian_filter(sigma: float) -> None:
    ndimage = pytest.importorskip("scipy.ndimage")
    x = image(2, 3, 17, 12)
    for n in range(2):
        for c in range(3):
            expected = ndimage.gaussian_filter(x[n, c].numpy(), sigma, mode="constant", radius=radius(sigma))
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
    assert radius(2.0) == 2 * REACH
