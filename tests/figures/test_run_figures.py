"""`whatwhere figures`: on run folders and model files, what it writes, and its errors."""

import base64
import errno
import json
import os
import re
from collections import Counter

import html5lib
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from typer.testing import CliRunner

import whatwhere as ww
from figures.tiny_model import HISTORY, tiny_spec
from raising import Containing, raises
from whatwhere.app import app
from whatwhere.app.figures import _choose_images
from whatwhere.data import load
from whatwhere.errors import RunError, UnknownChoice
from whatwhere.figures import RunFigures
from whatwhere.figures.run_figures import Section, _training_settings, report
from whatwhere.files import RECORD, CannotWrite, DiskError
from whatwhere.learning import read_run
from whatwhere.spec import EveryEpoch, LineSearch
from whatwhere.spec.toml import to_toml


def make_run(folder, pooling: str = "gaussian"):
    spec = tiny_spec(pooling)
    settings = ww.InferenceSpec(
        lam=20.0, penalty=ww.Power(alpha=0.5), steps=3, step=LineSearch(per="batch")
    )
    learning = ww.LearningSpec(inference=settings, epochs=10, update=EveryEpoch(reset_at=(4,)))
    folder.mkdir()
    (folder / "recipe.toml").write_text(
        to_toml(ww.Recipe(model=spec, learning=(learning, learning)))
    )
    ww.save(ww.DeconvNet(spec, seed=1), folder / "model.safetensors")
    (folder / "history.jsonl").write_text(
        "".join(json.dumps({"format": "whatwhere history 1", **epoch}) + "\n" for epoch in HISTORY)
    )
    return folder


@pytest.fixture
def runs(tmp_path):
    pixels = np.random.default_rng(0).random((5, 10, 10), dtype=np.float32)
    np.save(tmp_path / "images.npy", pixels * (pixels > 0.5))
    return (
        make_run(tmp_path / "first"),
        make_run(tmp_path / "second", "max"),
        tmp_path / "images.npy",
    )


def figures(run, images, *options):
    given = map(str, (run, "--images", images, *options))
    return CliRunner().invoke(app, ["figures", *given], catch_exceptions=False)


@pytest.mark.filterwarnings("error")
def test_all_figures_and_the_report_of_a_run(runs):
    first, _, images = runs
    result = figures(first, images, "--set", "engine=reference")
    assert result.exit_code == 0, result.output
    drawn = {path.name for path in (first / "figures").iterdir()} - {RECORD}
    names = RunFigures(read_run(first), torch.zeros(1, 1, 10, 10)).names
    assert drawn == {f"{name}.{'gif' if name == 'inference' else 'png'}" for name in names} | {
        "report.html"
    }
    assert {"composite.png", "planes-2.png", "samples-1.png", "cost-2.png", "where-1.png"} <= drawn
    page = (first / "figures" / "report.html").read_text(encoding="utf-8")
    parser = html5lib.HTMLParser(
        html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False
    )
    pictures = list(parser.parse(page).iter("img"))
    counts = Counter(epoch.layer for epoch in read_run(first).history)
    short = {f"cost-{k}.png" for k, count in counts.items() if count < 3}
    # an animation is followed by its last step, for paper
    assert len(pictures) == len(drawn - {"composite.png", "report.html"} - short) + 1
    assert [one.get("class") for one in pictures if one.get("class")] == ["on-screen", "in-print"]
    assert all(len(picture.get("alt")) > 10 for picture in pictures)


