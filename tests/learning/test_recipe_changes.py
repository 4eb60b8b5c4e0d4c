"""What may change when a run is resumed: settings of test time, and epochs that are still to come."""

from dataclasses import replace

import pytest

import tiny_training as tiny
from whatwhere.errors import RunError
from whatwhere.learning import TrainingStopped
from whatwhere.learning.checkpoint import training_changes
from whatwhere.spec import DescriptorSpec, InferenceSpec, Phase, Recipe
from whatwhere.spec.toml import read_recipe, to_toml


def with_epochs(*epochs: int) -> Recipe:
    recipe = tiny.recipe()
    learning = tuple(replace(spec, epochs=n) for spec, n in zip(recipe.learning, epochs, strict=True))
    return replace(recipe, learning=learning)


def test_a_finished_run_can_be_given_more_epochs(tmp_path):
    tiny.train(with_epochs(2, 1), tiny.images(), tmp_path)
    run = tiny.train(with_epochs(2, 3), tiny.images(), tmp_path, resume=True)
    assert [(report.layer, report.epoch) for report in run.history] == [(1, 1), (1, 2), (2, 1), (2, 2), (2, 3)]
    assert read_recipe(tmp_path / "recipe.toml").learning[1].epochs == 3
    again = tiny.train(with_epochs(2, 3), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(again.model, run.model)


def test_a_stopped_run_given_more_epochs_ends_as_if_it_had_them_from_the_start(tmp_path):
    calls = iter([False] * 5 + [True])
    with pytest.raises(TrainingStopped, match="epoch 2, 2 of 3"):
        tiny.train(with_epochs(2, 2), tiny.images(), tmp_path, stop=lambda: next(calls))
    resumed = tiny.train(with_epochs(4, 3), tiny.images(), tmp_path, resume=True)
    assert tiny.same_filters(resumed.model, tiny.train(with_epochs(4, 3), tiny.images()).model)


def test_a_layer_that_others_were_trained_on_keeps_its_epochs(tmp_path):
    tiny.train(with_epochs(2, 1), tiny.images(), tmp_path)
    with pytest.raises(RunError, match=r"learning\.1\.epochs = 3 was given; expected 2.*learning\.2\.epochs can be"):
        tiny.train(with_epochs(3, 1), tiny.images(), tmp_path, resume=True)
    with pytest.raises(RunError, match=r"learning\.2\.epochs = 0 was given; 1 are begun already"):
        tiny.train(with_epochs(2, 0), tiny.images(), tmp_path, resume=True)


def test_settings_of_test_time_may_change(tmp_path):
    recipe = tiny.recipe()
    tiny.train(recipe, tiny.images(), tmp_path)
    other = replace(
        recipe,
        inference=InferenceSpec(lam=9.0),
        plan=(Phase(layer=1, update_pooling=(1,)),),
        descriptor=DescriptorSpec(raw=True),
    )
    run = tiny.train(other, tiny.images(), tmp_path, resume=True)
    assert len(run.history) == 4
    assert read_recipe(tmp_path / "recipe.toml") == other


def test_settings_of_training_may_not_change(tmp_path):
    tiny.train(tiny.recipe(), tiny.images(), tmp_path)
    for other in (replace(tiny.recipe(), batch_size=3), replace(tiny.recipe(), seed=1), tiny.recipe(steps=3)):
        with pytest.raises(RunError, match=r"cannot continue with other recipe: .* was .* and is now"):
            tiny.train(other, tiny.images(), tmp_path, resume=True)


def test_a_setting_that_is_newer_than_the_run_had_its_default_then():
    new = to_toml(tiny.recipe())
    old = "\n".join(line for line in new.splitlines() if not line.startswith("tolerance"))
    assert old.count("\n") < new.count("\n") - 1
    assert training_changes(old, tiny.recipe()) == ""
    changed = new.replace("tolerance = 0.0", "tolerance = 0.5").replace('"batch"', '"image"')
    assert "inference.tolerance was 0.5 and is now 0.0" in training_changes(changed, tiny.recipe())
