from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
from examples import SPECS, filter_problem, random_images, random_latents
from operators import draw
from whatwhere.engines import ENGINES, REFERENCE
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.learning import TrainingStopped
from whatwhere.learning.filter_problem import along_sphere, project_filters, solve_filters
from whatwhere.model import DeconvNet, Problem
from whatwhere.ops.conjugate_gradient import conjugate_gradient
from whatwhere.spec import (
    EveryEpoch,
    InferenceSpec,
    LayerSpec,
    LearningSpec,
    LineSearch,
    ModelSpec,
    Phase,
    Recipe,
    Sum,
)

NAMES = [
    "1 layer, colour",
    "2 layers",
    "2 layers, max",
    "2 layers, signed",
    "2 layers, rectangular",
    "2 layers, 3-D pooling",
    "3 layers, colour",
]


def problem(name: str, n: int = 6) -> tuple[DeconvNet, torch.Tensor, Latents]:
    spec = SPECS[name]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, n)
    return model, v, random_latents(model, v)


def cost(model: DeconvNet, v: torch.Tensor, latents: Latents) -> float:
    return float((model.at(*v.shape[2:]).decode(latents) - v).square().sum())


@pytest.mark.parametrize("name", NAMES)
def test_gradient_is_autograds_at_every_layer(name: str) -> None:
    model, v, latents = problem(name)
    for f in model.filters:
        f.requires_grad_()
    loss = 0.5 * (model.at(*v.shape[2:]).decode(latents) - v).square().sum()
    for k, expected in enumerate(torch.autograd.grad(loss, model.filters), start=1):
        A = FilterMap(filter_problem(model, v, latents), k)
        torch.testing.assert_close(A.adjoint(A(model.filters[k - 1]) - v), expected)


@pytest.mark.parametrize(
    "name", ["1 layer, colour", "2 layers", "2 layers, max", "3 layers, colour"]
)
def test_run_long_it_is_the_dense_least_squares_solution(name: str) -> None:
    """The same minimum as a dense solve over the connected weights, from several batches."""
    model, v, latents = problem(name, 8)
    k = model.spec.depth
    f = model.filters[k - 1]
    A = FilterMap(filter_problem(model, v, latents), k)
    free = model.connectivity[k - 1][:, :, None, None].expand_as(f).flatten().nonzero().flatten()
    columns = []
    for i in free:
        unit = torch.zeros(f.numel(), dtype=torch.float64)
        unit[i] = 1
        columns.append(A(unit.view_as(f)).flatten())
    dense = torch.stack(columns, 1)
    truth = torch.linalg.lstsq(dense, v.flatten()[:, None], driver="gelsd").solution.flatten()
    filters = solve_filters(
        model, k, lambda: ((v[i : i + 5], latents[i : i + 5], None) for i in (0, 5)), steps=300
    )
    best = (dense @ truth - v.flatten()).square().sum()
    reached = (A(filters) - v).square().sum()
    assert float(reached - best) <= 1e-8 * float(best)
    if torch.linalg.matrix_rank(dense) == len(free):
        torch.testing.assert_close(filters.flatten()[free], truth, rtol=1e-8, atol=1e-8)
    assert (filters * ~model.connectivity[k - 1][:, :, None, None] == 0).all()


def test_the_dense_comparison_sees_full_rank_somewhere() -> None:
    """The comparison of the filters themselves above is not idle: this problem has one solution."""
    model, v, latents = problem("1 layer, colour", 12)
    A = FilterMap(filter_problem(model, v, latents), 1)
    f = model.filters[0]
    dense = torch.stack(
        [A(e.view_as(f)).flatten() for e in torch.eye(f.numel(), dtype=torch.float64)], 1
    )
    assert torch.linalg.matrix_rank(dense) == f.numel()


@pytest.mark.parametrize("name", NAMES)
def test_two_steps_lower_the_cost(name: str) -> None:
    model, v, latents = problem(name)
    for k in range(1, model.spec.depth + 1):
        f = solve_filters(model, k, lambda: [(v, latents, None)], steps=2)
        assert cost(model.with_filters(k, f), v, latents) < 0.999 * cost(model, v, latents)


@pytest.mark.parametrize("name", NAMES)
def test_updated_filters_are_projected_and_the_rest_untouched(name: str) -> None:
    model, v, latents = problem(name)
    k = model.spec.depth
    new = project_filters(model, k, solve_filters(model, k, lambda: [(v, latents, None)], steps=2))
    torch.testing.assert_close(new.filters[k - 1], model.project(k, new.filters[k - 1]))
    assert not torch.equal(new.filters[k - 1], model.filters[k - 1])
    for j in range(k - 1):
        assert torch.equal(new.filters[j], model.filters[j])


