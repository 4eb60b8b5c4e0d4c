"""`whatwhere demo`: the recipe, a small one end to end, its report; `make demo` itself takes minutes."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

import tiny_run as tiny
from tiny_run import whatwhere
from whatwhere.data import load
from whatwhere.errors import RunError
from whatwhere.reproduction import demo


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[demo.Demo, list[str]]:
    images = tuple(load(*tiny.bars(count, seed)) for count, seed in ((90, 1), (60, 2)))
    said: list[str] = []

    def stage(title: str, total: int):  # type: ignore[no-untyped-def]
        said.append(title)
        return nullcontext(lambda done: None)

    folder = tmp_path_factory.mktemp("demo") / "made"
    return demo.run_demo(folder, stage, engine="reference", recipe=tiny.recipe(), images=images), said  # type: ignore[arg-type]


def test_pixels_and_every_layer_are_measured(made) -> None:  # type: ignore[no-untyped-def]
    done, said = made
    assert [line.name for line in done.lines] == ["raw pixels", "layer 1", "layer 2"]
    assert all(line.score.images == 60 for line in done.lines)
    assert done.lines[0].dimensions == 100
    stored = json.loads((done.report.parent / "demo.json").read_text())
    assert [line["score"]["error"] for line in stored["lines"]] == [line.score.error for line in done.lines]
    assert any(title.startswith("learning 2 layers") for title in said)


def test_the_report_needs_nothing_beside_it(made) -> None:  # type: ignore[no-untyped-def]
    done, _ = made
    page = done.report.read_text(encoding="utf-8")
    assert page.count("<img") == 4
    assert set(re.findall(r"(?:src|href)=\"(?!data:)([^\"]*)", page)) == {"explorer.html"}
    assert (done.report.parent / "explorer.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    for line in done.lines:
        assert f"{line.score.error:.2%} ({line.score.errors} of 60" in page


def test_the_folder_is_a_run(made, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    done, _ = made
    import numpy as np

    np.save(tmp_path / "bars.npy", tiny.bars(4)[0])
    whatwhere("encode", done.report.parent, tmp_path / "bars.npy", "--out", tmp_path / "codes.npz", *tiny.PLAIN)


def test_a_demo_makes_way_for_the_next_and_others_are_left_alone(tmp_path: Path) -> None:
    demo.clear(tmp_path / "demo")
    (tmp_path / "demo" / "model.safetensors").touch()
    demo.clear(tmp_path / "demo")
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["demo.json"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(RunError, match="holds something that is not a demo"):
        whatwhere("demo", "--out", tmp_path / "mine")
    assert (tmp_path / "mine" / "thesis.tex").exists()


def test_the_recipe_trains_two_layers_and_describes_the_top_one() -> None:
    recipe = demo.demo_recipe()
    assert recipe.model.depth == 2
    assert recipe.descriptor.layers == ()
    assert recipe.inference.step_size == "image"
