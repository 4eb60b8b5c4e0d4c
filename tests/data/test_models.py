"""Models by name: their cards are true, names are accepted wherever paths are, and a large one is
downloaded."""

import hashlib
import json
import re
import warnings
from pathlib import Path

import pytest

import whatwhere as ww
from raising import Containing, raises
from tiny_run import whatwhere
from whatwhere.commands.inputs import source_of
from whatwhere.data import catalogue, models
from whatwhere.data.catalogue import CATALOGUE
from whatwhere.errors import NoSuchRun, UnknownModel
from whatwhere.model import load as load_file

NAMES = ("digits-demo", "fashion", "mnist", "photographs")


def test_the_models_of_the_package_are_known_by_name() -> None:
    assert ww.models.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_card_states_data_licence_recipe_result_and_checksum(name: str) -> None:
    entry, content = models.find(name), ww.models.path(name).read_bytes()
    assert all(entry.facts[key] for key in ("data", "licence", "recipe", "input", "result"))
    assert entry.facts["sha256"] == hashlib.sha256(content).hexdigest()
    assert entry.files[0].size == len(content) <= 1_000_000
    assert entry.files[0].name == f"{name}.safetensors"
    (figure,) = re.findall(r"!\[[^]]+\]\(([\w.-]+)\)", entry.card)
    assert (models.FOLDER / figure).read_bytes().startswith(b"\x89PNG")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # such as that of a file without a checksum
        assert ww.load(name) == load_file(models.FOLDER / f"{name}.safetensors")


@pytest.mark.parametrize("name", NAMES)
def test_a_card_says_that_the_reproduction_needs_the_source(name: str) -> None:
    recipe = models.find(name).facts["recipe"]
    if "python -m reproduction" in recipe:
        assert recipe.endswith("in a checkout of the source")


def test_a_run_or_a_file_of_that_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mnist").mkdir()  # a folder that is not a run: of images, for example
    assert ww.load("mnist") == ww.load(models.FOLDER / "mnist.safetensors")
    other = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=3),)), seed=5)
    ww.save(other, "mnist/model.safetensors")
    assert ww.load("mnist") == ww.load(Path("mnist")) == other
    ww.save(other, "fashion")
    assert ww.load("fashion") == other
    assert ww.load("photographs").spec.depth == 1


def test_an_unknown_name_is_answered_with_those_that_exist() -> None:
    known = ("digits-demo", "fashion", "mnist", "photographs")
    with raises(NoSuchRun, path="minst", remedy=Containing(", ".join(known))):
        ww.load("minst")
    with raises(UnknownModel, given="minst", known=known):
        ww.models.path("minst")


def test_runs_and_commands_accept_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ww.read_run("fashion").name == "fashion"
    assert ww.read_run("fashion").model == ww.load("fashion")
    assert (source_of(Path("fashion")), source_of(Path("mnist"))) == ("fashion-mnist", "digits")
    whatwhere("figures", "digits-demo", "--only", "filters", "--out", "drawn")
    assert Path("drawn/filters.png").exists()


def test_a_command_lists_models_with_their_numbers_and_shows_a_card() -> None:
    listed = whatwhere("info")
    for name in NAMES:
        assert re.search(rf"^  {name} ", listed, re.MULTILINE)
    assert "0.80 %" in listed
    facts = json.loads(whatwhere("info", "fashion", "--json"))["model"]
    assert facts["available"]
    assert facts["files"] == {"fashion.safetensors": "verified"}
    assert facts["sha256"] == models.find("fashion").facts["sha256"]
    # what the card says, without the marks of its table
    shown = whatwhere("info", "fashion")
    for row in re.findall(r"^\| (\w.*) \|$", ww.models.card("fashion"), re.MULTILINE):
        for cell in row.split(" | "):
            assert cell.replace("`", "") in shown


@pytest.mark.mnist
def test_download_takes_mnist_from_a_folder(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    printed = whatwhere("download", "mnist", "--from", mnist)
    assert printed.count("verified  ") == 5, "the model and the four files of the data set"
    assert "CC BY-SA 3.0" in printed
    assert catalogue.missing_files(CATALOGUE["mnist"]) == []
    assert len(ww.data.load("mnist")) == 60_000
