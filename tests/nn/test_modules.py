"""The layers: the three fits, the pair with unpooling, and parameters."""

import inspect

import pytest
import torch
from torch import nn

import whatwhere as ww
from whatwhere.errors import SpecError
from whatwhere.nn import (
    GaussianPool1d,
    GaussianPool2d,
    GaussianUnpool1d,
    GaussianUnpool2d,
    PoolingParams,
)
from whatwhere.nn import functional as F
from whatwhere.spec import MomentFit


def test_the_package_has_them() -> None:
    assert ww.nn.GaussianPool2d is GaussianPool2d
    assert ww.PoolingParams is PoolingParams


def test_the_module_shows_its_public_names_only() -> None:
    layers = [f"Gaussian{kind}{axes}d" for kind in ("Pool", "Unpool") for axes in (1, 2)]
    assert dir(ww.nn) == [*layers, "PoolingParams", "SparseCode2d", "functional"]


def test_moments() -> None:
    z = torch.randn(2, 3, 8, 8)
    p, where = GaussianPool2d(3, 2, 1, return_where=True)(z)
    expected, there = F.gaussian_pool2d(z, 3, 2, 1, return_where=True)
    assert torch.equal(p, expected)
    assert torch.equal(where.gamma, there.gamma)
    assert torch.equal(GaussianPool2d(3, 2, 1)(z), expected)
    back = GaussianUnpool2d(3, 2, 1)(p, where, output_size=z.shape)
    assert torch.equal(back, F.gaussian_unpool2d(expected, there, 3, 2, 1, z.shape))


def test_fit_is_the_same_argument_for_the_layer_and_the_function() -> None:
    z, fit = torch.randn(2, 3, 8, 8), MomentFit(gamma_min=0.5, gamma_max=3.0, power=1)
    assert torch.equal(GaussianPool2d(2, fit=fit)(z), F.gaussian_pool2d(z, 2, fit=fit))
    assert not torch.equal(GaussianPool2d(2)(z), F.gaussian_pool2d(z, 2, fit=fit))
    parameters = [
        inspect.signature(function).parameters["fit"]
        for function in (GaussianPool2d, F.gaussian_pool2d)
    ]
    assert parameters[0].annotation == parameters[1].annotation
    assert parameters[0].default == parameters[1].default


def test_input() -> None:
    z = torch.randn(2, 3, 8, 8)
    where = PoolingParams(torch.randn(2, 2, 3, 4, 4), torch.rand(2, 2, 3, 4, 4))
    p, same = GaussianPool2d(2, gaussians="input", return_where=True)(z, where)
    assert torch.equal(p, F.gaussian_pool2d(z, 2, where=where))
    assert torch.equal(same.mu, where.mu)


def test_learned_has_one_gaussian_a_channel() -> None:
    pool = GaussianPool2d(2, gaussians="learned", channels=3, return_where=True)
    assert {name: tuple(value.shape) for name, value in pool.state_dict().items()} == {
        "mu": (2, 3),
        "log_gamma": (2, 3),
    }
    with torch.no_grad():
        pool.mu.copy_(torch.tensor([[0.1, -0.2, 0.3], [0.0, 0.5, -0.5]]))
        pool.log_gamma.copy_(torch.tensor([[0.0, 1.0, 2.0], [-1.0, 0.5, 0.2]]))
    z = torch.randn(2, 3, 4, 6)
    p, where = pool(z)
    assert where.mu.shape == (2, 2, 3, 2, 3)
    assert torch.equal(where.gamma[1, 0, :, 1, 2], pool.log_gamma[0].exp())
    torch.testing.assert_close(p, F.gaussian_pool2d(z, 2, where=where))
    torch.testing.assert_close(pool(z[0])[0], p[0])


