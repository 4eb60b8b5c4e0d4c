"""Evaluating jobs: C without the test images, rows described once, ensembles side by side."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import reproduction.classifiers as classifiers
import reproduction.evaluation as evaluation
import reproduction.jobs as jobs_module
import reproduction.models as models_module
from reproduction.baselines import KMeans, RawPixels
from reproduction.classifiers import evaluate_linear, moved_test
from reproduction.evaluation import LabelledRows
from reproduction.jobs import (
    ClassifierSpec,
    DataSpec,
    EvaluationJob,
    FewLabelJob,
    RecordedJob,
    TrainingJob,
    first_layers,
)
from reproduction.models import ModelStore, read_model
from reproduction.records import job_table, parse_job
from reproduction.reproduce import open_store
from reproduction.results import CTrial, value_of
from reproduction.svm.virtual_samples import Move, moved
from reproduction.table import cells_of
from whatwhere.data import Images
from whatwhere.errors import RunError
from whatwhere.learning import TrainingStopped

CPU = torch.device("cpu")


def test_c_is_chosen_without_the_test_images_and_they_are_used_once(monkeypatch):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = (np.eye(3)[y] + rng.normal(0, 1.0, (60, 3))).astype(np.float32)
    job = EvaluationJob(DataSpec("digits"), RawPixels(), (0.01, 1.0, 100.0))
    evaluate, used = classifiers.protocol.evaluate, []
    monkeypatch.setattr(
        classifiers.protocol, "evaluate", lambda *a, **k: (used.append(a[4]), evaluate(*a, **k))[1]
    )
    score, trials = evaluate_linear(LabelledRows(x, y, x, y), job, CPU)
    shuffled = LabelledRows(x, y, x[::-1].copy(), rng.permutation(y))
    other_score, other_trials = evaluate_linear(shuffled, job, CPU)
    assert trials == other_trials
    assert used == [score.C] * 2
    assert score.error != other_score.error


def test_c_is_chosen_by_the_last_sixth_of_the_training_images():
    y = np.arange(60) % 2
    x = np.where(y == 1, 1.0, -1.0)[:, None].astype(np.float32) * np.ones((1, 2), np.float32)
    x[50:53] *= -1  # three of the last ten are on the wrong side
    job = EvaluationJob(DataSpec("digits"), RawPixels(), (1.0,))
    _, trials = evaluate_linear(LabelledRows(x, y, x, y), job, CPU)
    assert trials == (CTrial(C=1.0, error=0.3),)


def test_a_choice_never_opens_the_test_images(scale, evaluator, monkeypatch):
    load_data = jobs_module.data.load

    def guarded(source, *args, split=None, **kwargs):
        assert split != "test", "the test images were opened"
        return load_data(source, *args, split=split, **kwargs)

    monkeypatch.setattr(jobs_module.data, "load", guarded)
    (job,) = cells_of("choice", scale)[0].jobs
    result = evaluator.run(job).result
    assert result.error == min(trial.error for trial in result.trials)


def test_an_ensemble_describes_images_by_its_models_side_by_side(scale, evaluator, monkeypatch):
    seen = []
    evaluate = evaluation.evaluate_job
    monkeypatch.setattr(
        evaluation,
        "evaluate_job",
        lambda rows, *rest: (seen.append(rows), evaluate(rows, *rest))[1],
    )
    wanted = [
        c
        for c in cells_of("comparison", scale, 3)
        if c.column == "all labels" and c.row.startswith("Th")
    ]
    single, (ensemble,) = (cell.jobs for cell in wanted)
    assert [job.features.recipe.seed for job in single] == [0, 1, 2]
    models = evaluator.run(ensemble).result.models
    assert models == tuple(f"models/gaussian-2layers-seed{seed}" for seed in range(3))
    for job in single:
        evaluator.run(job)
    rows = [r.x_test.toarray() if hasattr(r.x_test, "toarray") else r.x_test for r in seen]
    np.testing.assert_allclose(rows[0] * np.sqrt(3), np.concatenate(rows[1:], 1), rtol=1e-6)


def test_models_of_several_recipes_describe_images_and_virtual_samples_side_by_side(
    scale, evaluator
):
    cells = {c.name: c for c in cells_of("best", scale)}
    (job,) = cells["(b, upright) this model / error"].jobs
    two = replace(job.features, other_recipes=job.features.other_recipes[:1])
    # a few virtual samples are enough
    job = replace(job, features=two, data=replace(job.data, limit=8))
    result = evaluator.run(job).result
    kinds = [("onoff" in name, "upright" in name) for name in result.models]
    assert kinds == [(stage > 0, upright) for upright in (False, True) for stage in range(2)]
    rows = evaluator.labelled_rows(job)
    assert result.dimensions == rows.x.shape[1] == sum(rows.blocks)
    assert len(rows.blocks) == 8, "four models, two layers of each"
    dense = rows.x.toarray() if hasattr(rows.x, "toarray") else rows.x
    for block in np.split(dense, np.cumsum(rows.blocks)[:-1], axis=1):  # all of them weigh the same
        np.testing.assert_allclose(np.square(block).sum(1), 1 / 8, atol=1e-5)
    views = (replace(job.data, both_views=False), replace(job.data, both_views=False, deskew=True))
    trainings = [TrainingJob(view, recipe) for view in views for recipe in job.features.recipes()]
    trained = [evaluator.results.find(training).result.history for training in trainings]
    assert result.training_seconds == pytest.approx(
        sum(e.seconds for h in trained for e in h), abs=1e-3
    )
    assert value_of(result, "image_milliseconds") > 0
    assert result.virtual_samples > 0
    assert result.virtual_samples % 6 == 0
    assert evaluator.results.find(parse_job(job_table(job))).result == result


def test_a_baseline_is_fitted_once_for_images_and_their_moves(evaluator, monkeypatch):
    method, fit, fitted = KMeans(centroids=6, patches=400, iterations=2), KMeans.fit, []
    monkeypatch.setattr(
        KMeans, "fit", lambda self, training: (fitted.append(training), fit(self, training))[1]
    )
    data = DataSpec("digits", limit=30)
    svm = ClassifierSpec(dual=True, virtual_shift=1, average_views=True)
    result = evaluator.run(EvaluationJob(data, method, (0.01,), svm)).result
    assert len(fitted) == 1
    assert result.virtual_samples > 0
    training, test = data.load()
    moved_rows = evaluator._view_moved(data, method, moved_test(Move(down=1)))
    shifted = Images(moved(test[:], Move(down=1)).numpy(), test.labels, "shifted")
    np.testing.assert_allclose(moved_rows, method.describe(training, shifted)[1], atol=1e-5)


def test_a_view_that_is_known_is_not_described_again(evaluator, monkeypatch):
    data, seen, make = DataSpec("digits", limit=20), [], evaluation.Evaluator._view_rows
    monkeypatch.setattr(
        evaluation.Evaluator,
        "_view_rows",
        lambda self, view, *rest: (seen.append(view), make(self, view, *rest))[1],
    )
    for each in (data, replace(data, both_views=True)):
        evaluator.labelled_rows(EvaluationJob(each, RawPixels(), (1.0,)))
    assert seen == [data, replace(data, deskew=True)]


def test_the_views_of_an_image_stand_side_by_side(scale, evaluator):
    features = cells_of("pooling", scale)[0].jobs[0].features
    data = replace(scale.data, both_views=True)
    both = evaluator.labelled_rows(EvaluationJob(data, features, (1.0,)))
    single = [
        evaluator.labelled_rows(EvaluationJob(view, features, (1.0,))) for view in data.views()
    ]
    for name in ("x", "x_test"):
        joined, *parts = (getattr(rows, name) for rows in (both, *single))
        expected = [part.toarray() if hasattr(part, "toarray") else part for part in parts]
        assert not np.allclose(*expected)
        found = joined.toarray() if hasattr(joined, "toarray") else joined
        np.testing.assert_allclose(found * np.sqrt(2), np.concatenate(expected, 1), rtol=1e-6)
    assert both.blocks == (*single[0].blocks, *single[1].blocks)
    assert both.image_milliseconds > 0
    pixels = evaluator.labelled_rows(EvaluationJob(data, RawPixels(), (1.0,)))
    assert pixels.blocks == (784, 784), "a baseline has one block a view"
    upright = jobs_module.deskewed(data.views()[0].load()[0])
    assert evaluator.images(data.views()[1])[0].fingerprint == upright.fingerprint


def test_images_are_described_once_for_all_numbers_of_labels(scale, evaluator, monkeypatch):
    calls = []
    describe = evaluation.describe_images
    monkeypatch.setattr(
        evaluation, "describe_images", lambda *a, **k: (calls.append(1), describe(*a, **k))[1]
    )
    features = cells_of("pooling", scale)[0].jobs[0].features
    for labels in (10, 20):
        result = evaluator.run(
            FewLabelJob(DataSpec("digits", limit=100), features, (1.0,), labels)
        ).result
        assert result.draws.labels == labels
        assert len(result.draws.errors) == 10
        assert result.error == pytest.approx(np.mean(result.draws.errors))
    assert len(calls) == 2, "training and test images, once each"


def test_what_has_no_program_any_more_cannot_be_measured(scale, evaluator):
    (job,) = next(c for c in cells_of("finetuning", scale) if c.column == "all labels").jobs
    assert isinstance(job, RecordedJob)
    assert evaluator.results.name_of(job) == "finetuning/fine-tuned-all-labels-seed0"
    with pytest.raises(RunError, match="fine-tuning cannot be measured"):
        evaluator.run(job)


def test_a_known_result_is_not_measured_again(scale, evaluator, monkeypatch):
    (job,) = [
        c.jobs[0] for c in cells_of("comparison", scale) if c.name == "Raw pixels / all labels"
    ]
    first = evaluator.run(job)
    monkeypatch.setattr(evaluator, "labelled_rows", None)
    assert evaluator.run(job) is first
    assert first.result.dimensions == 784
    assert first.result.models == ()


def test_density_is_the_share_of_numbers_that_are_not_zero():
    from scipy import sparse

    x = np.array([[0.0, 1.0, 0.0, 2.0]], np.float32)
    for matrix in (x, torch.from_numpy(x), sparse.csr_array(x)):
        assert evaluation.density(matrix) == 0.5


# Models are trained once, on shared lower layers, and found again ---------------------------------


def quiet(line):
    pass


@pytest.fixture
def trainings(monkeypatch):
    """The recipes that were trained, in order."""
    train, seen = models_module.train, []
    monkeypatch.setattr(
        models_module,
        "train",
        lambda images, recipe, *a, **k: (seen.append(recipe), train(images, recipe, *a, **k))[1],
    )
    return seen


def model_store(scale, folder, stop=lambda: False):
    results = open_store(folder / "results", scale)
    return ModelStore(results, folder / "cache", "cpu", "reference", stop=stop, log=quiet)


def test_layers_are_trained_once(scale, tmp_path, trainings):
    models = model_store(scale, tmp_path)
    images = scale.data.load()[0]
    for cell in cells_of("joint", scale):
        for job in cell.jobs:
            models.get(TrainingJob(job.data, job.features.recipe), images)
    assert [recipe.model.depth for recipe in trainings] == [1, 2, 2, 2, 2], (
        "four rows, three columns, one layer 1"
    )
    assert all(recipe.learning[0].epochs == 0 for recipe in trainings[1:])


def test_a_cached_model_is_published_without_training_it_again(scale, tmp_path, trainings):
    models, images = model_store(scale, tmp_path), scale.data.load()[0]
    job = TrainingJob(scale.data, first_layers(scale.recipe(), 1))
    first = models.get(job, images)
    assert models.cached_file(job).is_file()
    assert models.published(job) is None
    again = models.get(job, images, publish=True)
    assert torch.equal(first.filters[0], again.filters[0])
    assert torch.equal(models.published(job).filters[0], first.filters[0])
    assert len(trainings) == 1


def test_a_training_that_was_cut_off_resumes_to_the_same_model(scale, tmp_path):
    job, images = TrainingJob(scale.data, scale.recipe()), scale.data.load()[0]
    uncut = model_store(scale, tmp_path / "uncut").get(job, images)
    cuts = 0
    while True:
        asked = iter([False] * 4 + [True] + [False] * 100)
        try:
            store = model_store(scale, tmp_path / "cut", stop=lambda asked=asked: next(asked))
            model = store.get(job, images)
            break
        except TrainingStopped:
            cuts += 1
    assert cuts > 1
    assert all(torch.equal(f, g) for f, g in zip(uncut.filters, model.filters, strict=True))
    histories = [
        open_store(tmp_path / name / "results", scale).find(job).result.series("cost")
        for name in ("uncut", "cut")
    ]
    assert histories[0] == histories[1]
    left = [path.name for path in (tmp_path / "cut" / "cache").iterdir()]
    assert all(name.endswith(".safetensors") for name in left), (
        "no checkpoint is left of a finished training"
    )


def test_layer_2_stands_on_the_layer_1_that_was_trained(scale, measured):
    recipe = scale.recipe()
    both = read_model(measured.folder / "models.zip", "gaussian-2layers-seed0")
    first = read_model(measured.folder / "models.zip", "gaussian-1layer-seed0")
    assert measured.name_of(TrainingJob(scale.data, recipe)) == "models/gaussian-2layers-seed0"
    assert (
        measured.name_of(TrainingJob(scale.data, first_layers(recipe, 1)))
        == "models/gaussian-1layer-seed0"
    )
    assert torch.equal(both.filters[0], first.filters[0])


def test_the_history_of_a_model_holds_all_its_layers(measured):
    trainings = [job for job in measured.records if isinstance(job, TrainingJob)]
    assert len(trainings) == 8
    for job in trainings:
        history = measured.find(job).result.history
        expected = [(1, 1), (1, 2), (2, 1), (2, 2)][: 2 * job.recipe.model.depth]
        assert [(epoch.layer, epoch.epoch) for epoch in history] == expected
        assert all(
            epoch.cost == pytest.approx(epoch.reconstruction + epoch.penalty) for epoch in history
        )
