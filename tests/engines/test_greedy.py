"""The engine `greedy`: its codes are the lasso's, which scikit-learn solves on the dense matrix of
R."""

from dataclasses import replace

import pytest
import torch
from sklearn.linear_model import Lasso
from torch import Tensor

import whatwhere as ww
from raising import raises
from whatwhere.engines import get_engine, resolve
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.convergence import solve
from whatwhere.engines.cpu import greedy
from whatwhere.latents import Latents
from whatwhere.model import Problem

CODING = ww.InferenceSpec.coding(lam=2.0, tolerance=1e-13)


def example(
    nonnegative: bool = True,
    channels: int = 1,
    length: int = 7,
    samples: int = 60,
    dtype: torch.dtype = torch.float64,
) -> tuple[ww.DeconvNet, Tensor]:
    """A model without pooling whose waveforms have different norms, and three signals."""
    spec = replace(
        ww.ModelSpec.signals(4, length, channels=channels, pool_size=1), nonnegative=nonnegative
    )
    generator = torch.Generator().manual_seed(length + channels)
    filters = torch.randn(channels, 4, 1, length, generator=generator, dtype=dtype)
    filters = (
        filters
        / filters.square().sum((0, 3), keepdim=True).sqrt()
        * torch.tensor([1, 0.5, 2, 1]).view(1, 4, 1, 1)
    )
    model = ww.DeconvNet(spec, dtype=dtype).with_filters(1, filters)
    return model, torch.randn(3, channels, samples, generator=generator, dtype=dtype)


def least_cost(model: ww.DeconvNet, signal: Tensor, lam: float, weights: Tensor) -> float:
    """The least λ/2 ‖M ⊙ (R p - v)‖² + Σ|p| of one signal [C, T]."""
    sized = model.at(1, signal.shape[1])
    grid = sized.regions[0].grid
    unit = torch.eye(grid[0] * grid[2], dtype=torch.float64).view(-1, *grid)
    pooling = [torch.zeros(len(unit), 2, *grid, dtype=torch.float64)] * 2
    R = sized.reconstruct(unit, sized.weights([ww.latents.PoolingParams(*pooling)])).flatten(1).T
    R, v = R * weights.flatten()[:, None], (signal * weights).flatten()
    alpha, positive = 1 / (lam * len(v)), model.spec.nonnegative
    solver = Lasso(alpha, fit_intercept=False, positive=positive, tol=1e-14, max_iter=200_000)
    p = torch.from_numpy(solver.fit(R.numpy(), v.numpy()).coef_)
    return float(lam / 2 * (R @ p - v).square().sum() + p.abs().sum())


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize(
    ("channels", "length", "samples"), [(1, 7, 60), (2, 16, 50), (1, 33, 20), (3, 1, 9)]
)
def test_a_code_has_the_cost_of_the_lasso(
    nonnegative: bool, channels: int, length: int, samples: int
) -> None:
    """Also where waveforms are longer than the signal, so that each reaches beyond an end."""
    model, signals = example(nonnegative, channels, length, samples)
    solution = ww.infer(model, signals, CODING)
    assert solution.engine == "greedy"
    assert (solution.features < 0).any() != nonnegative
    assert not (
        (solution.features != 0) & (solution.features.abs() < 1e-12)
    ).any()  # what is removed is 0
    for signal, cost in zip(signals, solution.stats.cost[-1].tolist(), strict=True):
        assert cost == pytest.approx(
            least_cost(model, signal, CODING.lam, torch.ones_like(signal)), rel=1e-8
        )


