"""Models are trained once, on shared lower layers, and found again."""

import pytest
import torch

import reproduction.models as models_module
from reproduction.jobs import TrainingJob, first_layers
from reproduction.models import ModelStore, read_model
from reproduction.reproduce import open_store
from reproduction.table import cells_of
from whatwhere.learning import TrainingStopped


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


def model_store(scale, folder, stop=lambda: False):
    results = open_store(folder / "results", scale)
    return ModelStore(results, folder / "cache", "cpu", "reference", stop=stop, log=quiet)


def test_layers_are_trained_once(scale, tmp_path, trainings):
    models = model_store(scale, tmp_path)
    images = scale.data.load()[0]
    for cell in cells_of("joint", scale):
        for job in cell.jobs:
            models.get(TrainingJob(job.data, job.features.recipe), images)
    assert [recipe.model.depth for recipe in trainings] == [1, 2, 2, 2, 2], "four rows, three columns, one layer 1"
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
        asked = iter([False, True] + [False] * 100)
        try:
            store = model_store(scale, tmp_path / "cut", stop=lambda asked=asked: next(asked))
            model = store.get(job, images)
            break
        except TrainingStopped:
            cuts += 1
    assert cuts > 1
    assert all(torch.equal(f, g) for f, g in zip(uncut.filters, model.filters, strict=True))
    histories = [
        open_store(tmp_path / name / "results", scale).find(job).result.series("cost") for name in ("uncut", "cut")
    ]
    assert histories[0] == histories[1]
    left = [path.name for path in (tmp_path / "cut" / "cache").iterdir()]
    assert all(name.endswith(".safetensors") for name in left), "no checkpoint is left of a finished training"


def test_layer_2_stands_on_the_layer_1_that_was_trained(scale, measured):
    recipe = scale.recipe()
    both = read_model(measured.folder / "models.zip", "gaussian-2layers-seed0")
    first = read_model(measured.folder / "models.zip", "gaussian-1layer-seed0")
    assert measured.name_of(TrainingJob(scale.data, recipe)) == "models/gaussian-2layers-seed0"
    assert measured.name_of(TrainingJob(scale.data, first_layers(recipe, 1))) == "models/gaussian-1layer-seed0"
    assert torch.equal(both.filters[0], first.filters[0])


def test_the_history_of_a_model_holds_all_its_layers(measured):
    trainings = [job for job in measured.records if isinstance(job, TrainingJob)]
    assert len(trainings) == 8
    for job in trainings:
        history = measured.find(job).result.history
        expected = [(1, 1), (1, 2), (2, 1), (2, 2)][: 2 * job.recipe.model.depth]
        assert [(epoch.layer, epoch.epoch) for epoch in history] == expected
        assert all(epoch.cost == pytest.approx(epoch.reconstruction + epoch.penalty) for epoch in history)
