"""The runner, on a scale so small that every cell takes a fraction of a second."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import whatwhere.reproduction.measure as measure_module
import whatwhere.reproduction.models as models_module
import whatwhere.reproduction.subjects as subjects_module
from whatwhere.errors import SpecError
from whatwhere.learning import TrainingStopped
from whatwhere.model import load
from whatwhere.reproduction.measure import Described, Laboratory, all_labels
from whatwhere.reproduction.models import Models
from whatwhere.reproduction.reproduce import Options, reproduce, work
from whatwhere.reproduction.results import Results
from whatwhere.reproduction.subjects import DataSpec, Subject, first_layers, model_subject
from whatwhere.reproduction.tables import cells_of


def quiet(line):
    pass


@pytest.fixture
def trainings(monkeypatch):
    """The recipes that were trained, in order."""
    train, seen = models_module.train, []
    monkeypatch.setattr(
        models_module, "train", lambda recipe, *a, **k: (seen.append(recipe), train(recipe, *a, **k))[1]
    )
    return seen


def test_every_cell_gets_a_result_file_with_every_figure(measured):
    assert len(list(measured.glob("error-*.json"))) == 9
    assert len(list(measured.glob("model-*.json"))) == 8
    content = json.loads(next(measured.glob("error-*.json")).read_text())
    found = content["found"]
    assert found["error"] == found["errors"] / found["images"]
    assert found["images"] == 30 == sum(map(sum, found["confusion"]))
    low, high = found["interval"]
    assert low <= found["error"] <= high
    assert [trial["C"] for trial in found["trials"]] == [1.0, 10.0]
    assert found["C"] in (1.0, 10.0)
    assert content["machine"]["versions"]["torch"]
    assert content["subject"]["settings"]["recipe"]["seed"] in (0, 1)
    history = json.loads((measured / f"model-{found['model']}.json").read_text())["found"]["history"]
    assert {"cost", "reconstruction", "penalty", "nonzeros", "engine"} <= history[-1].keys()
    assert (measured / "models" / f"{found['model']}.safetensors").is_file(), "models of the headline are kept"


def test_layers_are_trained_once(scale, tmp_path, trainings):
    rows = [subject for cell in cells_of("joint", scale) for subject in cell.subjects]
    models = Models(Results(tmp_path), tmp_path, tmp_path / "cache", "cpu", "reference", say=quiet)
    for subject in rows:
        models.get(model_subject(subject.recipe, subject.data), subject.data.load()[0])
    assert [recipe.model.depth for recipe in trainings] == [1, 2, 2, 2, 2], "four rows, three columns, one layer 1"
    assert all(recipe.learning[0].epochs == 0 for recipe in trainings[1:])


def test_what_has_a_result_is_not_measured_again(scale, measured, trainings):
    options = Options(measured.parent, measured / "no cache", device="cpu", engine="reference")
    again = reproduce(["pooling", "steps", "cost"], scale, options, quiet)
    assert (again.measured, again.left, len(trainings)) == (0, 0, 0)


def test_the_svm_is_the_same_on_every_machine(measured):
    solvers = {json.loads(path.read_text())["found"]["solver"] for path in measured.glob("error-*.json")}
    assert solvers == {"newton"}


def test_only_some_cells(scale, options):
    wanted = work(["pooling", "steps"], scale, only="Gaussian pooling / Layer")
    assert [cell.name for cell in wanted.values()].count("Gaussian pooling / Layer 2") == scale.seeds
    assert {cell.name for cell in wanted.values()} == {"Gaussian pooling / Layer 1", "Gaussian pooling / Layer 2"}
    outcome = reproduce(["pooling"], scale, replace(options, only="Gaussian pooling / Layer 1", seeds=1), quiet)
    assert (outcome.measured, outcome.left) == (1, 0)
    with pytest.raises(SpecError, match="--only 'gaussian' was given; no cell of pooling"):
        work(["pooling"], scale, only="gaussian")


def test_the_history_of_a_model_holds_all_its_layers(measured):
    for path in measured.glob("model-*.json"):
        content = json.loads(path.read_text())
        depth = len(content["subject"]["settings"]["recipe"]["model"]["layers"])
        epochs = [(epoch["layer"], epoch["epoch"]) for epoch in content["found"]["history"]]
        assert epochs == [(1, 1), (1, 2), (2, 1), (2, 2)][: 2 * depth]


def test_out_of_time_it_stops_cleanly_and_goes_on(scale, options):
    said = []
    outcome = reproduce(["reset"], scale, replace(options, minutes=0), said.append)
    assert (outcome.measured, outcome.left) == (0, 2)
    assert "out of time with 2 left" in said[-1]
    assert reproduce(["reset"], scale, options, quiet).left == 0


def test_a_training_cut_off_goes_on_to_the_same_model(scale, tmp_path):
    recipe, data = scale.recipe(), scale.data
    subject, images = model_subject(recipe, data), data.load()[0]

    def models(name, stop=lambda: False):
        folder = tmp_path / name
        return Models(Results(folder), folder / "models", folder / "cache", "cpu", "reference", stop=stop, say=quiet)

    whole = models("whole").get(subject, images)
    cuts = 0
    while True:
        asked = iter([False, True] + [False] * 100)
        try:
            model = models("cut", stop=lambda asked=asked: next(asked)).get(subject, images)
            break
        except TrainingStopped:
            cuts += 1
    assert cuts > 1
    assert all(torch.equal(f, g) for f, g in zip(whole.filters, model.filters, strict=True))
    history = [Results(tmp_path / name).find(subject)["found"]["history"] for name in ("whole", "cut")]
    assert [epoch["cost"] for epoch in history[0]] == [epoch["cost"] for epoch in history[1]]
    assert not (tmp_path / "cut" / "cache" / subject.key).exists(), "no checkpoint is left of a finished training"


def test_layer_2_stands_on_the_layer_1_that_was_trained(scale, measured):
    recipe, kept = scale.recipe(), measured / "models"
    both = load(kept / f"{model_subject(recipe, scale.data).key}.safetensors")
    first = load(kept / f"{model_subject(first_layers(recipe, 1), scale.data).key}.safetensors")
    assert torch.equal(both.filters[0], first.filters[0])


def test_c_is_chosen_without_the_test_images_and_they_are_touched_once(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (np.eye(3)[y] + rng.normal(0, 1.0, (60, 3))).astype(np.float32)
    subject = Subject("error", DataSpec("digits"), {"C": [0.01, 1.0, 100.0]})
    evaluate, touched = measure_module.protocol.evaluate, []
    monkeypatch.setattr(
        measure_module.protocol, "evaluate", lambda *a, **k: (touched.append(a[4]), evaluate(*a, **k))[1]
    )
    cpu = torch.device("cpu")
    found = all_labels(Described(x, y, x, y), subject, cpu)
    shuffled = all_labels(Described(x, y, x[::-1].copy(), rng.permutation(y)), subject, cpu)
    assert found["trials"] == shuffled["trials"]
    assert touched == [found["C"]] * 2
    assert found["error"] != shuffled["error"]


def test_c_is_chosen_by_the_last_sixth_of_the_training_images():
    y = np.arange(60) % 2
    x = np.where(y == 1, 1.0, -1.0)[:, None].astype(np.float32) * np.ones((1, 2), np.float32)
    x[50:] *= -1  # only the last ten are on the wrong side
    subject = Subject("error", DataSpec("digits"), {"C": [1.0]})
    found = all_labels(Described(x, y, x, y), subject, torch.device("cpu"))
    assert found["trials"] == [{"C": 1.0, "error": 1.0}]


def test_a_choice_never_opens_the_test_images(scale, options, monkeypatch):
    load_data = subjects_module.data.load

    def guarded(source, *args, split=None, **kwargs):
        assert split != "test", "the test images were opened"
        return load_data(source, *args, split=split, **kwargs)

    monkeypatch.setattr(subjects_module.data, "load", guarded)
    results = Results(options.results)
    laboratory = Laboratory(
        results, Models(results, options.results, options.cache, "cpu", "reference", say=quiet), quiet
    )
    (subject,) = cells_of("choice", scale)[0].subjects
    found = laboratory.measure(subject)["found"]
    assert found["error"] == min(trial["error"] for trial in found["trials"])


def test_models_together_are_those_of_the_seeds_side_by_side(scale, options, monkeypatch):
    seen = []
    evaluate_claim = measure_module.all_labels
    monkeypatch.setattr(measure_module, "all_labels", lambda d, *rest: (seen.append(d), evaluate_claim(d, *rest))[1])
    results = Results(options.results)
    laboratory = Laboratory(
        results, Models(results, options.results, options.cache, "cpu", "reference", say=quiet), quiet
    )
    wanted = [c for c in cells_of("comparison", scale, 3) if c.column == "all labels" and c.row.startswith("Th")]
    alone, (together,) = (cell.subjects for cell in wanted)
    assert [subject.recipe.seed for subject in alone] == [0, 1, 2]
    found = laboratory.measure(together)["found"]
    assert found["models"] == [model_subject(subject.recipe, subject.data).key for subject in alone]
    for subject in alone:
        laboratory.measure(subject)
    rows = [d.x_test.toarray() if hasattr(d.x_test, "toarray") else d.x_test for d in seen]
    np.testing.assert_allclose(rows[0] * np.sqrt(3), np.concatenate(rows[1:], 1), rtol=1e-6)


def test_the_headline_comes_first_one_seed_of_each_before_two_of_any(scale):
    order = list(work(["reset", "pooling"], scale).items())
    assert [(cell.table, subject.recipe.seed) for subject, cell in order[:8]] == [("pooling", 0)] * 4 + [
        ("pooling", 1)
    ] * 4
    assert order[8][1].table == "reset"
    assert len(order) == 9, "the cell with a reset is the headline's"


def test_more_seeds_where_they_are_asked_for(scale):
    (cell,) = [c for c in cells_of("reset", scale, 3) if c.column == "No reset"]
    assert [subject.recipe.seed for subject in cell.subjects] == [0, 1, 2]
    assert len(work(["reset"], scale, seeds=3)) == 6


def test_images_are_described_once_for_all_numbers_of_labels(scale, options, monkeypatch):
    described = []
    describe = measure_module.describe_images
    monkeypatch.setattr(measure_module, "describe_images", lambda *a, **k: (described.append(1), describe(*a, **k))[1])
    results = Results(options.results)
    models = Models(results, options.results, options.cache, "cpu", "reference", say=quiet)
    laboratory = Laboratory(results, models, quiet)
    for labels in (10, 20):
        settings = {**cells_of("pooling", scale)[0].subjects[0].settings, "labels": labels, "C": [1.0]}
        subject = Subject("few labels", DataSpec("digits", limit=200), settings)
        found = laboratory.measure(subject)["found"]
        assert found["labels"] == labels
        assert found["error"] == pytest.approx(np.mean(found["errors_of_draws"]))
        assert len(found["errors_of_draws"]) == 10
    assert len(described) == 2, "training and test images, once each"


def test_what_another_program_measures_is_left_out_by_name(scale, options):
    said = []
    outcome = reproduce(["comparison"], scale, replace(options, minutes=0), said.append)
    assert outcome.elsewhere == 1, "all labels; this scale has too few images for the other columns"
    assert any("Scattering" in line and "benchmarks/scattering.py" in line for line in said)
