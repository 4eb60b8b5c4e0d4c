import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

from examples import SPECS, random_images, random_latents
from whatwhere.engines.reference.ista import solve
from whatwhere.engines.reference.step_size import batch_sample, line_search, lipschitz
from whatwhere.inference import infer as infer_with
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem, SizedModel
from whatwhere.spec import (
    Fixed,
    InferenceSpec,
    LayerSpec,
    LineSearch,
    ModelSpec,
    MomentFit,
    Phase,
    Power,
)
from whatwhere.spec.recipe import joint

# the paper's joint-inference table
ONE_PHASE, ONE_PHASE_WITHOUT_U1 = (
    joint(2),
    (Phase(layer=2, update_pooling=(2,)),),
)
TWO_PHASES = (Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(2,)))

infer = partial(infer_with, engine="reference")  # every other engine is compared with this one


def every_layer(spec: ModelSpec) -> Phase:
    return joint(spec.depth)[0]


def test_one_step_is_algorithm_1_by_autograd() -> None:
    """A step of two layers from random latents, its gradients taken by autograd and its formulas
    written out."""
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    latents = random_latents(model, v)
    lam, settings = (
        3.0,
        InferenceSpec(
            lam=3.0, steps=1, pooling_step=0.02, moments=MomentFit(gamma_min=0.0, gamma_max=9.0)
        ),
    )
    latents = replace(
        latents,
        pooling_params=tuple(
            PoolingParams(t.mu.clamp(-0.4, 0.4), t.gamma) for t in latents.pooling_params
        ),
    )
    after = solve(Problem(model, v, every_layer(spec), settings, latents)).latents

    p = latents.p.clone().requires_grad_()
    thetas = [
        PoolingParams(t.mu.clone().requires_grad_(), t.gamma.clone().requires_grad_())
        for t in latents.pooling_params
    ]
    model = model.at(*v.shape[2:])
    weights = model.weights(thetas)
    smooth = 0.5 * (model.reconstruct(p, weights) - v).square().sum()
    leaves = [p, thetas[0].mu, thetas[0].gamma, thetas[1].mu, thetas[1].gamma]
    g, *theta_gradients = torch.autograd.grad(smooth, leaves)
    for n in range(len(v)):
        Rg = model.reconstruct(g, weights)[n]
        beta = (g[n].square().sum() / (lam * Rg.square().sum())).item()
        stepped = latents.p[n] - lam * beta * g[n]
        torch.testing.assert_close(after.p[n], (stepped.abs() - beta).clamp(min=0) * (stepped > 0))
    moved = [
        after.pooling_params[0].mu,
        after.pooling_params[0].gamma,
        after.pooling_params[1].mu,
        after.pooling_params[1].gamma,
    ]
    for leaf, gradient, new in zip(leaves[1:], theta_gradients, moved, strict=True):
        limits = (-0.5, 0.5) if leaf is thetas[0].mu or leaf is thetas[1].mu else (0.0, 9.0)
        torch.testing.assert_close(new, (leaf - lam * 0.02 * gradient).clamp(*limits).detach())


EXTREMES = [(0.1, 1e-6), (2.0, 255.0), (100.0, 1e5)]
CHANGES: list[dict[str, Any]] = [{}, {"penalty": Power(alpha=0.5), "step": LineSearch(per="batch")}]


# every pair of a model, an extreme and a change; not all three in every combination
@pytest.mark.parametrize(
    ("name", "extreme", "change"),
    [(name, e, (s + e) % 2) for s, name in enumerate(SPECS) for e in range(len(EXTREMES))],
)
def test_inference_stays_finite_and_never_raises_the_objective(
    name: str, extreme: int, change: int
) -> None:
    spec, (lam, contrast) = SPECS[name], EXTREMES[extreme]
    model, v = DeconvNet(spec), contrast * random_images(spec).float()
    settings = InferenceSpec(lam=lam, steps=10, **CHANGES[change])
    solution = infer(model, v, settings)
    stats = solution.stats
    for tensor in (*solution.latents.tensors(), stats.cost, stats.step):
        assert tensor.isfinite().all()
    assert (stats.cost[-1] <= stats.cost[0]).all()
    # they are those of that cost
    truth = Problem(model, v, every_layer(spec), settings).objective(solution.latents)
    torch.testing.assert_close(stats.cost[-1], truth.cost)
    if spec.nonnegative:
        assert (solution.features >= 0).all()


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("lam", "contrast"), [(2.0, 255.0), (5.0, 0.05)])
def test_the_steps_themselves_lower_the_objective(name: str, lam: float, contrast: float) -> None:
    """Without the rule that keeps the better end, at α = 1: every image, unless nothing is worth
    explaining."""
    spec = SPECS[name]
    model, v = DeconvNet(spec), contrast * random_images(spec).float()
    stats = solve(Problem(model, v, every_layer(spec), InferenceSpec(lam=lam, steps=5))).stats
    assert (stats.cost[-1] <= stats.cost[0]).all()
    if lam * contrast >= 100:
        assert (stats.cost[-1] < stats.cost[0]).all()


