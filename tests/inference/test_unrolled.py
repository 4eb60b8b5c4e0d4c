"""Learned steps: their gradients are finite differences, engines agree on them, and learning
lowers the cost."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from examples import SPECS, random_images, random_mask
from raising import raises
from whatwhere.engines import get_engine, unsupported_reasons
from whatwhere.engines.reference import ista
from whatwhere.engines.reference.step_size import safe_step
from whatwhere.errors import EmptySet, InvalidSetting
from whatwhere.inference import infer
from whatwhere.inference.learned_steps import LearnedSteps
from whatwhere.inference.unrolled import UnrolledInference, distill
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.ops.convolution import convolve_up
from whatwhere.ops.pooling import fit, gaussian_weights
from whatwhere.spec import (
    DistillSpec,
    Fixed,
    Gaussian,
    InferenceSpec,
    LineSearch,
    Power,
    Recipe,
    Schedule,
    StepSpec,
)
from whatwhere.spec.recipe import joint
from whatwhere.spec.toml import override, parse_toml, to_toml

SCHEDULE = (
    StepSpec(size=0.02, threshold=0.01, extrapolation=0.2, pooling_step=(0.1, 0.2)),
    StepSpec(size=0.03, threshold=0.02, extrapolation=0.4, pooling_step=(0.3,)),
    StepSpec(size=0.01, threshold=0.03, extrapolation=0.7, pooling_step=(0.2, 0.1)),
)
SPEC = SPECS["2 layers"]


def scheduled(**settings: Any) -> InferenceSpec:
    """The schedule, with a start of the pooling variables and a contrast that are not the plain
    ones."""
    return InferenceSpec(
        step=Schedule(steps=SCHEDULE, mu_scale=(1.3, 0.8), gamma_scale=(0.4,), contrast=0.7),
        **settings,
    )


def problem(name: str = "2 layers", dtype: torch.dtype = torch.float64) -> tuple[DeconvNet, Tensor]:
    return DeconvNet(SPECS[name], dtype=torch.float64).to(dtype), random_images(
        SPECS[name], 2, 6, 5
    ).to(dtype)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("name", ["2 layers", "2 layers, max", "2 layers, rectangular"])
def test_gradients_are_finite_differences(name: str, alpha: float) -> None:
    """Of the features with respect to the sizes of the steps and to the filters of both layers, on
    both passes."""
    model, images = problem(name)
    # at a weight of 0 there is a kink
    positive = [(f + 0.05) * (f > 0).any((2, 3), keepdim=True) for f in model.filters]
    model = DeconvNet.from_parts(model.spec, positive, model.connectivity)
    unrolled = UnrolledInference(
        model, 3, scheduled(lam=2.0, penalty=Power(alpha=alpha)), untied=True
    )
    names = [name for name, _ in unrolled.named_parameters()]

    def cost(*inputs: Tensor) -> Tensor:
        changed = DeconvNet.from_parts(model.spec, inputs[len(names) :], model.connectivity)
        copy = UnrolledInference(changed, 3, unrolled.spec, untied=True)
        parameters = dict(zip(names, inputs, strict=False))
        return torch.func.functional_call(copy, parameters, (images,)).p.sum()

    inputs = (*unrolled.parameters(), *model.filters)
    inputs = tuple(tensor.detach().clone().requires_grad_() for tensor in inputs)
    assert cost(*inputs) > 0, "some features are not 0"
    assert torch.autograd.gradcheck(cost, inputs, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize(
    ("engine", "dtype", "tolerance"),
    [("reference", torch.float64, 1e-12), ("cpu", torch.float64, 1e-10)],
)
def test_a_schedule_of_safe_steps_is_the_fixed_rule(
    engine: str, dtype: torch.dtype, tolerance: float
) -> None:
    model, images = problem(dtype=dtype)
    rule = InferenceSpec(steps=4, step=Fixed(), lam=2.0, pooling_step=0.1)
    beta = safe_step(model, 2, 2.0)
    same = InferenceSpec(
        step=Schedule(steps=[StepSpec(size=beta, threshold=beta, pooling_step=(0.1,))] * 4), lam=2.0
    )
    expected, scheduled = (infer(model, images, spec, engine=engine) for spec in (rule, same))
    for one, other in zip(expected.latents.tensors(), scheduled.latents.tensors(), strict=True):
        assert (one - other).norm() <= tolerance * one.norm()


@pytest.mark.parametrize(
    "name", ["1 layer", "2 layers", "2 layers, max", "3 layers, colour", "2 layers, rectangular"]
)
@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.8])
def test_the_cpu_engine_takes_the_steps_of_the_reference(name: str, alpha: float) -> None:
    pytest.importorskip("numba")
    model, images = problem(name)
    spec = scheduled(lam=4.0, penalty=Power(alpha=alpha))
    latents = None
    # the last time, from the latents of the one before
    for mask in (
        None,
        random_mask(images, "weights"),
        None,
    ):
        expected, found = (
            infer(model, images, spec, mask=mask, latents=latents, engine=engine)
            for engine in ("reference", "cpu")
        )
        assert expected.stats.nonzeros[-1].sum() > 0
        for one, other in zip(expected.latents.tensors(), found.latents.tensors(), strict=True):
            assert (one - other).norm() <= 1e-10 * one.norm()
        assert torch.allclose(expected.stats.cost, found.stats.cost, rtol=1e-10)
        latents = expected.latents if mask is not None else None


def test_the_network_is_what_infer_computes() -> None:
    model, images = problem()
    unrolled = UnrolledInference(model, 3, scheduled(lam=2.0))
    assert unrolled.spec.schedule.mu_scale == pytest.approx((1.3, 0.8))
    assert unrolled.spec.schedule.gamma_scale == pytest.approx((0.4, 0.4))
    with torch.no_grad():
        for parameter in unrolled.parameters():
            parameter += 0.05
    solution = infer(model, images, unrolled.spec, engine="reference")
    latents = unrolled(images)
    assert torch.allclose(latents.p, solution.features)
    assert torch.allclose(unrolled.unroll(images)[1].cost, solution.stats.cost[-1])


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_untied_steps_infer_with_their_filters_on_the_pass_up(engine: str) -> None:
    """Against a plain evaluation of one step from 0: p = max(0, size · λ · Uᵀ(W * v) -
    threshold)."""
    if engine == "cpu":
        pytest.importorskip("numba")
    model, images = problem("1 layer")
    upward = DeconvNet(model.spec, seed=7, dtype=torch.float64).filters
    assert not torch.equal(upward[0], model.filters[0])
    spec = InferenceSpec(
        step=Schedule(steps=[StepSpec(size=0.02, threshold=0.01, pooling_step=(0.0,))]), lam=4.0
    )
    found = infer(model, images, engine=engine, steps=LearnedSteps(spec, model.checksum, upward))
    theta = found.latents.pooling_params[0]
    s = convolve_up(images, upward[0])
    moments = fit(Gaussian(), s, model.at(6, 5).regions[0], spec.moments)
    assert torch.allclose(theta.mu, moments.mu)
    expected = (
        0.02 * 4.0 * gaussian_weights(moments, model.at(6, 5).regions[0]).pool(s) - 0.01
    ).clamp(min=0)
    assert expected.sum() > 0
    assert torch.allclose(found.features, expected)


def test_untied_filters_are_learned_and_stay_connected() -> None:
    model, _ = problem()
    images = random_images(SPEC, 20)
    costs = {}
    for untied in (False, True):
        unrolled = UnrolledInference(model, 2, InferenceSpec(lam=2.0), untied=untied)
        distill(
            unrolled, images, DistillSpec(batches=15, batch_size=5, imitation=0.0, filter_rate=0.1)
        )
        costs[untied] = unrolled.unroll(images)[1].cost.mean()
    learned = unrolled.learned
    assert costs[True] < 0.99 * costs[False]
    assert learned.model_checksum == model.checksum
    for f, own, connected in zip(learned.upward, model.filters, model.connectivity, strict=True):
        assert not torch.equal(f, own)
        assert not f[~connected].any()
    solution = infer(model, images, steps=learned, engine="reference")
    assert torch.allclose(solution.stats.cost[-1].mean(), costs[True])


def test_learning_lowers_the_cost_of_images_it_has_not_seen() -> None:
    model, _ = problem()
    images = random_images(SPEC, 40)
    unrolled = UnrolledInference(model, 3, InferenceSpec(lam=2.0))
    before = unrolled.unroll(images[30:])[1].cost.mean()
    seen: list[int] = []

    def progress(number: int, cost: float) -> None:
        seen.append(number)

    costs = distill(
        unrolled,
        images[:30],
        DistillSpec(batches=20, batch_size=5, imitation=0.0),
        progress=progress,
    )
    assert unrolled.unroll(images[30:])[1].cost.mean() < 0.98 * before
    assert seen == list(range(1, 21))
    assert len(costs) == 20
    assert unrolled.contrast == pytest.approx(float(images[:30].amax((1, 2, 3)).mean()))
    assert unrolled.learned.spec.schedule.contrast == unrolled.contrast


def test_imitation_brings_the_features_nearer_to_those_of_the_teacher() -> None:
    model, _ = problem()
    images, teacher = random_images(SPEC, 20), InferenceSpec(lam=2.0, steps=8)
    target = infer(model, images[15:], teacher, engine="reference").features
    distances: list[Tensor] = []
    for imitation in (0.0, 30.0):
        unrolled = UnrolledInference(model, 2, InferenceSpec(lam=2.0))
        spec = DistillSpec(batches=15, batch_size=5, imitation=imitation)
        distill(unrolled, images[:15], spec, teacher=teacher, engine="reference")
        distances.append((unrolled(images[15:]).p.detach() - target).norm() / target.norm())
    assert distances[1] < 0.9 * distances[0]
    with raises(InvalidSetting, given={"imitation": -1.0}):
        distill(unrolled, images, DistillSpec(imitation=-1))


@pytest.mark.filterwarnings("ignore:Images have values up to")
@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_with_a_contrast_brighter_images_take_the_same_steps(engine: str) -> None:
    """Without thresholds, which are no share of the image: features in proportion, and the same
    pooling variables."""
    model, images = problem()
    sizes = [replace(sizes, threshold=0.0, pooling_step=(20.0,)) for sizes in SCHEDULE]
    spec = InferenceSpec(
        step=Schedule(steps=[replace(size, size=size.size / 10) for size in sizes], contrast=1.0)
    )
    once, brighter = (
        get_engine(engine).solve(Problem(model, v, joint(2)[0], spec)) for v in (images, 8 * images)
    )
    assert torch.allclose(8 * once.features, brighter.features, rtol=1e-9)
    for one, other in zip(
        once.latents.pooling_params, brighter.latents.pooling_params, strict=True
    ):
        assert torch.allclose(one.mu, other.mu, rtol=1e-9)
        assert torch.allclose(one.gamma, other.gamma, rtol=1e-9)
    plain = get_engine(engine).solve(
        Problem(
            model,
            8 * images,
            joint(2)[0],
            replace(spec, step=replace(spec.schedule, contrast=None)),
        )
    )
    assert not torch.allclose(
        plain.latents.pooling_params[0].mu, brighter.latents.pooling_params[0].mu, rtol=1e-3
    )


TOO_LONG = InferenceSpec(
    step=Schedule(
        steps=[StepSpec(size=1.0, threshold=0.01, extrapolation=1.0, pooling_step=(30.0,))] * 5
    )
)


@pytest.mark.filterwarnings("ignore:Images have values up to")
@pytest.mark.parametrize("contrast", [0.0, 1e-6, 1e3, 1e10])
def test_any_contrast_gives_finite_codes_that_end_no_higher(contrast: float) -> None:
    model, images = problem(dtype=torch.float32)
    solution = infer(model, contrast * images, TOO_LONG, engine="reference")
    cost = solution.stats.cost
    assert cost[-1].isfinite().all()
    assert (cost[-1] <= cost[0]).all()
    assert all(tensor.isfinite().all() for tensor in solution.latents.tensors())


@pytest.mark.filterwarnings("ignore:Images have values up to")
@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_images_that_a_schedule_does_not_suit_take_plain_steps(engine: str) -> None:
    """Each by itself: the threshold leaves features of the bright image, and none of the other."""
    model, images = problem()
    images[0] *= 1e3
    sizes = StepSpec(size=safe_step(model, 2, 5.0), threshold=1.0, pooling_step=(0.0,))
    spec = InferenceSpec(step=Schedule(steps=[sizes] * 3))
    plain = replace(spec, step=LineSearch())
    found = infer(model, images, spec, engine=engine)
    rule = infer(model, images, plain, engine=engine)
    alone = [infer(model, images[i : i + 1], spec, engine=engine) for i in range(2)]
    assert torch.equal(found.stats.step[:, 0], torch.full((3,), sizes.size, dtype=torch.float64))
    assert torch.equal(found.stats.step[:, 1], rule.stats.step[:, 1])
    for ours, one in zip(
        found.latents.tensors(),
        zip(*(s.latents.tensors() for s in alone), strict=True),
        strict=True,
    ):
        assert torch.equal(ours, torch.cat(one))
    for ours, theirs in zip(found.latents.tensors(), rule.latents.tensors(), strict=True):
        assert torch.equal(ours[1], theirs[1])
    assert (found.stats.cost[-1] < found.stats.cost[0]).all()
    untied = LearnedSteps(
        spec, model.checksum, DeconvNet(model.spec, seed=7, dtype=torch.float64).filters
    )
    # plain steps have the filters of the model
    found = infer(model, images, steps=untied, engine=engine)
    for ours, theirs in zip(found.latents.tensors(), rule.latents.tensors(), strict=True):
        assert torch.equal(ours[1], theirs[1])


def test_an_image_has_the_same_code_in_every_batch() -> None:
    model, images = problem(dtype=torch.float32)
    spec = InferenceSpec(step=Schedule(steps=SCHEDULE))
    together, alone = infer(model, images, spec), infer(model, images[1:2], spec)
    assert torch.equal(together.features[1:2], alone.features)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("steps", [0, 2])
def test_fewer_steps_are_the_first_of_a_schedule(engine: str, steps: int) -> None:
    model, images = problem()
    assert InferenceSpec(step=Schedule(steps=SCHEDULE), steps=50).steps == 3
    expected = infer(model, images, InferenceSpec(step=Schedule(steps=SCHEDULE[:2])), engine=engine)
    found = infer(
        model, images, InferenceSpec(step=Schedule(steps=SCHEDULE), steps=steps), engine=engine
    )
    assert found.stats.step.shape == (steps, 2)
    # the order of a sum may depend on what follows
    torch.testing.assert_close(
        found.stats.cost, expected.stats.cost[: steps + 1], rtol=1e-14, atol=0
    )


def test_a_schedule_is_written_and_read() -> None:
    recipe = replace(Recipe.paper(), inference=scheduled())
    assert override(Recipe.paper(), parse_toml(to_toml(recipe), "test")) == recipe


def test_the_start_of_the_pooling_variables_is_scaled_within_its_bounds() -> None:
    """Layer by layer: the start of layer 2 is fitted to what the scaled start of layer 1 pools."""
    model, images = problem()
    plain = InferenceSpec()
    scaled = InferenceSpec(step=Schedule(steps=SCHEDULE, mu_scale=(3.0, 0.5), gamma_scale=(0.2,)))
    ours = ista.start(Problem(model, images, joint(2)[0], scaled)).theta
    theta = ista.start(Problem(model, images, joint(2)[0], plain)).theta[0]
    assert torch.allclose(ours[0].mu, (3 * theta.mu).clamp(-0.5, 0.5))
    assert torch.allclose(ours[0].gamma, (theta.gamma / 5).clamp(0.01, 100))
    assert (ours[0].mu != 3 * theta.mu).any()
    second = ista.start(
        Problem(model, images, joint(2)[0], plain, Latents(pooling_params=ours[:1]))
    ).theta[1]
    assert torch.allclose(ours[1].mu, second.mu / 2)
    assert not torch.allclose(
        second.mu, ista.start(Problem(model, images, joint(2)[0], plain)).theta[1].mu
    )
    known = ista.start(
        Problem(model, images, joint(2)[0], scaled, Latents(pooling_params=ours))
    ).theta
    assert all(torch.equal(a.mu, b.mu) for a, b in zip(known, ours, strict=True)), (
        "what is known stays"
    )
    for name in ("mu_scale", "gamma_scale"):
        for scales in ((), (1.0, 0.0)):
            with raises(InvalidSetting, given={name: scales and 0.0}):
                Schedule(steps=SCHEDULE, **{name: scales})


def test_impossible_sizes_are_an_error() -> None:
    with raises(InvalidSetting, given={"contrast": 0.0}):
        Schedule(steps=SCHEDULE, contrast=0.0)
    with raises(InvalidSetting, given={"steps": ()}):
        Schedule(steps=())
    with raises(InvalidSetting, given={"size": -1.0}):
        replace(SCHEDULE[0], size=-1.0)
    with raises(InvalidSetting, given={"steps": 5, "steps of the schedule": 3}):
        UnrolledInference(problem()[0], 5, InferenceSpec(step=Schedule(steps=SCHEDULE)))


def test_a_schedule_is_no_reason_against_any_engine() -> None:
    model, images = problem(dtype=torch.float32)
    plain, scheduled = (
        unsupported_reasons(Problem(model, images, joint(2)[0], spec))
        for spec in (InferenceSpec(), InferenceSpec(step=Schedule(steps=SCHEDULE)))
    )
    assert scheduled == plain


def test_distilling_from_nothing_raises() -> None:
    model = DeconvNet(SPECS["1 layer"])
    images = random_images(model.spec, 1)
    with pytest.raises(EmptySet):
        distill(UnrolledInference(model, steps=1), images[:0])
    with raises(InvalidSetting, given={"unrolled": model}):
        distill(model, images)  # type: ignore[arg-type]
