"""Learning in a stream: the update is the one written down, and every way to run it gives the same
bits."""

import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import tiny_training as tiny
from benchmarks.learning.learning_curve import EVALUATION_STEPS, curve, record
from examples import filter_problem
from whatwhere.engines import REFERENCE
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.inference import infer
from whatwhere.learning import StreamError, TrainingStopped
from whatwhere.learning.algorithm import training_phase
from whatwhere.learning.filter_problem import project_filters, step_filters
from whatwhere.model import DeconvNet, Problem, load
from whatwhere.spec import EveryBatch, EveryEpoch, LearningSpec, LineSearch
from whatwhere.spec.penalty import Power
from whatwhere.spec.recipe import joint

COUNT = 9  # images for each layer: five batches


def endless(size: int = 3, seed: int = 0):
    """The images of `tiny.images`, again and again, in pieces of another size than the batches."""
    images, start = tiny.images(20, seed), 0
    while True:
        yield images[torch.arange(start, start + size) % 20]
        start += size


@pytest.fixture(scope="module")
def reference():
    return tiny.train(tiny.stream_recipe(), tiny.images(20), image_count=COUNT)


@pytest.mark.parametrize(("steps", "momentum"), [(1, 0.0), (1, 0.5), (2, 0.5)])
def test_an_update_is_the_minimum_along_its_directions(steps, momentum):
    """Against dense linear algebra in float64: A as a matrix, the minimum over the span of the
    directions."""
    recipe = tiny.recipe()
    model = DeconvNet(recipe.model, seed=1, dtype=torch.float64)
    v = tiny.images(6).double()
    phase = training_phase(2, recipe.learning[1])
    latents = REFERENCE.solve(Problem(model, v, phase, recipe.learning[1].inference)).latents
    linear_map, f = FilterMap(filter_problem(model, v, latents), 2), model.filters[1]
    mask = model.connectivity[1][:, :, None, None].expand_as(f).reshape(-1).double()
    units = torch.eye(f.numel(), dtype=torch.float64) * mask
    A = torch.stack([linear_map(unit.view_as(f)).reshape(-1) for unit in units], 1)
    g = A.T @ (v.reshape(-1) - A @ f.reshape(-1)) / 6
    last = (
        torch.randn(f.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 0.1
    )
    directions = [g + momentum * last.reshape(-1) * mask]
    if steps == 2:
        directions.append(
            g - A.T @ A @ directions[0] * (g @ directions[0]) / (A @ directions[0]).square().sum()
        )
    span = torch.stack(directions, 1)
    best = torch.linalg.lstsq(A @ span, (v.reshape(-1) - A @ f.reshape(-1))[:, None]).solution[:, 0]
    learning = LearningSpec(
        inference=recipe.learning[1].inference,
        update=EveryBatch(direction_memory=momentum),
        cg_steps=steps,
    )
    kept = last * mask.view_as(f)
    f_new, direction = step_filters(model, 2, linear_map, lambda total: total / 6, kept, learning)
    new = project_filters(model, 2, f_new)
    torch.testing.assert_close(direction.reshape(-1), directions[0])
    torch.testing.assert_close(
        new.filters[1], model.project(2, (f.reshape(-1) + span @ best).view_as(f))
    )


def test_a_direction_that_leads_uphill_moves_nothing():
    recipe = tiny.recipe()
    model, v = DeconvNet(recipe.model, seed=1), tiny.images(6)
    phase = training_phase(2, recipe.learning[1])
    solution = REFERENCE.solve(Problem(model, v, phase, recipe.learning[1].inference))
    linear_map = FilterMap(filter_problem(model, v, solution.latents), 2)
    gradient = (
        linear_map.negative_gradient(model.filters[1]) * model.connectivity[1][:, :, None, None] / 6
    )
    learning = LearningSpec(
        inference=recipe.learning[1].inference, update=EveryBatch(direction_memory=0.5), cg_steps=1
    )
    f_new, _ = step_filters(
        model, 2, linear_map, lambda total: total.double() / 6, -4 * gradient, learning
    )
    new = project_filters(model, 2, f_new)
    torch.testing.assert_close(new.filters[1], model.filters[1])


def test_the_cost_falls_and_filters_of_both_layers_move(reference):
    start = DeconvNet(tiny.stream_recipe().model, seed=0)
    assert all(
        not torch.equal(f, g) for f, g in zip(reference.model.filters, start.filters, strict=True)
    )
    longer = tiny.train(tiny.stream_recipe(epochs=8, batch_size=5, steps=5), tiny.images(20))
    costs = [report.cost for report in longer.history if report.layer == 1]
    assert len(costs) == 8
    assert costs[-1] < 0.99 * costs[0], "images of noise leave little to learn"
    assert all(report.images == 20 and report.dead_maps in range(4) for report in longer.history)


def test_an_iterable_and_a_sized_source_give_the_same_bits(reference):
    run = tiny.train(tiny.stream_recipe(), endless(), image_count=COUNT)
    assert tiny.same_filters(run.model, reference.model)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(tiny.images(20)), batch_size=4
    )
    assert tiny.same_filters(
        tiny.train(tiny.stream_recipe(), loader, image_count=COUNT).model, reference.model
    )


