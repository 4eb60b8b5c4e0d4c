"""Learning curves: snapshots in the order of training, costs on held-out images as `infer` gives them."""

from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
from benchmarks.learning_curve import EVALUATION_STEPS, curve, record
from whatwhere.inference import infer
from whatwhere.inference.plan import joint
from whatwhere.spec import EveryBatch, EveryEpoch, LineSearch


@pytest.mark.parametrize("update", [EveryEpoch(reset_at=()), EveryBatch()])
def test_a_curve_has_the_costs_of_its_snapshots(update: EveryEpoch | EveryBatch) -> None:
    recipe = tiny.recipe(epochs=2, alpha=1.0, step=LineSearch())
    recipe = replace(recipe, learning=tuple(replace(layer, update=update) for layer in recipe.learning))
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
