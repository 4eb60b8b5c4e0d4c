import pytest
import torch

from examples import SPECS, random_images, random_latents
from whatwhere.inference.step_size import batch_sample, line_search, lipschitz
from whatwhere.model import DeconvNet, Problem, SizedModel
from whatwhere.spec import InferenceSpec, LineSearch, Phase


@pytest.fixture(params=SPECS)
def problem(request: pytest.FixtureRequest) -> tuple:
    spec = SPECS[request.param]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 3)
    latents = random_latents(model, v)
    model = model.at(*v.shape[2:])
    weights = model.weights(latents.pooling_params)
    g = model.propagate(model.reconstruct(latents.p, weights) - v, weights)
    return model, v, latents.p, weights, g


def asked(model: SizedModel, v: torch.Tensor, **settings: object) -> Problem:
    return Problem(model.model, v, Phase(layer=model.spec.depth), InferenceSpec(**{"lam": 2.0, **settings}))


@pytest.mark.parametrize("lam", [0.5, 5.0])
def test_line_search_is_the_minimum_along_the_gradient(problem: tuple, lam: float) -> None:
    """λ/2 ‖R(p - λβg) - v‖² is least at β, found here by a parabola through three points."""
    model, v, p, weights, g = problem
    beta = line_search(asked(model, v, lam=lam), g, weights)
    t = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
    costs = torch.stack([(model.reconstruct(p - s * lam * beta * g, weights) - v).square().sum((1, 2, 3)) for s in t])
    curvature = 2 * (costs[0] - 2 * costs[1] + costs[2])
    slope = -3 * costs[0] + 4 * costs[1] - costs[2]
    torch.testing.assert_close(-slope / (2 * curvature), torch.ones_like(slope))  # the minimum is at s = 1


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
    for _ in range(100):
        x = model.propagate(model.reconstruct(x, weights), weights)
        norm = x.square().sum((1, 2, 3), keepdim=True).sqrt()
        x = x / norm
    assert float(norm.max()) <= lipschitz(model.model, model.spec.depth) * (1 + 1e-9)
