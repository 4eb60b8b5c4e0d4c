"""Keys: the same for the same subject, another for anything that would change its result."""

import json
from dataclasses import replace

import pytest

from whatwhere.benchmark.machine import machine
from whatwhere.errors import RunError
from whatwhere.inference.plan import TWO_PHASES
from whatwhere.reproduction.results import Results
from whatwhere.reproduction.subjects import DataSpec, Subject, first_layers, model_subject, plain
from whatwhere.spec import Recipe

DATA = DataSpec("digits")
RECIPE = Recipe.paper()


def error(recipe=RECIPE, data=DATA, **settings):
    return Subject("error", data, {"recipe": plain(recipe), "C": [1.0], **settings})


def test_whatever_determines_a_result_is_in_its_key():
    learning = (RECIPE.learning[0], replace(RECIPE.learning[1], update_lower_pooling=False))
    others = [
        error(replace(RECIPE, seed=1)),
        error(replace(RECIPE, plan=TWO_PHASES)),
        error(replace(RECIPE, inference=replace(RECIPE.inference, lam=6.0))),
        error(replace(RECIPE, descriptor=replace(RECIPE.descriptor, cell=2))),
        error(replace(RECIPE, learning=learning)),
        error(first_layers(RECIPE, 1)),
        error(data=DataSpec("mnist")),
        error(data=DataSpec("digits", eval_split="validation")),
        error(data=DataSpec("digits", limit=100)),
        error(C=[2.0]),
        Subject("few labels", DATA, error().settings),
    ]
    keys = {subject.key for subject in others}
    assert len(keys) == len(others)
    assert error().key not in keys


def test_the_order_of_settings_does_not_matter():
    settings = error().settings
    assert Subject("error", DATA, dict(reversed(settings.items()))) == error()


def test_a_model_is_known_by_its_training_alone():
    used_otherwise = replace(RECIPE, plan=TWO_PHASES, inference=replace(RECIPE.inference, steps=7))
    assert model_subject(used_otherwise, DATA) == model_subject(RECIPE, DATA)
    longer = replace(RECIPE, learning=(RECIPE.learning[0], replace(RECIPE.learning[1], epochs=51)))
    assert model_subject(longer, DATA) != model_subject(RECIPE, DATA)
    assert model_subject(first_layers(longer, 1), DATA) == model_subject(first_layers(RECIPE, 1), DATA), "shared"


def test_a_result_is_found_again_and_carries_what_made_it(tmp_path):
    Results(tmp_path).put(error(), {"error": 0.01}, 1.0)
    found = Results(tmp_path).find(error())
    assert found["found"] == {"error": 0.01}
    assert found["subject"].recipe == RECIPE
    assert {"processor", "versions", "commit", "time"} <= found["machine"].keys()
    assert Results(tmp_path).find(error(C=[2.0])) is None


def test_other_defaults_do_not_orphan_a_model(tmp_path):
    subject = model_subject(RECIPE, DATA)
    path = Results(tmp_path).put(subject, {"history": []}, 1.0)
    content = json.loads(path.read_text())
    content["subject"]["settings"]["recipe"]["inference"]["pooling_step"] = 1.0  # as if that had been the default
    path.write_text(json.dumps(content))
    assert Results(tmp_path).find(subject) is not None


def test_the_commit_can_be_given(monkeypatch):
    monkeypatch.setenv("WHATWHERE_COMMIT", "abc123")
    assert machine()["commit"] == "abc123"


def test_a_setting_that_came_later_does_not_orphan_a_result(tmp_path):
    path = Results(tmp_path).put(error(), {"error": 0.01}, 1.0)
    content = json.loads(path.read_text())
    del content["subject"]["settings"]["recipe"]["inference"]["momentum"]  # as if the program had got it since
    path.write_text(json.dumps(content))
    assert Results(tmp_path).find(error()) is not None
    content["subject"]["settings"]["recipe"]["inference"]["momentum"] = True
    path.write_text(json.dumps(content))
    assert Results(tmp_path).find(error()) is None


def test_a_file_that_is_no_result_is_refused_by_name(tmp_path):
    (tmp_path / "error-1.json").write_text("{}")
    with pytest.raises(RunError, match=r"error-1\.json is not a result file"):
        Results(tmp_path)


def test_validation_images_are_the_last_sixth_and_not_learned_from():
    training, judged = DataSpec("digits", eval_split="validation").load()
    assert (len(training), len(judged)) == (4166, 834)
    whole, test = DataSpec("digits").load()
    assert (len(whole), len(test)) == (5000, 2000)
    assert judged.fingerprint == whole.subset(range_of(4166, 5000)).fingerprint


def range_of(start, end):
    import numpy as np

    return np.arange(start, end)
