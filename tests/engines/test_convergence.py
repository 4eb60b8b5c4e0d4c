"""Converged codes are compared with scikit-learn's Lasso on the dense matrix of R, where pooling
makes R linear."""

import warnings

import pytest
import torch
from sklearn.linear_model import Lasso
from torch import Tensor

from examples import SPECS, random_images
from whatwhere.engines import REFERENCE, convergence, get_engine
from whatwhere.engines.convergence import BLOCK, block_lengths, change_per_step, solve
from whatwhere.errors import ConvergenceWarning
from whatwhere.inference import infer
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Stats
from whatwhere.spec import InferenceSpec, LayerSpec, LineSearch, ModelSpec, Phase
from whatwhere.spec.recipe import joint

ENGINES = ["reference", "cpu"]
CODING = InferenceSpec.coding(steps=5000, tolerance=1e-9)


def dense(model: DeconvNet, images: Tensor, latents: Latents) -> Tensor:
    """R of one image as a matrix [C H W, B h w], one column for each feature."""
    sized = model.at(*images.shape[2:])
    (weights,) = sized.weights(latents.pooling_params)
    grid = sized.regions[0].grid
    unit = torch.eye(grid[0] * grid[1] * grid[2], dtype=torch.float64)
    return torch.stack([sized.reconstruct(e.view(1, *grid), [weights]).flatten() for e in unit], 1)


def lasso_cost(R: Tensor, v: Tensor, lam: float, nonnegative: bool) -> float:
    """The least λ/2 ‖R p - v‖² + Σ|p|, by coordinate descent."""
    solver = Lasso(
        1 / (lam * len(v)), fit_intercept=False, positive=nonnegative, tol=1e-14, max_iter=200_000
    )
    p = torch.from_numpy(solver.fit(R.numpy(), v.numpy()).coef_)
    return float(lam / 2 * (R @ p - v).square().sum() + p.abs().sum())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("kind", "size", "nonnegative"), [("sum", 1, True), ("max", 2, True), ("max", 2, False)]
)
def test_a_converged_code_has_the_cost_of_the_lasso(
    engine: str, kind: str, size: int, nonnegative: bool
) -> None:
    layer = LayerSpec(maps=4, filter_size=3, pooling=kind, pool_size=size)
    model = DeconvNet(ModelSpec(layers=(layer,), nonnegative=nonnegative), seed=1).to(torch.float64)
    images = random_images(model.spec, n=2)
    solution = infer(model, images, CODING, engine=engine)
    assert len(solution.stats.step) < CODING.steps
    for i in range(2):
        R = dense(model, images[i : i + 1], solution.latents[i : i + 1])
        least = lasso_cost(R, images[i].flatten(), CODING.lam, nonnegative)
        assert float(solution.stats.cost[-1, i]) == pytest.approx(least, rel=1e-5)
        few = infer(model, images[i : i + 1], InferenceSpec(steps=8), engine=engine)
        assert float(few.stats.cost[-1, 0]) > least * (1 + 1e-3), "the comparison would be idle"


@pytest.mark.parametrize("engine", ENGINES)
def test_a_code_does_not_depend_on_the_batch(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convergence, "BLOCK", 10)
    model = DeconvNet(SPECS["1 layer"], seed=0).to(torch.float64)
    images = random_images(model.spec, n=4) * torch.tensor(
        [1.0, 0.01, 0.3, 0.6], dtype=torch.float64
    ).view(4, 1, 1, 1)
    spec = InferenceSpec.coding(steps=80, tolerance=2e-3)
    together = infer(model, images, spec, engine=engine)
    steps = (together.stats.step != 0).sum(0)
    assert steps.unique().numel() > 1, "no image was finished before another"
    for i in range(4):
        alone = infer(model, images[i : i + 1], spec, engine=engine)
        assert len(alone.stats.step) == int(steps[i]) or int(steps[i]) == 0
        torch.testing.assert_close(alone.features[0], together.features[i], rtol=1e-6, atol=1e-9)