def test_a_filter_that_would_vanish_keeps_its_values() -> None:
    """One map, one active element: its best filter is the image's patch, negated here, which
    projects to nothing."""
    spec = ModelSpec(layers=(LayerSpec(maps=1, filter_size=3, pool_size=1),))
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 1)
    latents = random_latents(model, v)
    latents.p.zero_()[0, 0, 5, 5] = 1
    new = [
        solve_filters(model, 1, lambda sign=sign: [(sign * v, latents, None)], steps=2)
        for sign in (-1, 1)
    ]
    assert torch.equal(project_filters(model, 1, new[0]).filters[0], model.filters[0])
    assert (project_filters(model, 1, new[1]).filters[0] != model.filters[0]).any()


@pytest.mark.parametrize("name", ["1 layer, colour", "2 layers"])
def test_along_the_sphere_it_is_the_best_step_that_keeps_the_lengths(name: str) -> None:
    """Against a dense least-squares solution over the directions that are orthogonal to every
    filter."""
    model, v, latents = problem(name, 8)
    k = model.spec.depth
    f = model.filters[k - 1]
    A = FilterMap(filter_problem(model, v, latents), k)
    within = (0, 2, 3) if model.spec.normalise == "filter" else (2, 3)
    free = model.connectivity[k - 1][:, :, None, None].expand_as(f)
    units = torch.eye(f.numel(), dtype=torch.float64).view(-1, *f.shape) * free
    own = (units * f).sum([d + 1 for d in within], keepdim=True)
    tangents = units - own * f / f.square().sum(within, keepdim=True).clamp(min=1e-12)
    dense = torch.stack([A(tangent).flatten() for tangent in tangents], 1)
    rest = (v - A(f)).flatten()
    best = torch.linalg.lstsq(dense, rest[:, None], driver="gelsd").solution
    least = (dense @ best - rest[:, None]).square().sum()
    found = solve_filters(
        model, k, lambda: [(v, latents, None)], 300, along_sphere(model, k, lambda total: total)
    )
    step = found - f
    torch.testing.assert_close((step * f).sum(within), torch.zeros_like((step * f).sum(within)))
    reached = (A(found) - v).square().sum()
    assert abs(float(reached - least)) <= 1e-8 * float(least)


def test_a_dictionary_learned_along_the_sphere_has_a_lower_cost() -> None:
    """With signed codes of ℓ1, where a step by the paper mostly changes the lengths of the
    filters."""
    layer = LayerSpec(maps=4, filter_size=5, pool_size=1, pooling=Sum())
    inference = InferenceSpec(lam=5.0, steps=5, step=LineSearch(momentum=True), pooling_step=0.0)
    spec = ModelSpec(layers=(layer,), nonnegative=False)
    generator = torch.Generator().manual_seed(3)
    v = torch.randn(1, 1, 16, 16, generator=generator).cumsum(2).cumsum(3)
    v = (v - v.mean()) / v.std()
    costs = {}
    for name, tangent, memory in (
        ("paper", False, 0.0),
        ("sphere", True, 0.0),
        ("both", True, 0.5),
    ):
        update = EveryEpoch(reset_at=(), direction_memory=memory)
        learning = LearningSpec(inference=inference, epochs=10, update=update, tangent=tangent)
        recipe = Recipe(model=spec, learning=(learning,), inference=inference, batch_size=1)
        model = tiny.train(recipe, v).model
        sparse = InferenceSpec.coding(lam=5.0, gap=1e-2)
        costs[name] = float(infer(model, v, sparse, engine="reference").stats.cost[-1])
    assert costs["sphere"] < 0.95 * costs["paper"]
    assert costs["both"] < costs["sphere"]


def test_the_memory_of_a_change_survives_an_interruption(tmp_path) -> None:
    recipe = tiny.recipe(epochs=3)
    update = EveryEpoch(reset_at=(), direction_memory=0.5)
    layers = tuple(replace(layer, update=update, tangent=True) for layer in recipe.learning)
    recipe = replace(recipe, learning=layers)
    whole = tiny.train(recipe, tiny.images()).model
    plain = tuple(replace(layer, update=EveryEpoch(reset_at=())) for layer in layers)
    assert whole != tiny.train(replace(recipe, learning=plain), tiny.images()).model
    resume = False
    while True:
        try:
            options = {"resume": resume, "stop": tiny.StopAfter(7), "checkpoint_every": 1}
            parted = tiny.train(recipe, tiny.images(), tmp_path / "run", **options).model
            break
        except TrainingStopped:
            resume = True
    assert resume
    assert parted == whole


