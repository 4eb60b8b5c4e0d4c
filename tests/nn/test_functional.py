"""Gaussian pooling as functions: formulas, the geometry of PyTorch's pooling, signs, dtypes,
layouts, derivatives."""

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from whatwhere.errors import EngineError, SpecError
from whatwhere.formulas.fits import SWITCH
from whatwhere.latents import PoolingParams
from whatwhere.nn import functional as F
from whatwhere.nn import fused
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

# kernel_size, stride, padding, ceil_mode
WINDOWS = [
    (2, None, 0, False),
    (2, None, 0, True),
    (3, 2, 1, False),
    (3, 2, 1, True),
    (3, 1, 0, False),
    ((3, 2), (1, 2), (1, 0), True),
    (2, 3, 0, True),
    ((1, 4), None, (0, 2), False),
]
MAPS = (2, 3, 7, 9)


def maps(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    return torch.randn(
        *(shape or MAPS), generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def given(p: Tensor, seed: int = 1) -> PoolingParams:
    shape = (p.shape[0], 2, *p.shape[1:])
    return PoolingParams(
        maps(*shape, seed=seed).to(p.dtype) / 2, maps(*shape, seed=seed + 1).to(p.dtype).abs()
    )


def pool(z: Tensor, window: tuple, **options: object) -> Any:
    return F.gaussian_pool2d(z, *window[:3], ceil_mode=window[3], **options)


def literal_weights(
    where: PoolingParams, index: tuple, size: tuple, begin: tuple, extent: tuple
) -> dict[tuple, float]:
    """w of a region's elements, straight from the formula, by their place in the map."""
    n, c, y, x = index
    axes = []
    for a in range(2):
        mu, gamma = where.mu[n, a, c, y, x].item(), where.gamma[n, a, c, y, x].item()
        there = [i for i in range(size[a]) if 0 <= begin[a] + i < extent[a]]
        q = {i: math.exp(-gamma * (i - (size[a] - 1) / 2 - mu) ** 2 / 2) for i in there}
        axes.append({begin[a] + i: math.sqrt(v / sum(q.values())) for i, v in q.items()})
    return {(i, j): u * v for (i, u), (j, v) in itertools.product(axes[0].items(), axes[1].items())}


def pair(value: int | tuple) -> tuple:
    return value if isinstance(value, tuple) else (value, value)


@pytest.mark.parametrize("window", WINDOWS)
def test_the_regions_are_those_of_max_pooling(window: tuple) -> None:
    kernel, stride, padding, ceil_mode = window
    for height, width in ((7, 9), (8, 8), (4, 11)):
        z = maps(1, 2, height, width)
        largest = torch.nn.functional.max_pool2d(z, kernel, stride, padding, ceil_mode=ceil_mode)
        assert pool(z, window).shape == largest.shape


def test_the_grid_is_that_of_max_pooling_for_every_size() -> None:
    for n, s, t, b, ceil in itertools.product(
        range(1, 12), range(1, 6), range(1, 6), range(3), (False, True)
    ):
        way = n + 2 * b - s
        if 2 * b > s or (-(-way // t) if ceil else way // t) < 0:
            continue  # PyTorch raises an error
        regions = Regions((1, n, n), (1, s, s), (1, t, t), (0, b, b), ceil)
        largest = torch.nn.functional.max_pool2d(torch.zeros(1, n, n), s, t, b, ceil_mode=ceil)
        assert regions.grid == largest.shape


@pytest.mark.parametrize("window", WINDOWS)
def test_pool_and_unpool_are_the_formulas(window: tuple) -> None:
    kernel, stride, padding, _ = window
    size, before = pair(kernel), pair(padding)
    step = size if stride is None else pair(stride)
    z = maps()
    p = pool(z, window)
    where, feature = given(p), maps(*p.shape, seed=3)
    pooled, spread = torch.zeros_like(p), torch.zeros_like(z)
    for index in itertools.product(*map(range, p.shape)):
        begin = tuple(o * t - b for o, t, b in zip(index[2:], step, before, strict=True))
        for place, w in literal_weights(where, index, size, begin, z.shape[2:]).items():
            pooled[index] += w * z[(*index[:2], *place)]
            spread[(*index[:2], *place)] += w * feature[index]
    torch.testing.assert_close(pool(z, window, where=where), pooled)
    torch.testing.assert_close(
        F.gaussian_unpool2d(feature, where, kernel, stride, padding, z.shape), spread
    )


@pytest.mark.parametrize("power", [1, 2])
def test_moments_are_mean_and_variance_of_the_place(power: int) -> None:
    z = maps(1, 1, 3, 3)
    _, where = F.gaussian_pool2d(z, 3, fit=MomentFit(power=power), return_where=True)
    s = z[0, 0].abs() ** power
    for axis in (0, 1):
        x = torch.tensor([-1.0, 0.0, 1.0], dtype=z.dtype)
        mass = s.sum(1 - axis) / s.sum()
        mean = (mass * x).sum()
        torch.testing.assert_close(where.mu[0, axis, 0, 0, 0], mean)
        torch.testing.assert_close(
            where.gamma[0, axis, 0, 0, 0], 1 / (mass * (x - mean) ** 2).sum()
        )


def test_precisions_are_bounded_and_empty_regions_flat() -> None:
    z = torch.zeros(1, 1, 2, 4)
    z[0, 0, 0, 0] = -5
    p, where = F.gaussian_pool2d(
        z, 2, fit=MomentFit(gamma_min=0.5, gamma_max=30), return_where=True
    )
    assert where.gamma.flatten().tolist() == pytest.approx([30, 0.5, 30, 0.5])
    assert where.mu.flatten().tolist() == [-0.5, 0, -0.5, 0]
    assert p[0, 0, 0, 0] == pytest.approx(-5, rel=1e-4)  # the sign is kept


def test_switches_give_max_pooling_and_zero_precision_the_sum() -> None:
    z = maps(2, 3, 6, 8).abs()
    largest, index = torch.nn.functional.max_pool2d(z, 2, return_indices=True)
    centre = torch.stack([index // 8 % 2, index % 2], 1) - 0.5
    switch = PoolingParams(centre.double(), torch.full(centre.shape, SWITCH, dtype=z.dtype))
    torch.testing.assert_close(F.gaussian_pool2d(z, 2, where=switch), largest)
    flat = PoolingParams(torch.zeros_like(centre).double(), torch.zeros_like(centre).double())
    torch.testing.assert_close(
        F.gaussian_pool2d(z, 2, where=flat), 2 * torch.nn.functional.avg_pool2d(z, 2)
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_pool_and_unpool_are_adjoint(window: tuple) -> None:
    z = maps()
    p = pool(z, window)
    where, q = given(p), maps(*p.shape, seed=4)
    up = F.gaussian_unpool2d(q, where, *window[:3], output_size=z.shape)
    torch.testing.assert_close((pool(z, window, where=where) * q).sum(), (z * up).sum())


@pytest.mark.parametrize("window", WINDOWS[2:6:3])
def test_derivatives_of_the_first_and_second_order(window: tuple) -> None:
    z = maps(1, 1, 4, 5).requires_grad_()
    p = pool(z, window).detach()
    where, q = given(p).map(Tensor.requires_grad_), maps(*p.shape, seed=5).requires_grad_()

    def fitted(z: Tensor) -> tuple[Tensor, ...]:
        p, where = pool(z, window, return_where=True)
        return p, where.mu, where.gamma

    def pooled(z: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        return pool(z, window, where=PoolingParams(mu, gamma))

    def unpooled(q: Tensor, mu: Tensor, gamma: Tensor) -> Tensor:
        return F.gaussian_unpool2d(q, PoolingParams(mu, gamma), *window[:3], z.shape)

    for function, inputs in (
        (fitted, (z,)),
        (pooled, (z, where.mu, where.gamma)),
        (unpooled, (q, where.mu, where.gamma)),
    ):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs, fast_mode=True)


def test_gradients_are_finite_where_a_region_is_empty_or_has_one_place() -> None:
    z = torch.zeros(1, 1, 2, 4)
    z[0, 0, 1, 1] = 2
    z.requires_grad_()
    p, where = F.gaussian_pool2d(z, 2, return_where=True)
    (p.sum() + where.mu.sum() + where.gamma.sum()).backward()
    assert z.grad is not None
    assert z.grad.isfinite().all()
    assert z.grad[0, 0, 1, 1] == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float16, 3.5e-4), (torch.bfloat16, 2.8e-3), (torch.float32, 1e-6)],
)
def test_every_dtype_is_near_float64(dtype: torch.dtype, tolerance: float) -> None:
    z = maps(dtype=dtype)
    results = []
    for maps_here in (z, z.double()):
        leaf = maps_here.requires_grad_()
        p, where = F.gaussian_pool2d(leaf, 3, 2, 1, return_where=True)
        up = F.gaussian_unpool2d(p, where, 3, 2, 1, z.shape)
        results.append((p, where.mu, where.gamma, up, *torch.autograd.grad(up.sum(), leaf)))
    for ours, truth in zip(*results, strict=True):
        assert ours.dtype == dtype
        assert (ours.double() - truth).norm() <= tolerance * truth.norm()


def test_channels_last_stays_so() -> None:
    z = maps().contiguous(memory_format=torch.channels_last)
    p, where = F.gaussian_pool2d(z, 2, return_where=True)
    assert p.is_contiguous(memory_format=torch.channels_last)
    assert F.gaussian_unpool2d(p, where, 2).is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(p.contiguous(), F.gaussian_pool2d(maps(), 2))


@pytest.mark.parametrize("window", WINDOWS)
def test_an_empty_batch(window: tuple) -> None:
    z = maps(0, 3, 7, 9).requires_grad_()
    p, where = pool(z, window, return_where=True)
    up = F.gaussian_unpool2d(p, where, *window[:3], z.shape)
    assert up.shape == z.shape
    assert torch.autograd.grad(up.sum(), z)[0].shape == z.shape


def test_a_single_image_needs_no_batch() -> None:
    z = maps()
    p, where = F.gaussian_pool2d(z, 2, return_where=True)
    p_0, where_0 = F.gaussian_pool2d(z[0], 2, return_where=True)
    torch.testing.assert_close(p_0, p[0])
    torch.testing.assert_close(where_0.gamma, where.gamma[0])
    torch.testing.assert_close(
        F.gaussian_unpool2d(p_0, where_0, 2), F.gaussian_unpool2d(p, where, 2)[0]
    )
    torch.testing.assert_close(F.gaussian_pool2d(z[0], 2, where=where_0), p[0])


def test_the_smallest_map_is_the_default_of_unpooling() -> None:
    z = maps(1, 1, 7, 9)
    p, where = F.gaussian_pool2d(z, 2, return_where=True)
    assert F.gaussian_unpool2d(p, where, 2).shape == (1, 1, 6, 8)
    whole = F.gaussian_unpool2d(p, where, 2, output_size=(7, 9))
    assert whole.shape == z.shape
    assert not whole[:, :, 6:].any()


INVALID = {
    "larger than the map": lambda z: F.gaussian_pool2d(z, 10),
    "integers": lambda z: F.gaussian_pool2d(z.long(), 2),
    "a matrix": lambda z: F.gaussian_pool2d(z[0, 0], 2),
    "no kernel": lambda z: F.gaussian_pool2d(z, 0),
    "a fraction": lambda z: F.gaussian_pool2d(z, 2.0),
    "a pair of fractions": lambda z: F.gaussian_pool2d(z, (2.0, 2.0)),
    "a tensor as Gaussians": lambda z: F.gaussian_pool2d(z, 2, where=given(z).mu),
    "indices of max pooling": lambda z: F.gaussian_unpool2d(
        *torch.nn.functional.max_pool2d(z, 2, return_indices=True), 2
    ),
    "three numbers": lambda z: F.gaussian_pool2d(z, (2, 2, 2)),
    "too much padding": lambda z: F.gaussian_pool2d(z, 2, 2, 2),
    "another grid": lambda z: F.gaussian_pool2d(z, 2, where=given(z)),
    "another size": lambda z: F.gaussian_unpool2d(z, given(z), 2, output_size=(7, 9)),
    "an unknown form": lambda z: F.gaussian_pool2d(z, 2, form="fast"),
    "no bound": lambda z: F.gaussian_pool2d(z, 2, fit=MomentFit(gamma_max=math.inf)),
    "a dilation": lambda z: F.gaussian_pool2d(z, 2, dilation=2),
    "indices": lambda z: F.gaussian_pool2d(z, 2, return_indices=True),
    "the cube": lambda z: F.gaussian_pool2d(z, 2, fit=MomentFit(power=3)),
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_arguments_raise_an_error(what: str) -> None:
    with pytest.raises(SpecError):
        INVALID[what](maps())


def test_unsupported_fused_kernels_raise_an_error_with_the_reason() -> None:
    with pytest.raises(EngineError, match="meta"):
        F.gaussian_pool2d(maps().to("meta"), 2, form="fused")


def test_a_missing_compiler_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "HAS_NUMBA", False)
    with pytest.raises(EngineError, match=r"is not installed \(pip install numba\)"):
        F.gaussian_pool2d(maps(dtype=torch.float32), 2, form="fused")


def test_the_defaults_of_max_pooling_are_accepted() -> None:
    z = maps()
    ours = F.gaussian_pool2d(z, 3, 2, 1, dilation=1, ceil_mode=False, return_indices=False)
    assert torch.equal(ours, F.gaussian_pool2d(z, 3, 2, 1, dilation=(1, 1)))


def test_dilation_by_position_is_not_taken_for_another_option() -> None:
    with pytest.raises(TypeError, match="positional"):
        F.gaussian_pool2d(maps(), 3, 2, 1, 1)  # type: ignore[misc]


@pytest.mark.parametrize("form", ["plain", "auto"])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_region_without_a_finite_maximum_is_nan_and_its_neighbours_are_not(
    form: str, value: float
) -> None:
    for kernel in (2, 3):
        z = maps(1, 1, 6, 6, dtype=torch.float32)
        expected, _ = F.gaussian_pool2d(z, kernel, return_where=True, form=form)
        z[0, 0, 0, 1] = value
        p, (mu, _) = F.gaussian_pool2d(z, kernel, return_where=True, form=form)
        nans = torch.zeros_like(p, dtype=torch.bool)
        nans[0, 0, 0, 0] = True
        assert torch.equal(p.isnan(), nans)
        assert torch.equal(p[~nans], expected[~nans])
        assert torch.equal(mu.isnan(), nans[:, None].expand(mu.shape))


@pytest.mark.parametrize("form", ["plain", "auto"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("kernel", [2, 3])
def test_subnormal_elements_have_finite_gaussians_and_gradients(
    kernel: int, power: int, form: str
) -> None:
    sizes = torch.tensor([1e-45, 1e-42, 1e-39, 1.1e-38, 1.3e-38, 1e-37, 1e-33, 1e-20])
    z = torch.rand(8, 2, 6, 6) * sizes[:, None, None, None]
    z = z.requires_grad_()
    fit = MomentFit(power=power)
    p, (mu, gamma) = F.gaussian_pool2d(z, kernel, return_where=True, form=form, fit=fit)
    assert all(tensor.isfinite().all() for tensor in (p, mu, gamma))
    assert (mu[-1].abs() > 0.01).any()  # not empty: the moments do not depend on the scale
    (gradient,) = torch.autograd.grad(p.sum(), z)
    assert gradient.isfinite().all()
    assert (gradient.abs() < 1e3).all()