def test_a_finished_image_leaves_the_batch_and_its_trace_shows_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = DeconvNet(SPECS["1 layer"], seed=0).to(torch.float64)
    images = random_images(model.spec, n=3)
    images[1] = 0  # finished after the first block
    sizes = []

    class Spy:
        name, converges = "spy", False

        def solve(self, problem):
            sizes.append(len(problem.images))
            return REFERENCE.solve(problem)

    monkeypatch.setattr(convergence, "BLOCK", 10)
    spec = InferenceSpec.coding(steps=25, tolerance=1e-12)
    problem = Problem(model, images, joint(1)[0], spec)
    solution = solve(Spy(), problem)
    assert sizes == [3, 2, 2]
    stats = solution.stats
    assert stats.step.shape == (25, 3)
    assert stats.cost.shape == (26, 3)
    assert (stats.step[10:, 1] == 0).all()
    assert (stats.step[:, [0, 2]] > 0).all()
    assert (stats.cost[10:, 1] == stats.cost[10, 1]).all()
    end = problem.objective(solution.latents)
    torch.testing.assert_close(stats.cost[-1], end.cost)
    assert (stats.nonzeros[-1] == end.nonzeros).all()


def test_without_a_tolerance_the_engine_takes_all_steps_at_once() -> None:
    model = DeconvNet(SPECS["2 layers"], seed=0).to(torch.float64)
    images, spec = (
        random_images(model.spec),
        InferenceSpec(step=LineSearch(momentum=True), steps=130),
    )
    once = get_engine("cpu").solve(Problem(model, images, joint(2)[0], spec))
    assert infer(model, images, spec, engine="cpu").features.equal(once.features)


def test_the_pooling_step_is_halved_so_that_the_pooling_variables_converge() -> None:
    """With a constant step the same images still move; the frozen pooling variables of a block
    leave a higher cost."""
    model = DeconvNet(SPECS["2 layers"], seed=0).to(torch.float64)
    images = random_images(model.spec)
    spec = InferenceSpec.coding(steps=3000, tolerance=1e-7)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        converged = infer(model, images, spec, engine="cpu").stats.cost[-1]
    frozen = infer(model, images, spec, [Phase(layer=2)], engine="cpu").stats.cost[-1]
    assert (converged < 0.99 * frozen).all()


def test_steps_that_do_not_suffice_give_one_warning_that_says_how_many_images() -> None:
    model = DeconvNet(SPECS["1 layer"], seed=0).to(torch.float64)
    images = random_images(model.spec, n=5)
    images[3] = 0
    with pytest.warns(ConvergenceWarning) as w:
        infer(
            model,
            images,
            InferenceSpec.coding(steps=30, tolerance=1e-9),
            engine="reference",
            batch_size=2,
        )
    said = [warning.message for warning in w]
    fields = [(w.measure, w.bound, w.unfinished, w.images, w.steps) for w in said]
    assert fields == [("tolerance", 1e-9, 4, 5, 30)]


def test_the_change_is_that_of_the_last_block_per_step() -> None:
    T, B = BLOCK + 50, 50
    cost = torch.full((T + 1, 4), 7.0, dtype=torch.float64)
    cost[T - B], cost[T] = torch.tensor([6.0, 5.0, 0.0, 4.0]), torch.tensor([5.0, 6.0, 0.0, 4.0])
    change = change_per_step(Stats(cost / 4, cost * 3 / 4, cost.long(), torch.ones(T, 4)))
    assert change.tolist() == pytest.approx([1 / 5 / 50, 1 / 6 / 50, 0, 0])


def test_blocks_hold_all_steps() -> None:
    assert block_lengths(0) == [0]
    assert block_lengths(2 * BLOCK) == [BLOCK, BLOCK]
    assert block_lengths(BLOCK + 1) == [BLOCK, 1]


def test_statistics_of_batches_with_different_numbers_of_steps_are_joined() -> None:
    def stats(steps: int, images: int) -> Stats:
        trace = torch.arange(steps + 1.0)[:, None].expand(steps + 1, images)
        return Stats(trace, 2 * trace, trace.long(), torch.ones(steps, images))

    joined = Stats.cat([stats(2, 1), stats(3, 2)])
    assert joined.reconstruction.tolist() == [[0, 0, 0], [1, 1, 1], [2, 2, 2], [2, 3, 3]]
    assert joined.step.tolist() == [[1, 1, 1], [1, 1, 1], [0, 1, 1]]
