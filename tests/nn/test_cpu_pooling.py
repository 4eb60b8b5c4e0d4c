"""The kernels for the CPU: the plain form's values and gradients, in every layout and with any
number of threads."""

import itertools
import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from whatwhere.latents import PoolingParams
from whatwhere.nn import GaussianPool2d, fused, plain
from whatwhere.nn import functional as F
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

pytest.importorskip("numba")
cpu_pooling = pytest.importorskip("whatwhere.nn.cpu_pooling")

TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
# size, stride, padding, ceil
WINDOWS = [
    ((2, 2), (2, 2), (0, 0), False),
    ((2, 2), (2, 2), (0, 0), True),
    ((3, 3), (2, 2), (1, 1), False),
    ((3, 2), (2, 1), (0, 1), True),
    ((1, 2), (2, 3), (0, 1), True),
    ((5, 4), (5, 4), (0, 0), True),
    ((5, 4), (2, 1), (1, 2), True),
]
# of maps so wide that rows of regions are whole vectors, and so high that a plane has several tiles
WIDE = [
    ((2, 2), (2, 2), (0, 0), False),
    ((3, 3), (2, 2), (1, 1), True),
    ((4, 4), (2, 2), (2, 2), False),
    ((3, 3), (1, 1), (1, 1), False),
]


@pytest.fixture(autouse=True)
def _poison_new_memory() -> object:
    """Fill new memory with NaN, so that what a kernel does not write shows."""
    # the public function imports all of torch's compiler
    torch._C._set_deterministic_algorithms(True)
    yield
    torch._C._set_deterministic_algorithms(False)


def outputs(form: object, z: Tensor, regions: Regions, fit: MomentFit) -> dict[str, Tensor]:
    """All values and all gradients."""
    torch.manual_seed(1)
    leaf = z.detach().requires_grad_()
    p, where = form.fit_pool(leaf, regions, fit, True)  # type: ignore[attr-defined]
    ys = (p, where.mu, where.gamma)
    results = {"p": p, "mu": where.mu, "gamma": where.gamma}
    (results["∇fit"],) = torch.autograd.grad(
        ys, leaf, [torch.randn(y.shape, dtype=z.dtype) for y in ys], retain_graph=True
    )
    (results["∇p only"],) = torch.autograd.grad(p, leaf, torch.randn(p.shape, dtype=z.dtype))
    given = where.map(lambda theta: (torch.rand(theta.shape, dtype=z.dtype) / 2).requires_grad_())
    q = torch.randn(p.shape, dtype=z.dtype).requires_grad_()
    for name, x, function in (("pool", leaf, form.pool), ("unpool", q, form.unpool)):  # type: ignore[attr-defined]
        results[name] = y = function(x, given, regions)
        products = torch.autograd.grad(
            y, (x, given.mu, given.gamma), torch.randn(y.shape, dtype=z.dtype)
        )
        results |= {f"∇{k} {name}": gradient for k, gradient in enumerate(products)}
    return results


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
@pytest.mark.parametrize("window", WINDOWS)
def test_values_and_gradients_are_those_of_the_plain_form(
    window: tuple, dtype: torch.dtype
) -> None:
    size, stride, padding, ceil = window
    for layout, power in itertools.product((torch.contiguous_format, torch.channels_last), (1, 2)):
        z = torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(power)).to(dtype)
        z[0, 0, :4, :5] = 0  # empty regions, and some with few elements
        z[0, 0, 1, 1] = 2
        z = z.contiguous(memory_format=layout)
        regions = Regions((3, 9, 11), (1, *size), (1, *stride), (0, *padding), ceil)
        ours, expected = (
            outputs(form, z, regions, MomentFit(0.5, 20, power)) for form in (fused, plain)
        )
        for name, value in ours.items():
            error = (value.double() - expected[name].double()).norm() / expected[
                name
            ].double().norm()
            assert error < TOLERANCE[dtype], (name, layout, power)
        assert ours["p"].stride() == expected["p"].stride()