def test_learned_gaussians_learn() -> None:
    """Data whose signal is in the upper left of every region: the Gaussian moves there."""
    torch.manual_seed(0)
    pool = GaussianPool2d(2, gaussians="learned", channels=1)
    optimizer = torch.optim.Adam(pool.parameters(), lr=0.1)
    for _ in range(60):
        z = torch.randn(16, 1, 8, 8)
        loss = (pool(z) - z[:, :, ::2, ::2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (pool.mu < -0.4).all()
    assert loss < 0.1


def test_state_is_restored() -> None:
    first, second = (GaussianPool2d(2, gaussians="learned", channels=3) for _ in range(2))
    nn.init.normal_(first.mu)
    second.load_state_dict(first.state_dict())
    z = torch.randn(1, 3, 4, 4)
    assert torch.equal(first(z), second(z))
    assert not GaussianPool2d(2).state_dict()


def test_half_precision_input_with_float32_parameters() -> None:
    pool = GaussianPool2d(2, gaussians="learned", channels=3)
    p = pool(torch.randn(1, 3, 4, 4).bfloat16())
    assert p.dtype == torch.bfloat16
    p.sum().backward()
    assert pool.mu.grad is not None
    assert pool.mu.grad.dtype == torch.float32


def test_repr() -> None:
    assert "kernel_size=3, stride=2, padding=1, ceil_mode=False, gaussians='moments'" in repr(
        GaussianPool2d(3, 2, 1)
    )
    assert "kernel_size=3" in repr(GaussianUnpool2d(3))


INVALID = {
    "unknown gaussians": lambda: GaussianPool2d(2, gaussians="best"),
    "learned without channels": lambda: GaussianPool2d(2, gaussians="learned"),
    "channels without learned": lambda: GaussianPool2d(2, channels=3),
    "a bad kernel": lambda: GaussianUnpool2d(0),
    "where for moments": lambda: GaussianPool2d(2)(
        torch.zeros(1, 1, 2, 2), PoolingParams(torch.zeros(1), torch.zeros(1))
    ),
    "no where for input": lambda: GaussianPool2d(2, gaussians="input")(torch.zeros(1, 1, 2, 2)),
    "other channels": lambda: GaussianPool2d(2, gaussians="learned", channels=3)(
        torch.zeros(1, 2, 2, 2)
    ),
}


def test_a_layer_with_learned_gaussians_names_the_channels_that_it_expects() -> None:
    with pytest.raises(SpecError, match="an input of 2 channels; expected 3"):
        INVALID["other channels"]()


@pytest.mark.parametrize("what", INVALID)
def test_invalid_arguments_raise_an_error(what: str) -> None:
    with pytest.raises(SpecError):
        INVALID[what]()


# Pooling of signals: that of images of height 1, to the bit ---------------------------------------


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(2, None, 0), (3, 2, 1), (4, 4, 0)])
def test_pooling_is_that_of_images_of_height_1(
    kernel: int, stride: int | None, padding: int
) -> None:
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


def test_unpooling_signals_is_the_adjoint() -> None:
    generator = torch.Generator().manual_seed(0)
    z, p = (
        torch.randn(2, 3, 12, generator=generator).double(),
        torch.randn(2, 3, 6, generator=generator).double(),
    )
    where = PoolingParams(
        torch.rand(2, 3, 6, generator=generator).double() - 0.5, torch.ones(2, 3, 6).double()
    )
    pooled = GaussianPool1d(2, gaussians="input", form="plain")(z, where)
    assert float((pooled * p).sum()) == pytest.approx(
        float((z * GaussianUnpool1d(2, form="plain")(p, where)).sum())
    )


def test_gradients_reach_input_and_learned_gaussians() -> None:
    z = torch.randn(2, 3, 8, requires_grad=True, dtype=torch.float64)
    pool = GaussianPool1d(2, gaussians="learned", channels=3, form="plain", dtype=torch.float64)
    pool(z).square().sum().backward()
    assert z.grad is not None
    assert z.grad.abs().sum() > 0
    assert pool.mu.grad is not None
    assert pool.mu.grad[1].abs().sum() > 0
    assert torch.autograd.gradcheck(GaussianPool1d(2, form="plain"), (z,))


INVALID_FOR_SIGNALS = {
    "images": (lambda: GaussianPool1d(2)(torch.zeros(1, 3, 8, 8)), r"expected signals \[N, C, T\]"),
    "samples alone": (lambda: GaussianPool1d(2)(torch.zeros(8)), r"expected signals \[N, C, T\]"),
    "indices of max pooling": (
        lambda: GaussianUnpool1d(2)(
            *torch.nn.functional.max_pool1d(torch.zeros(1, 3, 8), 2, return_indices=True)
        ),
        "expected PoolingParams",
    ),
    "a stride of 0": (lambda: GaussianPool1d(2, stride=0), "expected at least 1"),
    "a pair": (lambda: GaussianPool1d((2, 2)), "expected an integer"),
}


@pytest.mark.parametrize("what", INVALID_FOR_SIGNALS)
def test_invalid_arguments_for_signals_raise_an_error(what: str) -> None:
    call, message = INVALID_FOR_SIGNALS[what]
    with pytest.raises(SpecError, match=message):
        call()


def test_channels_belong_to_learned_gaussians() -> None:
    with pytest.raises(SpecError, match="'learned' needs `channels`, the number of channels"):
        GaussianPool2d(2, gaussians="learned")
    with pytest.raises(SpecError, match="Only gaussians = 'learned' takes `channels`"):
        GaussianPool2d(2, channels=3)