def test_batches_add_up() -> None:
    model, v, latents = problem("2 layers")
    at_once = solve_filters(model, 2, lambda: [(v, latents, None)], steps=2)
    split = solve_filters(
        model, 2, lambda: [(v[:2], latents[:2], None), (v[2:], latents[2:], None)], steps=2
    )
    torch.testing.assert_close(split, at_once)


def test_solves_a_dense_system() -> None:
    half = draw(12, 12)
    A, b = half @ half.T + torch.eye(12), draw(12, seed=1)
    x0 = draw(12, seed=2)
    x = conjugate_gradient(lambda d: A @ d, b - A @ x0, x0, steps=60)
    torch.testing.assert_close(x, torch.linalg.solve(A, b), rtol=1e-8, atol=1e-8)


def test_one_step_is_steepest_descent() -> None:
    half = draw(6, 6)
    A, b, x0 = half @ half.T, draw(6, seed=1), draw(6, seed=2)
    r = b - A @ x0
    torch.testing.assert_close(
        conjugate_gradient(lambda d: A @ d, r, x0, steps=1), x0 + (r @ r) / (r @ A @ r) * r
    )


def test_nothing_to_gain_changes_nothing() -> None:
    x0 = draw(4)
    assert torch.equal(
        conjugate_gradient(lambda d: d, torch.zeros(4, dtype=torch.float64), x0, 5), x0
    )


# The outer loops: resets, layers that are passed over, layers below that were trained elsewhere ---


def test_features_are_zero_after_a_reset_epoch(monkeypatch):
    seen = []
    watched = tiny.WatchedEngine(lambda problem, solution: seen.append(problem))
    monkeypatch.setitem(ENGINES, "reference", watched)
    tiny.train(tiny.recipe(epochs=3), tiny.images(2))
    first, second, third = (problem.latents for problem in seen if problem.phase.layer == 1)
    assert first == Latents()
    assert not second.p.any(), "reset_at = (1,): after epoch 1 the features are 0"
    assert third.p.any()
    assert second.pooling_params[0].gamma.any(), "the pooling variables stay"


def test_a_layer_without_epochs_is_passed_over():
    recipe = tiny.recipe()
    none = LearningSpec(inference=recipe.learning[0].inference, epochs=0)
    run = tiny.train(replace(recipe, learning=(none, recipe.learning[1])), tiny.images())
    assert [report.layer for report in run.history] == [2, 2]


def upper_layer_alone():
    """Layer 1 of a first training, and the recipe that trains layer 2 on it."""
    recipe = tiny.recipe()
    start = tiny.train(recipe, tiny.images()).model
    return start, replace(
        recipe, learning=(replace(recipe.learning[0], epochs=0), recipe.learning[1])
    )


def test_the_first_epoch_infers_the_layers_below_as_their_own_training_did(monkeypatch):
    start, recipe = upper_layer_alone()
    seen = []
    watched = tiny.WatchedEngine(lambda problem, solution: seen.append(problem))
    monkeypatch.setitem(ENGINES, "reference", watched)
    tiny.train(recipe, tiny.images(), start=start)
    one, two = Phase(layer=1, update_pooling=(1,)), Phase(layer=2, update_pooling=(1, 2))
    assert [problem.phase for problem in seen] == [one, two] * 3 + [two] * 3, (
        "three batches, two epochs"
    )
    v, latents = seen[1].images, seen[1].latents
    alone = REFERENCE.solve(Problem(start, v, one, recipe.learning[0].inference)).latents
    assert len(latents.pooling_params) == 1
    assert torch.equal(latents.pooling_params[0].mu, alone.pooling_params[0].mu)
    assert torch.equal(latents.pooling_params[0].gamma, alone.pooling_params[0].gamma)


def test_the_lower_filters_stay_as_they_were():
    start, recipe = upper_layer_alone()
    run = tiny.train(recipe, tiny.images(), start=start)
    assert torch.equal(run.model.filters[0], start.filters[0])
    assert not torch.equal(run.model.filters[1], start.filters[1])
    assert [report.layer for report in run.history] == [2, 2]