def test_a_stopped_command_leaves_a_report_of_the_figures_that_are_ready(runs, monkeypatch):
    first, _, images = runs
    assert RunFigures(read_run(first), torch.zeros(1, 1, 10, 10)).names[-1] == "inference"
    monkeypatch.setattr(RunFigures, "names", ["filters", "planes-2", "inference"])

    def stop(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("whatwhere.figures.run_figures.trace", stop)
    result = figures(first, images, "--set", "engine=reference")
    assert result.exit_code == 130
    assert "figure 2 of 3: planes-2" in result.stderr
    page = (first / "figures" / "report.html").read_text(encoding="utf-8")
    assert (page.count("<section>"), page.count("<img")) == (2, 2)


def test_the_reconstructions_have_the_name_of_the_run_and_their_error(runs):
    first, _, images = runs
    pixels = load(str(images)).pixels
    section = RunFigures(read_run(first), torch.as_tensor(pixels), engine="reference").draw(
        "reconstructions"
    )
    heading = section.figure.texts[0].get_text()
    assert re.match(r"first, layer 2: over 5 images, mean squared error per pixel 0\.\d+", heading)


def test_one_figure_in_another_format(runs):
    first, _, images = runs
    result = figures(
        first, images, "--only", "filters", "--format", "svg", "--set", "engine=reference"
    )
    assert result.exit_code == 0, result.output
    assert {path.name for path in (first / "figures").iterdir()} == {"filters.svg", RECORD}


def test_an_existing_report_of_the_run_is_kept(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFigures, "names", ["filters"])  # the others take their time
    first, _, images = runs
    (first / "report.html").write_text("the error table of a demo")
    for out in ((), ("--out", tmp_path / "elsewhere")):
        assert figures(first, images, "--set", "engine=reference", *out).exit_code == 0
    assert (first / "report.html").read_text() == "the error table of a demo"
    assert (first / "figures" / "report.html").is_file()
    assert (tmp_path / "elsewhere" / "report.html").is_file()


def test_a_model_file_is_drawn_next_to_itself(runs):
    first, _, images = runs
    result = figures(first / "model.safetensors", images, "--only", "filters")
    assert result.exit_code == 0, result.output
    assert (first / "figures" / "filters.png").is_file()
    run = read_run(first / "model.safetensors")
    assert (run.name, run.history) == ("model", ())
    assert run.recipe.learning == ww.Recipe.paper().learning


def test_progress_is_shown_on_standard_error(runs):
    first, _, images = runs
    arguments = (first, images, "--only", "reconstructions", "--set", "engine=reference")
    assert "inferring 5 images with first, layer 2" in figures(*arguments).stderr
    assert figures(*arguments, "--quiet").stderr == ""


def test_a_folder_that_cannot_be_written_raises_an_error_before_inference(
    runs, monkeypatch, tmp_path
):
    first, _, images = runs
    (tmp_path / "file").touch()
    monkeypatch.setattr("whatwhere.figures.run_figures.infer", None)
    with raises(DiskError, reason=os.strerror(errno.ENOTDIR), remedy="choose another folder"):
        figures(first, images, "--out", tmp_path / "file" / "figures")


def test_a_file_that_cannot_be_written_raises_an_error(runs, tmp_path):
    first, _, images = runs
    (tmp_path / "out" / "filters.png").mkdir(parents=True)
    with raises(CannotWrite, path=Containing("filters.png"), reason="folder"):
        figures(first, images, "--only", "filters", "--out", tmp_path / "out")


def test_dollar_signs_in_the_name_of_a_run_are_not_mathematics(tmp_path):
    figure = ww.figures.cost(dict.fromkeys(("from $5 to $\\frac", "another"), HISTORY), layer=2)
    ww.figures.save(figure, tmp_path / "cost.svg")
    assert "from $5 to $\\frac" in (tmp_path / "cost.svg").read_text()


def test_a_figure_that_a_run_does_not_have_raises_an_error_that_names_those_it_has(runs, tmp_path):
    first, second, _ = runs
    images = torch.zeros(1, 1, 10, 10)
    with raises(UnknownChoice, kind="figure of first", given="mona-lisa"):
        RunFigures(read_run(first), images).draw("mona-lisa")
    with raises(UnknownChoice, kind="figure of second", given="where-1"):
        RunFigures(read_run(second), images).draw("where-1")
    with pytest.raises(RunError, match="no such folder"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"there is no recipe\.toml and no model\.safetensors in it"):
        read_run(tmp_path)


def test_the_image_that_is_decomposed_has_features(runs):
    images = torch.zeros(4, 1, 10, 10)
    images[2, 0, 2:8, 5] = 1
    drawing = RunFigures(
        read_run(runs[0]), images, inference=ww.InferenceSpec(lam=50.0, steps=5), engine="reference"
    )
    latents = drawing.latents(2)
    assert (latents.p[2] != 0).any()
    assert not (latents.p[0] != 0).any()
    assert drawing.shown == 2


def test_two_runs_decompose_the_same_image_if_it_is_given_alone(runs, tmp_path):
    first, second, images = runs
    np.save(tmp_path / "one.npy", np.load(images)[2:3])
    given = _choose_images(load(str(tmp_path / "one.npy")))
    for run in (first, second):
        assert RunFigures(read_run(run), given, engine="reference").shown == 0
        result = figures(run, tmp_path / "one.npy", "--only", "decomposition-2")
        assert result.exit_code == 0, result.output
        assert "inferring 1 image with" in result.stderr


def test_the_words_of_a_decomposition_follow_the_pooling(runs):
    first, second, _ = runs
    images = torch.rand(1, 1, 10, 10)
    gaussian, largest = (
        RunFigures(read_run(run), images, engine="reference").draw("decomposition-2")
        for run in (first, second)
    )
    assert gaussian.heading.startswith("What and where: ")
    assert "ellipses" in gaussian.text
    assert largest.heading.startswith("What: ")
    assert "ellipses" not in largest.text


def test_the_text_of_samples_explains_grey_blocks(runs):
    drawing = RunFigures(read_run(runs[0]), torch.rand(2, 1, 10, 10), engine="reference")
    for name in ("composite", "samples-1"):
        assert "a map without any is grey as a whole" in drawing.draw(name).text


def test_a_model_that_ships_with_a_recipe_is_drawn_with_it():
    assert read_run("photographs").recipe == ww.read_recipe("photographs")
    by_the_images = ww.override(ww.Recipe.paper(), {"descriptor": {"where": "auto"}})
    assert read_run("mnist").recipe == by_the_images


def test_figures_use_the_settings_of_the_training(runs):
    recipe = read_run(runs[0]).recipe
    settings = _training_settings(recipe, 2)
    assert (settings.lam, settings.penalty) == (20.0, ww.Power(alpha=0.5))
    assert settings.step == LineSearch()
    assert settings.steps == 3 * 6  # of ten epochs, six since the reset
    assert _training_settings(ww.Recipe.paper(), 1).steps == 200  # of 2,500


# The report: valid HTML without external files, alternative text for every figure, legible on a pho


SECTIONS = [
    Section("First <heading>", "One.\n\nTwo <b>three</b> & four.", Figure(figsize=(2, 1))),
    Section("Facts", facts={"λ": "5", "a <b>": "c & d"}),
]


def parse(page: str):
    """The tree of a page; anything that violates the HTML standard is an error."""
    return html5lib.HTMLParser(
        html5lib.getTreeBuilder("etree"), strict=True, namespaceHTMLElements=False
    ).parse(page)


def test_the_page_is_valid_and_contains_the_sections():
    tree = parse(report("A run", SECTIONS, lead="Lead.", facts={"seed": "0"}))
    assert tree.find("head/title").text == "A run"
    assert [h.text for h in tree.iter("h2")] == ["First <heading>", "Facts"]
    assert [p.text for p in tree.iter("p")] == ["Lead.", "One.", "Two <b>three</b> & four."]
    assert [dd.text for dd in tree.iter("dd")] == ["0", "5", "c & d"]


def test_the_result_has_bars_and_the_page_begins_with_its_links():
    section = Section("Errors", facts={"a": "4 %", "b": "1 %"}, bars={"a": 0.04, "b": 0.01})
    page = report("A run", [section], links={"Open the explorer": "explorer.html"})
    assert re.findall(r'<rect width="([\d.]+)"', page) == ["100.0", "25.0"]
    assert '<section class="without-figure">' in page, "in full width"
    assert page.index('class="button" href="explorer.html"') < page.index("<h2>")


def test_the_parser_rejects_an_invalid_page():
    with pytest.raises(html5lib.html5parser.ParseError):
        parse(report("A run", SECTIONS).replace("</section>", "</sectio>", 1))


def test_every_figure_has_alternative_text():
    tree = parse(report("A run", SECTIONS))
    pictures = list(tree.iter("img"))
    assert [picture.get("alt") for picture in pictures] == ["First <heading>"]


def test_the_page_needs_no_other_file():
    """Figures are embedded; there are no scripts, links or imports."""
    page = report("A run", SECTIONS)
    tree = parse(page)
    sources = [e.get("src") for e in tree.iter() if e.get("src")]
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert base64.b64decode(sources[0].split(",")[1]).startswith(b"\x89PNG")
    assert not [e for e in tree.iter() if e.get("href") or e.tag in ("script", "link", "iframe")]
    assert not re.search(r"@import|url\(|https?:", page)


def test_the_page_fits_a_phone():
    page = report("A run", SECTIONS)
    viewport = next(m for m in parse(page).iter("meta") if m.get("name") == "viewport")
    assert "width=device-width" in viewport.get("content")
    assert re.search(r"img \{[^}]*max-width: 100%", page)


@pytest.mark.parametrize(
    ("shape", "count"), [((28, 28), 127), ((3, 32, 32), 32), ((3, 64, 64), 24), ((5, 5), 200)]
)
def test_fewer_images_are_inferred_if_they_are_large(shape, count, tmp_path):
    for images in (300, 9):
        np.save(tmp_path / "a.npy", np.zeros((images, *shape), np.float32))
        assert len(_choose_images(load(tmp_path / "a.npy"))) == min(count, images)
