"""One reader for run folders and model files; what does not belong together raises an error."""

import os
from pathlib import Path

import pytest

import tiny_training as tiny
from whatwhere.errors import RunError
from whatwhere.learning import TrainingOptions, read_run, train
from whatwhere.learning.reports import EpochReport
from whatwhere.model import DeconvNet, save
from whatwhere.spec import LayerSpec, ModelSpec, Recipe
from whatwhere.spec.toml import write_recipe


@pytest.fixture
def run(tmp_path) -> Path:
    tiny.train(tiny.recipe(), tiny.images(), tmp_path / "digits")
    return tmp_path / "digits"


def test_a_run_folder(run):
    trained = read_run(run)
    assert (trained.name, trained.recipe) == ("digits", tiny.recipe())
    assert [(report.layer, report.epoch) for report in trained.history] == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert all(isinstance(report, EpochReport) for report in trained.history)
    assert trained.model.spec == tiny.recipe().model
    assert repr(trained).startswith("TrainedRun('digits', Recipe(layers of 2 and 3 maps")


def test_a_model_file_has_the_papers_recipe_with_its_own_model(run):
    trained = read_run(run / "model.safetensors")
    assert trained.recipe == Recipe.paper(tiny.recipe().model)
    assert trained.history == ()
    assert tiny.same_filters(trained.model, read_run(run).model)


def test_a_folder_saved_by_hand_needs_no_history(tmp_path):
    save(DeconvNet(tiny.recipe().model), tmp_path / "model.safetensors")
    write_recipe(tiny.recipe(), tmp_path / "recipe.toml")
    assert read_run(tmp_path).history == ()


@pytest.mark.parametrize("content", ["", "seed = 0"])
def test_an_emptied_recipe_does_not_mean_the_papers_settings(content, run):
    (run / "recipe.toml").write_text(content)
    with pytest.raises(RunError, match=r"recipe\.toml lacks model, learning.*restore the file"):
        read_run(run)


def test_an_emptied_recipe_of_the_papers_own_model(tmp_path):
    """The model is the paper's, so that only the missing settings can give it away."""
    save(DeconvNet(ModelSpec.paper()), tmp_path / "model.safetensors")
    (tmp_path / "recipe.toml").write_text("")
    with pytest.raises(RunError, match="lacks model, learning"):
        read_run(tmp_path)


def test_a_test_time_setting_may_be_edited(run):
    text = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(text.replace("lam = 5.0", "lam = 7.0"))
    assert read_run(run).recipe.inference.lam == 7.0


def test_a_recipe_of_another_model_is_named(run):
    save(DeconvNet(ModelSpec(layers=(LayerSpec(maps=2, filter_size=3),))), run / "model.safetensors")
    with pytest.raises(
        RunError, match=r"recipe\.toml does not match model\.safetensors: .*filter_size was 3 and is now 2"
    ):
        read_run(run)


GOOD = b'{"layer": 1, "epoch": 1, "reconstruction": 3.0, "penalty": 4.0, "nonzeros": 2.5}'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "line 1: not JSON"),
        (GOOD + b'\n{"lay', "line 2: not JSON"),
        (GOOD + b"\n\n[1, 2]\n", "line 3: no number for layer, epoch"),
        (GOOD.replace(b"3.0", b"null"), "line 1: no number for reconstruction"),
        (GOOD.replace(b"4.0", b"NaN"), "line 1: no number for penalty"),
        (GOOD.replace(b"4.0", b"1" + b"0" * 400), "line 1: no number for penalty"),
        (GOOD.replace(b"4.0", b"1" * 5000), "too many digits"),
        (GOOD.replace(b"}", b', "seconds": "x"}'), "line 1: no number for seconds"),
        (GOOD.replace(b"}", b', "engine": [1]}'), "line 1: no text for engine"),
        (GOOD + b"\xff", "not UTF-8"),
        (b"[" * 100_000, "line 1: not JSON"),
    ],
)
def test_a_damaged_history_is_named(content, message, run):
    (run / "history.jsonl").write_bytes(content)
    with pytest.raises(RunError, match=rf"history\.jsonl is damaged: .*{message}.*train --resume .* writes it again"):
        read_run(run)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_history_is_read_from_a_regular_file_of_limited_size(run, monkeypatch):
    (run / "history.jsonl").write_bytes(GOOD)
    monkeypatch.setattr("whatwhere.learning.run_reader.LONGEST_HISTORY", 10)
    with pytest.raises(RunError, match=r"history\.jsonl cannot be read: The file has more than 10 bytes"):
        read_run(run)
    for make in (os.mkfifo, os.mkdir):
        (run / "history.jsonl").unlink()
        make(run / "history.jsonl")
        with pytest.raises(RunError, match=r"history\.jsonl cannot be read: A (pipe|folder)"):
            read_run(run)


def test_a_history_needs_no_more_than_the_costs(run):
    (run / "history.jsonl").write_bytes(GOOD)
    assert read_run(run).history[0].cost == 7.0


def test_resuming_writes_a_damaged_history_again(run):
    (run / "history.jsonl").write_bytes(b"{")
    tiny.train(tiny.recipe(), tiny.images(), run, resume=True)
    assert len(read_run(run).history) == 4


@pytest.mark.parametrize("name", ["nowhere", "x" * 300, "a\0b"])
def test_what_is_not_there_is_named(name, tmp_path):
    with pytest.raises(RunError, match="was given as a run folder or a model file; there is no such folder"):
        read_run(tmp_path / name)


def test_names_are_quoted_and_escaped_in_messages(tmp_path):
    (tmp_path / "a b").mkdir()
    with pytest.raises(RunError, match=r"there is no recipe.toml.* --out '.*/a b'"):
        read_run(tmp_path / "a b")
    with pytest.raises(RunError) as error:
        read_run(tmp_path / "bell\a\x1b[2J")
    assert str(error.value).isprintable()


def test_the_repr_of_a_trained_model(run):
    options = TrainingOptions(engine="reference", device="cpu")
    trained = train(tiny.recipe(), tiny.images(), options=options)
    cost = trained.history[-1].cost
    assert repr(trained).endswith(f"4 epochs, cost {cost:.4g} per image)")