def test_without_an_image_count_an_epoch_is_a_pass():
    run = tiny.train(tiny.stream_recipe(epochs=3), tiny.images(5))
    assert [(r.layer, r.epoch, r.images) for r in run.history] == [
        (k, e, 5) for k in (1, 2) for e in (1, 2, 3)
    ]


@pytest.mark.parametrize("every", [0, 1])
def test_stopped_after_any_batch_and_resumed_it_ends_with_the_same_bits(every, reference, tmp_path):
    stops, resume = 0, False
    while True:
        # a stop after one batch, then after two
        asked = iter([False, True] if stops % 2 else [True])
        try:
            run = tiny.train(
                tiny.stream_recipe(),
                endless(),
                tmp_path,
                image_count=COUNT,
                resume=resume,
                stop=lambda asked=asked: next(asked, True),
                checkpoint_every=every,
            )
            break
        except TrainingStopped:
            stops, resume = stops + 1, True
    assert stops >= 5
    assert tiny.same_filters(run.model, reference.model)
    assert [r.cost for r in run.history] == [r.cost for r in reference.history]
    assert not (tmp_path / "checkpoint" / "latents").exists(), "no latents are stored"


def stream_and_note_memory(count: int, note: Path) -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    fresh = (torch.rand(20, 1, 60, 60, generator=generator) for _ in iter(int, 1))
    tiny.train(tiny.stream_recipe(batch_size=20, steps=1), fresh, image_count=count)
    note.write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def test_memory_does_not_depend_on_the_number_of_images(tmp_path):
    """The peak of a process that learns from a stream, and of one that learns from a stream 10
    times as long."""
    for count in (40, 400):
        tiny.process(stream_and_note_memory, count, tmp_path / str(count)).join()
    short, long = (int((tmp_path / str(count)).read_text()) for count in (40, 400))
    assert long - short < 6e6, (
        "the images of both layers are 12 MB, their latents four times as much"
    )


def spoiled(after: int, batch):
    for number, images in enumerate(endless(), start=1):
        yield batch if number > after else images


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            torch.full((3, 1, 4, 5), float("inf")),
            "Images 6 to 7 of the stream: The images have NaN or inf",
        ),
        (-torch.ones(3, 1, 4, 5), "Images 6 to 7 of the stream: Images have values down to -1"),
        (
            torch.ones(3, 1, 4, 6),
            r"The stream gave a tensor of shape \[3, 1, 4, 6\] after 6 images",
        ),
        (None, "The stream gave a NoneType after 6 images"),
    ],
)
def test_a_stream_that_fails_leaves_the_last_good_filters(batch, message, reference, tmp_path):
    with pytest.raises(StreamError, match=message) as failure:
        tiny.train(tiny.stream_recipe(), spoiled(2, batch), tmp_path / "bad", image_count=COUNT)
    stop = iter([False, False, True])
    with pytest.raises(TrainingStopped):
        tiny.train(
            tiny.stream_recipe(),
            endless(),
            tmp_path / "good",
            image_count=COUNT,
            stop=lambda: next(stop),
        )
    good = load(tmp_path / "good" / "model.safetensors")
    assert tiny.same_filters(failure.value.model, good)
    assert tiny.same_filters(load(tmp_path / "bad" / "model.safetensors"), good)
    run = tiny.train(
        tiny.stream_recipe(), endless(), tmp_path / "bad", image_count=COUNT, resume=True
    )
    assert tiny.same_filters(run.model, reference.model)


# Learning curves: snapshots in the order of training, costs on held-out images as `infer` gives the


@pytest.mark.parametrize("update", [EveryEpoch(reset_at=()), EveryBatch()])
def test_a_curve_has_the_costs_of_its_snapshots(update: EveryEpoch | EveryBatch) -> None:
    recipe = tiny.recipe(epochs=2, penalty=Power(alpha=1.0), step=LineSearch())
    recipe = replace(
        recipe, learning=tuple(replace(layer, update=update) for layer in recipe.learning)
    )
    snapshots = record(recipe, tiny.images(6), every=1)
    assert [s.layer for s in snapshots] == sorted(s.layer for s in snapshots)
    assert {s.layer for s in snapshots} == {1, 2}
    held_out = tiny.images(4, seed=9)
    rows = curve(snapshots, recipe, held_out)
    last, spec = snapshots[-1], replace(recipe.learning[1].inference, steps=EVALUATION_STEPS)
    solution = infer(last.model, held_out, spec, joint(2))
    assert rows[-1]["cost"] == pytest.approx(float(solution.stats.cost[-1].mean()), rel=1e-4)
    assert all(torch.isfinite(torch.tensor(row["cost"])) for row in rows)
    for name in ("seconds", "processor_seconds"):
        seconds = [row[name] for row in rows]
        assert seconds == sorted(seconds)
        assert seconds[-1] > 0
