"""`whatwhere demo`: the recipe, a small demo from start to end, its report; `make demo` itself
takes minutes."""

import json
import re
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

import tiny_run as tiny
from raising import Containing, raises
from tiny_run import whatwhere
from whatwhere.app import demo_run as demo
from whatwhere.classification import describe_images
from whatwhere.data import load
from whatwhere.files import CannotWrite, DiskError
from whatwhere.spec import EveryBatch, InferenceSpec, LineSearch

FILES = {
    ".whatwhere.json",
    "demo.json",
    "explorer.html",
    "history.jsonl",
    "model.safetensors",
    "recipe.toml",
    "report.html",
}


SETTINGS = demo.DemoSettings(code_steps=2, engine="reference")


def images():
    return tuple(load(*tiny.bars(count, seed)) for count, seed in ((60, 1), (20, 2)))


def streaming():
    """The recipe of the tiny run, with filters that are updated after every batch."""
    recipe = tiny.recipe()
    inference = replace(recipe.learning[0].inference, step=LineSearch())
    learning = (
        replace(layer, update=EveryBatch(), inference=inference) for layer in recipe.learning
    )
    return replace(recipe, learning=tuple(learning))


def run(folder, stage=lambda title, total: nullcontext(lambda done: None), **given):
    settings = {"recipe": streaming(), "images": images(), "settings": SETTINGS, **given}
    return folder, demo.run_demo(folder, stage, **settings)


@pytest.fixture(scope="module", autouse=True)
def few_steps():
    """Of inference, for what is drawn: much of the time of so small a demo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.InferenceSpec, "coding", lambda lam: InferenceSpec(lam=lam, steps=4))
        yield


@pytest.fixture
def no_drawing(monkeypatch):
    monkeypatch.setattr(demo, "_demo_page", lambda *_: "a page")


def content_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A demo, and of every stage its title, its total and how much of it was reported as done."""
    stages = []

    @contextmanager
    def stage(title, total):
        stages.append([title, total, 0])

        def advance(pieces):
            stages[-1][2] += pieces

        yield advance

    folder = tmp_path_factory.mktemp("demo") / "made"
    return *run(folder, stage, settings=replace(SETTINGS, learned=40)), stages


def test_pixels_and_every_layer_are_measured(made):
    folder, result, _ = made
    assert [row["name"] for row in result["scores"]] == ["raw pixels", "layer 1", "layer 2"]
    assert all(row["score"]["images"] == 20 for row in result["scores"])
    assert result["scores"][0]["dimensions"] == 100
    few = result["few_labels"]
    assert [row["labels"] for row in few] == [3, 30]
    # chance: 0.67
    assert all(len(row["errors"]) == SETTINGS.draws and 0 <= row["mean"] < 0.5 for row in few)
    assert 0 < result["learning_seconds"] < result["seconds"]
    assert json.dumps(json.loads((folder / "demo.json").read_text())) == json.dumps(result)


@pytest.mark.usefixtures("no_drawing")
def test_the_metric_uses_the_descriptors_that_the_demo_made(tmp_path, monkeypatch):
    found = []
    real = demo.learn_metric

    def recorded(model, images, recipe, **settings):
        found.append((settings["described"], describe_images(model, images, recipe)))
        return real(model, images, recipe, **settings)

    monkeypatch.setattr(demo, "learn_metric", recorded)
    run(tmp_path)
    given, expected = found[0]
    assert len(given) == 60 // SETTINGS.metric_share
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def test_every_stage_reports_its_progress_to_the_end(made):
    _, _, stages = made
    assert stages[0][0] == "learning 2 layers, each from 40 images"
    assert stages[-1][0] == "drawing the report"
    for title, total, done in stages:
        assert done == total, title


def test_the_report_needs_no_other_file_and_links_to_the_explorer(made):
    folder, result, _ = made
    page = (folder / demo.REPORT).read_text(encoding="utf-8")
    assert page.count("<img") == 5 + 1, "the last step of the animation, for paper"
    assert "What and where: one image taken apart by layer 2" in page
    assert "data:image/gif;base64,R0lGOD" in page, "inference step by step"
    assert set(re.findall(r"(?:src|href)=\"(?!data:)([^\"]*)", page)) == {"explorer.html"}
    assert (folder / "explorer.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for words in (demo.few_label_errors(result), demo.svm_errors(result)):
        assert all(name in page and text in page for name, text in words.items())


def test_the_folder_is_a_run(made, tmp_path):
    folder = made[0]
    assert {path.name for path in folder.iterdir()} == FILES
    np.save(tmp_path / "bars.npy", tiny.bars(4)[0])
    out = ("--out", tmp_path / "codes.npz", "--preset", "recipe")
    whatwhere("encode", tmp_path / "bars.npy", folder, *out, *tiny.PLAIN)


@pytest.mark.usefixtures("no_drawing")
def test_a_demo_replaces_its_own_files_and_no_others_unless_interrupted(tmp_path):
    folder = tmp_path / "demo"
    _, first = run(folder)
    before = content_of(folder)
    with pytest.raises(KeyboardInterrupt):
        run(folder, interrupt_at("drawing"))
    assert content_of(folder) == before
    (folder / "thesis.tex").write_text("mine")
    (folder / "photos").mkdir()
    (folder / "photos" / "cat.png").write_text("mine")
    _, second = run(folder)
    (folder / "model.safetensors").write_bytes(b"damaged")
    with raises(CannotWrite, path=Containing("model.safetensors"), reason="exists"):
        run(folder)
    run(folder, overwrite=True)
    assert {path.name for path in folder.iterdir()} == FILES | {"thesis.tex", "photos"}
    assert (
        (folder / "thesis.tex").read_text() == (folder / "photos" / "cat.png").read_text() == "mine"
    )
    assert first["scores"] == second["scores"]
    assert (folder / "model.safetensors").stat().st_size > 100


@pytest.mark.usefixtures("no_drawing")
def test_a_file_that_is_no_result_of_a_demo_is_an_error_and_stays_as_it_was(tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    with raises(CannotWrite, path=Containing("model.safetensors"), reason="exists"):
        run(tmp_path)
    assert content_of(tmp_path) == {"model.safetensors": b"mine"}
    run(tmp_path, overwrite=True)
    assert {path.name for path in tmp_path.iterdir()} == FILES


def interrupt_at(title):
    @contextmanager
    def stage(name, total):
        if title in name:
            raise KeyboardInterrupt
        yield lambda pieces: None

    return stage


@pytest.mark.parametrize("title", ["learning", "layer 1: linear SVM", "drawing"])
def test_an_interrupted_demo_leaves_no_results(title, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "new" / "demo", interrupt_at(title))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("a file")
    for folder in (tmp_path / "file", tmp_path / "file" / "demo", tmp_path / ("x" * 300)):
        with raises(DiskError, remedy="choose another folder"):
            run(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_recipe_trains_two_layers_and_describes_the_top_one():
    recipe = demo.read_recipe("demo")
    assert recipe.model.depth == 2
    assert recipe.descriptor.layers == ()
    assert recipe.inference.step.per == "image"
    assert all(layer.streams for layer in recipe.learning)
