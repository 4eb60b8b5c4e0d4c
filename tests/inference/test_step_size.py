import pytest
import torch

from examples import SPECS, random_images, random_latents
from whatwhere.data import load as load_digits
from whatwhere.errors import SpecError
from whatwhere.inference import infer
from whatwhere.inference.step_size import (
    SECANT_RANGE,
    batch_sample,
    best_step,
    line_search,
    lipschitz,
    secant_step,
)
from whatwhere.model import DeconvNet, load
from whatwhere.models import path
from whatwhere.spec import InferenceSpec

RULES = ("image", "secant")


@pytest.fixture(params=SPECS)
def problem(request: pytest.FixtureRequest) -> tuple:
    spec = SPECS[request.param]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 3)
    latents = random_latents(model, v)
    model = model.at(*v.shape[2:])
    weights = model.weights(latents.pooling_params)
    g = model.propagate(model.reconstruct(latents.p, weights) - v, weights)
    return model, v, latents.p, weights, g


@pytest.mark.parametrize("lam", [0.5, 5.0])
def test_line_search_is_the_minimum_along_the_gradient(problem: tuple, lam: float) -> None:
    """λ/2 ‖R(p - λβg) - v‖² is least at β, found here by a parabola through three points."""
    model, v, p, weights, g = problem
    beta = line_search("image", model, g, weights, lam)
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    costs = torch.stack([(model.reconstruct(p - s * lam * beta * g, weights) - v).square().sum((1, 2, 3)) for s in t])
    curvature = 2 * (costs[0] - 2 * costs[1] + costs[2])
    slope = -3 * costs[0] + 4 * costs[1] - costs[2]
    torch.testing.assert_close(-slope / (2 * curvature), torch.ones_like(slope))  # the minimum is at s = 1


def test_batch_rule_looks_at_a_tenth(problem: tuple) -> None:
    model, _, _, weights, g = problem
    beta = line_search("batch", model, g, weights, 2.0)
    assert beta.shape == (3, 1, 1, 1)
    first = best_step(model, g[:1], [w[:1] for w in weights], 2.0, per_image=True)
    torch.testing.assert_close(beta, first.expand(3, 1, 1, 1))
    assert [batch_sample(n) for n in (1, 7, 10, 100, 6001)] == [1, 1, 1, 10, 600]


def test_no_gradient_no_step(problem: tuple) -> None:
    model, _, _, weights, g = problem
    for rule in ("image", "batch"):
        assert (line_search(rule, model, torch.zeros_like(g), weights, 2.0) == 0).all()


def test_the_fixed_step_is_safe(problem: tuple) -> None:
    """The bound is at least the largest eigenvalue of RᵀR, found by power iteration."""
    model, _, p, weights, _ = problem
    x = torch.randn(p.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for _ in range(100):
        x = model.propagate(model.reconstruct(x, weights), weights)
        norm = x.square().sum((1, 2, 3), keepdim=True).sqrt()
        x = x / norm
    assert float(norm.max()) <= lipschitz(model.model, model.spec.depth) * (1 + 1e-9)


def test_a_secant_is_the_line_search_along_the_last_change(problem: tuple) -> None:
    """The smooth term is least, along d = p - p_old, where -λβ d would lead if d were its gradient."""
    model, v, p, weights, g = problem
    old, first = p + 0.1 * g, torch.ones(3, 1, 1, 1, dtype=torch.float64)
    e, e_old = (model.reconstruct(x, weights) - v for x in (p, old))
    beta = secant_step(p - old, e - e_old, 2.0, first, 1e6 * first)  # so far off that the bound below holds it
    torch.testing.assert_close(beta, 1e6 / SECANT_RANGE * first)
    exact = best_step(model, old - p, weights, 2.0, per_image=True)
    torch.testing.assert_close(secant_step(p - old, e - e_old, 2.0, first, exact), exact)
    torch.testing.assert_close(secant_step(p - old, e - e_old, 2.0, first, exact / 100), exact * SECANT_RANGE / 100)
    assert torch.equal(secant_step(0 * p, e - e_old, 2.0, 3 * first, first), 3 * first)  # nothing changed: the last one


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_the_secant_rule_ends_lower_than_the_line_search(alpha: float) -> None:
    pytest.importorskip("numba")
    model, digits = load(path("mnist")), load_digits("digits", split="test")[:6]
    specs = {rule: InferenceSpec(step_size=rule, alpha=alpha, steps=30) for rule in RULES}
    cost = {rule: infer(model, digits, spec).stats.cost[-1] for rule, spec in specs.items()}
    assert cost["secant"].mean() < 0.95 * cost["image"].mean()


def test_momentum_and_the_secant_exclude_each_other() -> None:
    with pytest.raises(SpecError, match=r"momentum with step_size = 'secant' was given; expected one of them"):
        InferenceSpec(momentum=True, step_size="secant")