@pytest.mark.parametrize("kind", ["gaps", "gaps of one channel", "weights"])
def test_masked_samples_count_by_their_weight(kind: str) -> None:
    model, signals = example(channels=2, length=9)
    mask = torch.rand(3, 2, 60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mask = mask[:, :1] if kind == "weights" else (mask > 0.2).double()
    if kind == "gaps of one channel":
        mask[:, 1] = 1
    solution = ww.infer(model, signals, CODING, mask=mask)
    assert solution.engine == "greedy"
    for signal, weights, cost in zip(signals, mask, solution.stats.cost[-1].tolist(), strict=True):
        assert cost == pytest.approx(
            least_cost(model, signal, CODING.lam, weights.expand_as(signal)), rel=1e-8
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_statistics_are_those_of_the_code(dtype: torch.dtype) -> None:
    model, signals = example(False, 2, 12, 700, dtype)
    solution = ww.infer(model, signals, replace(CODING, tolerance=1e-3))
    problem = Problem(model, signals[:, :, None], ww.Phase(layer=1), CODING)
    parts, stats = problem.objective(solution.latents), solution.stats
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-11}[dtype]
    torch.testing.assert_close(
        stats.reconstruction[-1], parts.reconstruction, rtol=tolerance, atol=0
    )
    torch.testing.assert_close(stats.penalty[-1], parts.penalty, rtol=tolerance, atol=0)
    assert torch.equal(stats.nonzeros[-1], parts.nonzeros)
    torch.testing.assert_close(
        stats.cost[0], problem.lam / 2 * signals.square().sum((1, 2)), rtol=tolerance, atol=0
    )
    assert (stats.cost.diff(dim=0) <= 0).all()
    assert ((stats.step == 1) | (stats.step == 0)).all()


def test_it_is_finished_within_about_the_tolerance_of_the_minimum() -> None:
    model, signals = example(length=16, samples=2000)
    least = ww.infer(model, signals, CODING).stats.cost[-1]
    fewer = torch.zeros(len(signals), dtype=torch.long)
    for tolerance in (1e-2, 1e-3, 1e-4):
        stats = ww.infer(model, signals, replace(CODING, tolerance=tolerance)).stats
        gap, last = stats.cost[-1] / least - 1, stats.step.sum(0).long()
        assert float(gap.max()) < greedy.LARGEST_GAP * tolerance
        # The duality gap overestimates: codes may be much nearer to the minimum than the tolerance.
        # But a larger tolerance must save work.
        assert (fewer < last).all()
        fewer = last
        before, after = (stats.cost.gather(0, sweep[None]) for sweep in (last - 1, last))
        assert (before - after <= tolerance * after).all()  # what its last sweep gained


def test_coefficients_that_wait_for_each_other_are_fitted_among_themselves() -> None:
    """A dense recording: by single steps alone, the same accuracy takes three times the sweeps."""
    generator = torch.Generator().manual_seed(0)
    model = ww.DeconvNet(ww.ModelSpec.signals(10, 64, pool_size=1))
    filters = torch.randn(1, 10, 1, 64, generator=generator).cumsum(3) * torch.hann_window(64)
    filters /= filters.square().sum(3, keepdim=True).sqrt()
    model = model.with_filters(1, filters)
    events = torch.rand(10, 1, 1500, generator=generator) < 2e-3
    signal = torch.nn.functional.conv_transpose1d(
        events.transpose(0, 1).float(), filters[0][:, :, :].reshape(10, 1, 64)
    )
    signal += 0.03 * torch.randn(signal.shape, generator=generator)
    stats = ww.infer(model, signal, ww.InferenceSpec.coding(lam=10.0)).stats
    least = ww.infer(model, signal, ww.InferenceSpec.coding(lam=10.0, tolerance=1e-7)).stats
    assert float(stats.cost[-1] / least.cost[-1]) - 1 <= 3 * 3e-4
    assert float(stats.step.sum()) <= 35


def test_a_known_code_is_where_it_starts() -> None:
    model, signals = example(samples=300)
    spec = replace(CODING, tolerance=1e-6)
    first = ww.infer(model, signals, spec)
    again = ww.infer(model, signals, spec, latents=first.latents)
    torch.testing.assert_close(again.stats.cost[0], first.stats.cost[-1])
    assert len(again.stats.step) < len(first.stats.step)
    sum_of_two = ww.infer(
        model, signals, spec, latents=Latents(2 * first.latents.p, first.latents.pooling_params)
    )
    torch.testing.assert_close(sum_of_two.stats.cost[-1], first.stats.cost[-1], rtol=1e-5, atol=0)


def test_a_code_depends_neither_on_the_batch_nor_on_threads_and_is_that_of_the_image_of_height_1() -> (  # noqa: E501
    None
):
    model, signals = example(channels=2, samples=400, dtype=torch.float32)
    together, threads = ww.infer(model, signals, CODING), torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        again = ww.infer(model, signals[:, :, None], CODING)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(again.features[:, :, 0], together.features)
    for n in range(3):
        assert torch.equal(
            ww.infer(model, signals[n : n + 1], CODING).features[0], together.features[n]
        )


def test_silence_has_no_code_and_a_silent_waveform_no_coefficient() -> None:
    model, signals = example()
    assert not ww.infer(model, 0 * signals, CODING).features.any()
    filters = model.filters[0].clone()
    filters[:, 1] = 0
    features = ww.infer(model.with_filters(1, filters), signals, CODING).features
    assert features.any()
    assert not features[:, 1].any()


def test_a_start_where_a_waveform_has_no_energy_inside_the_signal_is_dropped() -> None:
    model, signals = example()
    filters = model.filters[0].clone()
    filters[..., -3:] *= 1e-8
    spec = replace(CODING, tolerance=1e-6)
    first = ww.infer(model.with_filters(1, filters), signals, spec)
    p = first.latents.p.clone()
    p[..., :3] = 5  # of these only the last taps are inside
    again = ww.infer(
        model.with_filters(1, filters),
        signals,
        spec,
        latents=Latents(p, first.latents.pooling_params),
    )
    torch.testing.assert_close(again.stats.cost[-1], first.stats.cost[-1], rtol=1e-5, atol=0)
    assert not again.features[..., :3].any()


def test_float32_ends_although_its_rounding_is_above_the_tolerance() -> None:
    model, signals = example(length=40, samples=300, dtype=torch.float32)
    spec = replace(CODING, tolerance=1e-30)
    rounded, exact = (
        ww.infer(model.to(dtype), signals.to(dtype), spec)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(
        rounded.stats.cost[-1].double(), exact.stats.cost[-1], rtol=1e-5, atol=0
    )


def test_waveforms_are_learned_with_it() -> None:
    model, signals = example(samples=200, dtype=torch.float32)
    recipe = replace(ww.read_recipe("signals"), model=model.spec)
    changes = {"epochs": 4, "inference": {"lam": 2.0, "tolerance": 1e-2}}
    for update in ("batch", "epoch"):
        each = {**changes, "update": {"kind": update}}
        brief, here = (
            {"learning": {"each": each}, "batch_size": 2},
            ww.TrainingOptions(device="cpu"),
        )
        run = ww.train(signals, ww.override(recipe, brief), start=model, options=here)
        assert {row.engine for row in run.history} == {"greedy"}
        before, after = (
            float(ww.infer(one, signals, replace(CODING, tolerance=1e-4)).stats.cost[-1].sum())
            for one in (model, run.model)
        )
        assert after < before


def test_problems_that_it_does_not_support() -> None:
    model, signals = example()
    pooled = ww.DeconvNet(ww.ModelSpec.signals(4, 7, pool_size=2), dtype=torch.float64)
    images = ww.DeconvNet(
        ww.ModelSpec(layers=(ww.LayerSpec(maps=2, filter_size=3, pool_size=1),)),
        dtype=torch.float64,
    )
    v = signals[:, :, None]
    for problem, why in (
        (Problem(pooled, v, ww.Phase(layer=1), CODING), "pool_size = "),
        (Problem(images, v.expand(-1, -1, 5, -1), ww.Phase(layer=1), CODING), "height 1"),
        (Problem(model, v, ww.Phase(layer=1), ww.InferenceSpec(steps=5)), "tolerance = 0.0"),
        (
            Problem(model, v, ww.Phase(layer=1), replace(CODING, penalty=ww.Power(alpha=0.5))),
            "penalty.alpha = 0.5",
        ),
    ):
        with raises(UnsupportedProblem, engine="greedy") as caught:
            get_engine("greedy").solve(problem)
        assert why in caught.value.reason
        assert resolve("auto", problem).name != "greedy"
    assert resolve("auto", Problem(model, v, ww.Phase(layer=1), CODING)).name == "greedy"


def smooth_waveforms(lam: float, samples: int = 300) -> Problem:
    """Waveforms that resemble each other, and a dense code: coordinates wait for each other."""
    spec = ww.ModelSpec.signals(6, 40, pool_size=1)
    x = torch.linspace(-1, 1, 40, dtype=torch.float64)
    widths = torch.linspace(0.3, 0.5, 6, dtype=torch.float64)
    filters = torch.exp(-((x / widths[:, None]) ** 2))
    filters = filters / filters.norm(dim=1, keepdim=True)
    model = ww.DeconvNet(spec, dtype=torch.float64).with_filters(1, filters[None, :, None])
    generator = torch.Generator().manual_seed(0)
    signals = torch.rand(2, 1, 1, samples, generator=generator, dtype=torch.float64)
    coding = ww.InferenceSpec.coding(lam=lam)
    return Problem(model, signals, ww.Phase(layer=1), coding)


@pytest.mark.parametrize("lam", [500.0, 10_000.0])
def test_a_dense_code_of_similar_waveforms_never_ends_above_that_of_cpu(lam: float) -> None:
    problem = smooth_waveforms(lam)
    ours = get_engine("greedy").solve(problem)
    cpu = solve(get_engine("cpu"), problem)
    assert (ours.stats.cost[-1] <= cpu.stats.cost[-1]).all()
    ends = problem.objective(ours.latents).cost
    torch.testing.assert_close(ours.stats.cost[-1], ends, rtol=1e-6, atol=0)


def test_a_signal_that_coordinates_do_not_finish_is_solved_by_cpu_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = smooth_waveforms(lam=500.0)
    monkeypatch.setattr(greedy, "STEPS_PER_SAMPLE", 1)
    monkeypatch.setattr(greedy, "STEPS_TIMES_WAVEFORMS", 0)
    codes = greedy.solve(problem)
    assert not codes.finished.any()
    ours = get_engine("greedy").solve(problem)
    cpu = solve(get_engine("cpu"), problem)
    assert (cpu.stats.cost[-1] < codes.solution.stats.cost[-1]).any()
    lowest = torch.minimum(cpu.stats.cost[-1], codes.solution.stats.cost[-1])
    torch.testing.assert_close(ours.stats.cost[-1], lowest, rtol=1e-12, atol=0)
    ends = problem.objective(ours.latents).cost
    torch.testing.assert_close(ours.stats.cost[-1], ends, rtol=1e-6, atol=0)