@pytest.mark.parametrize("window", WIDE)
def test_values_and_gradients_of_wide_maps_are_those_of_the_plain_form(window: tuple) -> None:
    size, stride, padding, ceil = window
    z = torch.randn(1, 2, 37, 71, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    regions = Regions((2, 37, 71), (1, *size), (1, *stride), (0, *padding), ceil)
    ours, expected = (outputs(form, z, regions, MomentFit()) for form in (fused, plain))
    for name, value in ours.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-9, atol=1e-9, msg=name)


def test_its_derivatives_are_right() -> None:
    z = torch.randn(1, 2, 4, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda z: F.gaussian_pool2d(z, 2, form="fused"), z)
    assert gradgradcheck(lambda z: F.gaussian_pool2d(z, 2, form="fused"), z)
    with torch.no_grad():
        torch.testing.assert_close(
            F.gaussian_pool2d(z, 2, form="fused"), F.gaussian_pool2d(z, 2, form="plain")
        )


def test_shared_gaussians_and_slices_of_larger_maps() -> None:
    z = torch.randn(4, 6, 12, 14, dtype=torch.float64)[::2, 1:4, 2:, ::2]
    where = PoolingParams(
        torch.randn(1, 2, 3, 1, 1).double() / 3, torch.rand(1, 2, 1, 1, 1).double()
    )
    ours, expected = (
        F.gaussian_pool2d(z, 2, where=where, form=form) for form in ("fused", "plain")
    )
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(
        F.gaussian_pool2d(z, 2, form="fused"), F.gaussian_pool2d(z, 2, form="plain")
    )


@pytest.mark.parametrize("window", [(2,), (3, 2, 1)])
def test_the_number_of_threads_changes_nothing(window: tuple) -> None:
    z = torch.randn(7, 33, 31, 60, requires_grad=True)
    results = []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            p = F.gaussian_pool2d(z, *window, form="fused")
            results.append((p, *torch.autograd.grad(p.square().sum(), z)))
    finally:
        torch.set_num_threads(1)
    for p, gradient in results[1:]:
        assert torch.equal(p, results[0][0])
        assert torch.equal(gradient, results[0][1])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_in_the_kernels(dtype: torch.dtype) -> None:
    z = torch.randn(2, 3, 8, 6).to(dtype)
    exact = z.double().requires_grad_()
    leaf = z.requires_grad_()
    for window in ((2,), (3, 2, 1)):
        ours = F.gaussian_pool2d(leaf, *window, form="fused")
        expected = F.gaussian_pool2d(exact, *window, form="plain")
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), expected, rtol=1e-2, atol=1e-2)
        (gradient,) = torch.autograd.grad(ours.sum(), leaf)
        assert gradient.dtype == dtype
        (truth,) = torch.autograd.grad(expected.sum(), exact)
        torch.testing.assert_close(gradient.double(), truth, rtol=5e-2, atol=5e-2)


def test_a_map_may_be_more_precise_than_its_gaussians() -> None:
    z = torch.randn(1, 2, 4, 4, dtype=torch.float64)
    where = PoolingParams(torch.rand(1, 2, 2, 2, 2) / 2, torch.rand(1, 2, 2, 2, 2))
    ours = F.gaussian_pool2d(z, 2, where=where, form="fused")
    assert ours.dtype == torch.float64
    torch.testing.assert_close(ours, F.gaussian_pool2d(z, 2, where=where, form="plain"))


def test_the_first_call_without_machine_code_says_what_takes_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_pooling, "is_compiled", lambda function: False)
    cpu_pooling.announce_compilation.cache_clear()
    with pytest.warns(UserWarning, match="compiles its kernels, which takes about 20 s"):
        GaussianPool2d(2, form="fused")(torch.rand(1, 1, 4, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        GaussianPool2d(2, form="fused")(torch.rand(1, 1, 4, 4))  # said once
