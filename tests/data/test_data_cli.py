"""`whatwhere data`: get, list and check."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from whatwhere.cli.data import app
from whatwhere.data import cache, load
from whatwhere.data.catalogue import CATALOGUE
from whatwhere.errors import ImageError


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_list_shows_data_sets_and_folders(empty_cache: Path) -> None:
    shown = run("list").stdout
    assert "digits" in shown
    assert "not available: whatwhere data get kmnist" in shown
    data_sets = {facts["name"]: facts for facts in json.loads(run("list", "--json").stdout)}
    assert data_sets["digits"]["available"]
    assert not data_sets["mnist"]["available"]
    assert data_sets["mnist"]["folder"] == str(empty_cache / "mnist")
    assert data_sets["fashion-mnist"]["licence"] == "MIT"


def test_check_verifies_the_cache_and_reports_damage_by_its_exit_status(empty_cache: Path) -> None:
    result = run("check", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"digits": dict.fromkeys(_digit_files(), "verified")}
    (empty_cache / "mnist").mkdir(parents=True)
    (empty_cache / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(bytes(10_008))
    result = run("check")
    assert result.exit_code == 1
    assert "damaged   mnist/t10k-labels-idx1-ubyte" in result.stdout
    assert "missing   mnist/t10k-images-idx3-ubyte" in result.stdout
    assert run("check", "digits").exit_code == 0
    assert run("check", "kmnist").exit_code == 1


def _digit_files() -> list[str]:
    return [f"{split}-{kind}.idx.gz" for split in ("train", "test") for kind in ("images", "labels")]


def test_get_rejects_an_unknown_name_and_an_incomplete_folder(empty_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="no data set is called 'mnsit'"):
        run("get", "mnsit")
    with pytest.raises(ImageError, match=r"does not contain train-images-idx3-ubyte\.gz"):
        run("get", "mnist", "--from", str(tmp_path))


@pytest.mark.mnist
def test_get_takes_mnist_from_a_folder(mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    result = run("get", "mnist", "--from", str(mnist))
    assert result.exit_code == 0
    assert "4 files verified" in result.stdout
    assert "CC BY-SA 3.0" in result.stdout
    assert cache.missing_files(CATALOGUE["mnist"]) == []
    assert len(load("mnist")) == 60_000
    assert run("check", "mnist").exit_code == 0
