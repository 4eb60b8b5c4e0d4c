"""`whatwhere info`: what it says about engines and files is true."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiny_run import whatwhere
from whatwhere.cli import app
from whatwhere.errors import ImageError, SpecError
from whatwhere.inference.engines import ENGINES
from whatwhere.inference.environment import installed_version


def test_versions_devices_and_engines() -> None:
    facts = json.loads(whatwhere("info", "--json"))
    assert facts["versions"]["whatwhere"] == whatwhere("--version").split()[1]
    assert list(facts["engines"]) == list(ENGINES)
    assert facts["engines"]["reference"] == "supported"
    assert "cpu" in facts["devices"]
    assert installed_version("no-such-package") is None
    assert "reference      supported" in whatwhere("info")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_data_sets_are_listed_and_described(empty_cache: Path) -> None:
    shown = whatwhere("info")
    assert "5,000 training and 2,000 test digits" in shown
    assert "(not available: whatwhere info kmnist --download)" in shown
    facts = json.loads(whatwhere("info", "digits", "--json"))["data set"]
    assert facts["available"]
    assert set(facts["files"].values()) == {"verified"}
    assert facts["licence"] == "CC BY-SA 3.0"
    both = json.loads(whatwhere("info", "mnist", "--json"))
    assert both["model"]["available"]
    assert not both["data set"]["available"]
    assert both["data set"]["folder"] == str(empty_cache / "mnist")
    assert "not available: whatwhere info mnist --download" in whatwhere("info", "mnist")


def test_damage_is_reported_by_the_exit_status(empty_cache: Path) -> None:
    (empty_cache / "mnist").mkdir(parents=True)
    (empty_cache / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(bytes(10_008))
    result = CliRunner().invoke(app, ["info", "mnist"])
    assert result.exit_code == 1
    assert f"damaged   {empty_cache}/mnist/t10k-labels-idx1-ubyte" in result.stdout
    assert f"missing   {empty_cache}/mnist/t10k-images-idx3-ubyte" in result.stdout


def test_download_raises_for_an_unknown_name_and_an_incomplete_folder(empty_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"'mnsit' was given; expected one of .*; did you mean 'mnist'\?"):
        whatwhere("info", "mnsit", "--download")
    with pytest.raises(ImageError, match=r"does not contain train-images-idx3-ubyte\.gz"):
        whatwhere("info", "mnist", "--download", "--from", tmp_path)
    assert whatwhere("info", "digits", "--download").count("verified  ") == 4
