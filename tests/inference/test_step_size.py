import pytest
import torch

from examples import SPECS, random_images, random_latents
from whatwhere.data import load as load_digits
from whatwhere.data.models import path
from whatwhere.errors import SpecError
from whatwhere.inference import infer
from whatwhere.inference.ista import solve
from whatwhere.inference.plan import joint
from whatwhere.inference.step_size import (
    SECANT_RANGE,
    batch_sample,
    best_step,
    kept_step,
    line_search,
    lipschitz,
    secant_step,
)
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, load
from whatwhere.spec import InferenceSpec, Phase, StepSpec

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


def test_the_line_search_is_made_in_every_nth_step() -> None:
    """Steps of ISTA with the dense matrix of R, one image at a time: β is searched for where t % 3 == 0."""
    spec = SPECS["2 layers"]
    model, v, settings = (
        DeconvNet(spec, dtype=torch.float64),
        random_images(spec, 2),
        InferenceSpec(search_every=3, steps=8),
    )
    solution = solve(model, v, Latents(), Phase(layer=2), settings)
    sized, theta = model.at(9, 8), solution.latents.pooling_params
    for n in range(2):
        weights = sized.weights([PoolingParams(t.mu[n : n + 1], t.gamma[n : n + 1]) for t in theta])
        basis = torch.eye(solution.features[n].numel(), dtype=torch.float64).view(-1, 1, *solution.features.shape[1:])
        R = torch.stack([sized.reconstruct(unit, weights).flatten() for unit in basis], 1)
        p, betas = torch.zeros(R.shape[1], dtype=torch.float64), []
        for t in range(8):
            g = R.T @ (R @ p - v[n].flatten())
            searched = g @ g / (5.0 * (R @ g) @ (R @ g))
            betas.append(searched if t % 3 == 0 else betas[0] if t == 1 else min(betas[-1], 2 * betas[-2]))
            p = (p - betas[-1] * (5.0 * g + 1)).clamp(min=0)
        torch.testing.assert_close(solution.stats.step[:, n], torch.stack(betas))
        torch.testing.assert_close(solution.features[n].flatten(), p)


def test_a_kept_step_grows_at_most_twofold() -> None:
    last, before = torch.tensor([3.0, 3.0, 3.0, 0.0]), torch.tensor([2.0, 1.0, 0.0, 1.0])
    assert kept_step(last, before).tolist() == [3.0, 2.0, 3.0, 0.0]  # without a step before, the last one


@pytest.mark.parametrize("every", [2, 3])
@pytest.mark.parametrize("name", SPECS)
def test_kept_steps_do_not_diverge(name: str, every: int) -> None:
    """Without the rule that keeps the better end; at this contrast steps that are kept as they are diverge."""
    spec = SPECS[name]
    model, v = DeconvNet(spec, dtype=torch.float64), 255 * random_images(spec, 4, 12, 12)
    settings = InferenceSpec(search_every=every, lam=2.0, steps=30)
    cost = solve(model, v, Latents(), joint(spec.depth)[0], settings).stats.cost
    assert (cost[-1] < cost[0]).all()


def test_an_image_searches_in_its_own_nth_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is finished, an image among others takes the steps that it takes alone."""
    monkeypatch.setattr("whatwhere.inference.convergence.BLOCK", 5)
    model = DeconvNet(SPECS["1 layer"], dtype=torch.float64)
    images = random_images(model.spec, 3) * torch.tensor([1.0, 0.01, 0.3], dtype=torch.float64).view(3, 1, 1, 1)
    spec = InferenceSpec(search_every=2, steps=40, tolerance=1e-3)
    together = infer(model, images, spec, engine="reference")
    assert (together.stats.step != 0).sum(0).unique().numel() > 1, "no image was finished before another"
    for i in range(3):
        alone = infer(model, images[i : i + 1], spec, engine="reference")
        taken = len(alone.stats.step)
        torch.testing.assert_close(together.stats.step[:taken, i], alone.stats.step[:, 0])
        assert (together.stats.step[taken:, i] == 0).all()


def test_search_every_is_not_for_a_schedule() -> None:
    with pytest.raises(
        SpecError, match=r"search_every = 2 with a schedule of 1 steps was given; expected search_every = 1"
    ):
        InferenceSpec.scheduled([StepSpec(size=0.1, threshold=0.1)], search_every=2)


def test_momentum_and_the_secant_exclude_each_other() -> None:
    with pytest.raises(SpecError, match=r"momentum with step_size = 'secant' was given; expected one of them"):
        InferenceSpec(momentum=True, step_size="secant")
