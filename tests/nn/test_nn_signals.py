"""Gaussian pooling of signals: that of images of height 1, to the bit."""

import pytest
import torch

from whatwhere.errors import SpecError
from whatwhere.latents import PoolingParams
from whatwhere.nn import GaussianPool1d, GaussianPool2d, GaussianUnpool1d, GaussianUnpool2d


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), (4, 4, 0)])
def test_pooling_is_that_of_images_of_height_1(kernel: int, stride: int | None, padding: int) -> None:
    z = torch.randn(2, 3, 13, generator=torch.Generator().manual_seed(0))
    p, where = GaussianPool1d(kernel, stride, padding, return_where=True)(z)
    sizes = (1, kernel), (1, stride or kernel), (0, padding)
    image, theta = GaussianPool2d(*sizes, return_where=True)(z[:, :, None])
    assert torch.equal(p, image[:, :, 0])
    assert torch.equal(where.mu, theta.mu[:, 1, :, 0])
    assert torch.equal(where.gamma, theta.gamma[:, 1, :, 0])
    back = GaussianUnpool1d(kernel, stride, padding)(p, where, output_size=13)
    assert torch.equal(back, GaussianUnpool2d(*sizes)(image, theta, (1, 13))[:, :, 0])
    assert torch.equal(GaussianPool1d(kernel, stride, padding)(z[0]), p[0])  # without a batch


def test_unpooling_is_the_adjoint() -> None:
    generator = torch.Generator().manual_seed(0)
    z, p = torch.randn(2, 3, 12, generator=generator).double(), torch.randn(2, 3, 6, generator=generator).double()
    where = PoolingParams(torch.rand(2, 3, 6, generator=generator).double() - 0.5, torch.ones(2, 3, 6).double())
    pooled = GaussianPool1d(2, gaussians="input", form="plain")(z, where)
    assert float((pooled * p).sum()) == pytest.approx(float((z * GaussianUnpool1d(2, form="plain")(p, where)).sum()))


def test_gradients_reach_input_and_learned_gaussians() -> None:
    z = torch.randn(2, 3, 8, requires_grad=True, dtype=torch.float64)
    pool = GaussianPool1d(2, gaussians="learned", channels=3, form="plain", dtype=torch.float64)
    pool(z).square().sum().backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0
    assert pool.mu.grad is not None
    assert pool.mu.grad[1].abs().sum() > 0
    assert torch.autograd.gradcheck(GaussianPool1d(2, form="plain"), (z,))


INVALID = {
    "images": (lambda: GaussianPool1d(2)(torch.zeros(1, 3, 8, 8)), r"expected signals \[N, C, T\]"),
    "samples alone": (lambda: GaussianPool1d(2)(torch.zeros(8)), r"expected signals \[N, C, T\]"),
    "indices of max pooling": (
        lambda: GaussianUnpool1d(2)(*torch.nn.functional.max_pool1d(torch.zeros(1, 3, 8), 2, return_indices=True)),
        "expected PoolingParams",
    ),
    "a stride of 0": (lambda: GaussianPool1d(2, stride=0), "must be at least 1"),
    "a pair": (lambda: GaussianPool1d((2, 2)), "expected an integer"),
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_arguments_raise_an_error(what: str) -> None:
    call, message = INVALID[what]
    with pytest.raises(SpecError, match=message):
        call()