@pytest.mark.parametrize(
    "name", ["1 layer, colour", "2 layers, 3×3 regions", "2 layers, overlapping"]
)
def test_the_safe_step_never_raises_the_cost(name: str) -> None:
    """With β ≤ 1 / (λ ‖R‖²), fixed pooling and α = 1, ISTA descends at every step."""
    spec = SPECS[name]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    settings = InferenceSpec(steps=40, step=Fixed())
    cost = solve(Problem(model, v, Phase(layer=spec.depth), settings)).stats.cost
    assert (cost.diff(dim=0) <= 1e-12).all()
    assert (cost[-1] < 0.9 * cost[0]).all()


def test_momentum_is_faster() -> None:
    spec = SPECS["1 layer, colour"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    plain, fast = (
        solve(
            Problem(model, v, Phase(layer=1), InferenceSpec(steps=60, step=Fixed(momentum=m)))
        ).stats.cost
        for m in (False, True)
    )
    long = InferenceSpec(steps=300, step=Fixed(momentum=True))
    truth = solve(Problem(model, v, Phase(layer=1), long)).stats.cost[-1]
    assert ((fast[-1] - truth) < 0.2 * (plain[-1] - truth)).all()


def test_lasso_of_one_layer_is_scikit_learns() -> None:
    """Without pooling, α = 1: the minimiser is the non-negative lasso's on the dense
    matrix of R."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    spec = ModelSpec(layers=(LayerSpec(maps=2, filter_size=3, pool_size=1),))
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 1, 5, 4)
    lam = 8.0
    p = solve(
        Problem(
            model, v, Phase(layer=1), InferenceSpec(lam=lam, steps=1500, step=Fixed(momentum=True))
        )
    ).latents.p
    sized = model.at(5, 4)
    weights = sized.weights(
        solve(Problem(model, v, Phase(layer=1), InferenceSpec(steps=0))).latents.pooling_params
    )
    basis = torch.eye(p.numel(), dtype=torch.float64).view(-1, *p.shape[1:])
    R = torch.stack([sized.reconstruct(unit[None], weights).flatten() for unit in basis], 1)
    lasso = linear_model.Lasso(
        alpha=1 / (lam * v.numel()), positive=True, fit_intercept=False, tol=1e-12, max_iter=100_000
    ).fit(R.numpy(), v.flatten().numpy())
    torch.testing.assert_close(p.flatten(), torch.from_numpy(lasso.coef_), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SPECS)
def test_an_images_code_does_not_depend_on_its_neighbours(name: str) -> None:
    spec = SPECS[name]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 5)
    together = infer(model, v, InferenceSpec(steps=3))
    split = infer(model, v, InferenceSpec(steps=3), batch_size=2)
    alone = infer(model, v[3:4], InferenceSpec(steps=3))
    for whole, parts, one in zip(
        together.latents.tensors(), split.latents.tensors(), alone.latents.tensors(), strict=True
    ):
        torch.testing.assert_close(parts, whole, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(one, whole[3:4], rtol=1e-8, atol=1e-10)


SMALL = [(1, 3), (3, 1), (1, 1), (2, 5)]


# every model has two of the sizes, and every size half of the models
@pytest.mark.parametrize(
    ("name", "height", "width"),
    [(name, *SMALL[(n + k) % 4]) for n, name in enumerate(SPECS) for k in range(2)],
)
def test_images_smaller_than_a_filter(name: str, height: int, width: int) -> None:
    spec = SPECS[name]
    model = DeconvNet(spec, dtype=torch.float64)
    solution = infer(model, random_images(spec, 2, height, width), InferenceSpec(lam=50.0, steps=5))
    assert (solution.stats.cost[-1] < solution.stats.cost[0]).all()


def test_same_seed_same_bits() -> None:
    v = random_images(SPECS["2 layers"]).float()
    one, two = (
        infer(DeconvNet(SPECS["2 layers"], seed=2), v, InferenceSpec(steps=30)) for _ in range(2)
    )
    for a, b in zip(one.latents.tensors(), two.latents.tensors(), strict=True):
        assert torch.equal(a, b)


def test_float64_end_to_end() -> None:
    spec = SPECS["2 layers"]
    solution = infer(
        DeconvNet(spec, dtype=torch.float64), random_images(spec), InferenceSpec(steps=3)
    )
    for tensor in (*solution.latents.tensors(), solution.stats.cost, solution.stats.step):
        assert tensor.dtype == torch.float64


def test_features_are_kept_and_continued() -> None:
    """20 steps are the same as 12 and then 8 more from what they left."""
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    whole = solve(Problem(model, v, ONE_PHASE[0], InferenceSpec(steps=20)))
    first = solve(Problem(model, v, ONE_PHASE[0], InferenceSpec(steps=12)))
    rest = solve(Problem(model, v, ONE_PHASE[0], InferenceSpec(steps=8), first.latents))
    for a, b in zip(whole.latents.tensors(), rest.latents.tensors(), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(whole.stats.cost[12:], rest.stats.cost)


def test_statistics_are_measured_at_every_step() -> None:
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    solution = infer(model, v, InferenceSpec(steps=7, lam=2.0))
    assert solution.stats.cost.shape == (8, 3)
    assert solution.stats.step.shape == (7, 3)
    # p = 0: λ/2 ‖v‖², λ = 2
    torch.testing.assert_close(solution.stats.cost[0], v.square().sum((1, 2, 3)))
    end = Problem(model, v, every_layer(spec), InferenceSpec(lam=2.0)).objective(solution.latents)
    torch.testing.assert_close(solution.stats.reconstruction[-1], end.reconstruction)
    torch.testing.assert_close(solution.stats.penalty[-1], end.penalty)
    assert torch.equal(solution.stats.nonzeros[-1], end.nonzeros)


def test_only_the_pooling_that_a_phase_names_moves() -> None:
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    begin = infer(model, v, InferenceSpec(steps=0)).latents

    def moved(plan: tuple[Phase, ...]) -> list[bool]:
        end = infer(
            model, v, InferenceSpec(steps=5), plan, latents=Latents(None, begin.pooling_params)
        ).latents
        return [
            not torch.equal(a.mu, b.mu)
            for a, b in zip(begin.pooling_params, end.pooling_params, strict=True)
        ]

    assert moved(ONE_PHASE) == [True, True]
    assert moved(ONE_PHASE_WITHOUT_U1) == [False, True]
    assert moved((Phase(layer=2),)) == [False, False]


def test_two_phases_hand_the_first_layers_pooling_on() -> None:
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    settings = InferenceSpec(steps=5)
    first = infer(model, v, settings, TWO_PHASES[:1])
    assert len(first.latents.pooling_params) == 1
    both = infer(model, v, settings, TWO_PHASES)
    assert torch.equal(both.latents.pooling_params[0].mu, first.latents.pooling_params[0].mu)
    assert both.features.shape[1] == spec.layers[1].maps
    assert not torch.equal(both.features, infer(model, v, settings, ONE_PHASE_WITHOUT_U1).features)


def test_switches_follow_the_filters_and_gaussians_live_on() -> None:
    max_spec = SPECS["2 layers, max"]
    v = random_images(max_spec)
    one, two = (DeconvNet(max_spec, seed=s, dtype=torch.float64) for s in (0, 1))
    first = infer(one, v, InferenceSpec(steps=2)).latents
    again = infer(two, v, InferenceSpec(steps=2), latents=first).latents
    fresh = infer(two, v, InferenceSpec(steps=2)).latents
    assert torch.equal(again.pooling_params[0].mu, fresh.pooling_params[0].mu)
    gaussian = SPECS["2 layers"]
    one, two = (DeconvNet(gaussian, seed=s, dtype=torch.float64) for s in (0, 1))
    first = infer(one, v, InferenceSpec(steps=2)).latents
    again = infer(two, v, InferenceSpec(steps=0), latents=first).latents
    assert torch.equal(again.pooling_params[0].mu, first.pooling_params[0].mu)


def test_gradients_flow_through_the_reference() -> None:
    """Researchers may differentiate through inference, to the filters."""
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    for f in model.filters:
        f.requires_grad_()
    solution = solve(Problem(model, v, Phase(layer=2), InferenceSpec(steps=3)))
    gradients = torch.autograd.grad(solution.features.sum(), model.filters)
    assert all(g.isfinite().all() and math.isfinite(g.norm()) and g.norm() > 0 for g in gradients)


# Step size ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=SPECS)
def problem(request: pytest.FixtureRequest) -> tuple:
    spec = SPECS[request.param]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 3)
    latents = random_latents(model, v)
    model = model.at(*v.shape[2:])
    weights = model.weights(latents.pooling_params)
    g = model.propagate(model.reconstruct(latents.p, weights) - v, weights)
    return model, v, latents.p, weights, g


def asked(model: SizedModel, v: torch.Tensor, **settings: object) -> Problem:
    spec = InferenceSpec(**{"lam": 2.0, **settings})
    return Problem(unsized(model), v, Phase(layer=model.spec.depth), spec)


def unsized(model: SizedModel) -> DeconvNet:
    """The model that the fixture made."""
    return DeconvNet(model.spec, dtype=torch.float64)


@pytest.mark.parametrize("lam", [0.5, 5.0])
def test_line_search_is_the_minimum_along_the_gradient(problem: tuple, lam: float) -> None:
    """λ/2 ‖R(p - λβg) - v‖² is least at β, found here by a parabola through three points."""
    model, v, p, weights, g = problem
    beta = line_search(asked(model, v, lam=lam), g, weights)
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    costs = torch.stack(
        [
            (model.reconstruct(p - s * lam * beta * g, weights) - v).square().sum((1, 2, 3))
            for s in t
        ]
    )
    curvature = 2 * (costs[0] - 2 * costs[1] + costs[2])
    slope = -3 * costs[0] + 4 * costs[1] - costs[2]
    # the minimum is at s = 1
    torch.testing.assert_close(-slope / (2 * curvature), torch.ones_like(slope))


def test_batch_rule_looks_at_a_tenth(problem: tuple) -> None:
    model, v, _, weights, g = problem
    beta = line_search(asked(model, v, step=LineSearch(per="batch")), g, weights)
    assert beta.shape == (3, 1, 1, 1)
    first = line_search(asked(model, v[:1]), g[:1], [w[:1] for w in weights])
    torch.testing.assert_close(beta, first.expand(3, 1, 1, 1))
    assert [batch_sample(n) for n in (1, 7, 10, 100, 6001)] == [1, 1, 1, 10, 600]


def test_no_gradient_no_step(problem: tuple) -> None:
    model, v, _, weights, g = problem
    for per in ("image", "batch"):
        asked_for = asked(model, v, step=LineSearch(per=per))
        assert (line_search(asked_for, torch.zeros_like(g), weights) == 0).all()


def test_the_fixed_step_is_safe(problem: tuple) -> None:
    """The bound is at least the largest eigenvalue of RᵀR, found by power iteration."""
    model, _, p, weights, _ = problem
    x = torch.randn(p.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(40):
        x = model.propagate(model.reconstruct(x, weights), weights)
        norm = x.square().sum((1, 2, 3), keepdim=True).sqrt()
        x = x / norm
    assert float(norm.max()) <= lipschitz(unsized(model), model.spec.depth) * (1 + 1e-9)


def test_the_bound_holds_for_long_filters_and_overlapping_regions() -> None:
    """Of constant features with a flat filter and flat pooling: its length times the regions that
    share an element."""
    spec = ModelSpec(
        layers=(LayerSpec(maps=1, filter_size=(1, 80), pool_size=(1, 3), pool_stride=(1, 1)),)
    )
    flat = torch.full((1, 1, 1, 80), 80**-0.5, dtype=torch.float64)
    model = DeconvNet.from_parts(spec, [flat], [torch.ones(1, 1, dtype=torch.bool)])
    sized = model.at(1, 500)
    p = torch.ones(1, *sized.regions[0].grid, dtype=torch.float64)
    zero = torch.zeros(1, 2, *sized.regions[0].grid, dtype=torch.float64)
    gain = sized.reconstruct(p, sized.weights([PoolingParams(zero, zero)]))[0, 0, 0, 250] ** 2
    assert float(gain) == pytest.approx(3 * 80)
    assert lipschitz(model, 1) == pytest.approx(3 * 80)
