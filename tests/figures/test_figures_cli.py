"""`whatwhere figures` on a run's folder, and what it refuses."""

import json
import subprocess
import sys

import html5lib
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import whatwhere as ww
from figures.tiny_model import HISTORY, RESULTS, tiny_spec
from whatwhere.cli import app
from whatwhere.errors import RunError, SpecError
from whatwhere.figures import Material, draw, names, read_run
from whatwhere.figures.material import training_settings
from whatwhere.spec_toml import write_recipe


def make_run(folder, pooling: str = "gaussian"):
    spec = tiny_spec(pooling)
    settings = ww.InferenceSpec(lam=20.0, alpha=0.5, steps=3, step_size="batch")
    learning = ww.LearningSpec(inference=settings, epochs=10, reset_at=(4,))
    folder.mkdir()
    write_recipe(ww.Recipe(model=spec, learning=(learning, learning)), folder / "recipe.toml")
    ww.save(ww.DeconvNet(spec, seed=1), folder / "model.safetensors")
    (folder / "history.jsonl").write_text("".join(json.dumps(epoch) + "\n" for epoch in HISTORY))
    return folder


@pytest.fixture
def runs(tmp_path):
    pixels = np.random.default_rng(0).random((5, 10, 10), dtype=np.float32)
    np.save(tmp_path / "images.npy", pixels * (pixels > 0.5))
    return make_run(tmp_path / "first"), make_run(tmp_path / "second", "max"), tmp_path / "images.npy"


def figures(*args):
    return CliRunner().invoke(app, ["figures", *map(str, args)], catch_exceptions=False)


@pytest.mark.filterwarnings("error")
def test_all_pictures_and_the_report_of_a_run(runs):
    first, second, images = runs
    result = figures(first, "--beside", second, "--data", images, "--engine", "reference")
    assert result.exit_code == 0, result.output
    drawn = {path.name for path in (first / "figures").iterdir()}
    material = Material(read_run(first), torch.zeros(1, 1, 10, 10), (read_run(second),))
    assert drawn == {f"{name}.{'gif' if name == 'inference' else 'png'}" for name in names(material)}
    assert {"composite.png", "comparison.png", "reset.png", "cost-2.png", "where-1.png"} <= drawn
    page = (first / "report.html").read_text(encoding="utf-8")
    parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False)
    pictures = list(parser.parse(page).iter("img"))
    assert len(pictures) == len(drawn - {"composite.png"})
    assert all(len(picture.get("alt")) > 20 for picture in pictures)


def test_one_picture_alone_in_another_format(runs):
    first, _, images = runs
    result = figures(first, "--only", "filters", "--format", "svg", "--data", images, "--engine", "reference")
    assert result.exit_code == 0, result.output
    assert [path.name for path in (first / "figures").iterdir()] == ["filters.svg"]
    assert not (first / "report.html").exists()


def test_a_result_file_is_drawn_beside_itself(tmp_path):
    (tmp_path / "priors.json").write_text(json.dumps(RESULTS))
    result = figures(tmp_path / "priors.json", "--format", "pdf")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "priors.pdf").read_bytes().startswith(b"%PDF")


def test_what_cannot_be_drawn_is_refused_with_what_it_needs(runs, tmp_path):
    first, second, _ = runs
    images = torch.zeros(1, 1, 10, 10)
    material = Material(read_run(first), images)
    with pytest.raises(SpecError, match="expected one of composite"):
        draw(material, "mona-lisa")
    with pytest.raises(RunError, match="needs another run beside it"):
        draw(material, "comparison")
    with pytest.raises(RunError, match="Gaussian pooling"):
        draw(Material(read_run(second), images), "where-1")
    with pytest.raises(SpecError, match="image = 7"):
        Material(read_run(first), images, image=7)
    with pytest.raises(RunError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"has no recipe\.toml"):
        read_run(tmp_path)
    with pytest.raises(RunError, match="different names"):
        Material(read_run(first), images, (read_run(first),))


def test_pictures_use_the_settings_of_the_training(runs):
    recipe = read_run(runs[0]).recipe
    settings = training_settings(recipe, 2)
    assert (settings.lam, settings.alpha, settings.step_size) == (20.0, 0.5, "image")
    assert settings.steps == 3 * 6  # of ten epochs, six since the reset
    assert training_settings(ww.Recipe.paper(), 1).steps == 200  # of 2,500


def test_matplotlib_is_not_needed_before_figures_are():
    """The package and its command line come without it; figures says how to get it where it is missing."""
    code = (
        "import sys; sys.modules['matplotlib'] = None; import whatwhere, whatwhere.cli; whatwhere.DeconvNet\n"
        "try: whatwhere.figures\n"
        "except whatwhere.errors.MissingExtra as e: print(e)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'whatwhere[figures]'" in found
