"""`whatwhere finetune`, run as a command."""

import inspect
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import tiny_run as tiny
from tiny_run import whatwhere
from whatwhere.cli.finetune import finetune
from whatwhere.errors import RunError, SpecError
from whatwhere.finetuning import FinetuneSpec, load_finetuned
from whatwhere.model import load, save

FAST = ("--steps", 1, "--distill", 0, "--epochs", 1, "--batch-size", 10, "--device", "cpu")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, labelled training images, and test images with their labels in another file."""
    folder = tmp_path_factory.mktemp("finetune")
    tiny.make(folder / "run")
    for name, count, seed in (("train", 60, 1), ("test", 30, 2)):
        images, labels = tiny.bars(count, seed)
        np.savez(folder / f"{name}.npz", images=images, labels=labels)
    return folder


def test_it_writes_a_folder_and_reports_the_test_error(files: Path, tmp_path: Path) -> None:
    out, test = tmp_path / "tuned", ("--test", files / "test.npz")
    output = whatwhere(
        "finetune", files / "run", files / "train.npz", *test, "--out", out, "--few", 30, "--json", *FAST
    )
    result = json.loads(output)
    assert result["labels"] == 30
    assert result["images"] == 30
    assert result["cost"]["before"] > 0 < result["cost"]["after"]
    images, labels = tiny.bars(30, 2)
    predicted = load_finetuned(out).predict(tiny.np_images(images))
    assert result["errors"] == (predicted != labels).sum()
    assert load(out) != load(files / "run")
    assert "error " in whatwhere("classify", out, files / "train.npz", *test, "--steps", "learned", *tiny.PLAIN)
    with pytest.raises(RunError, match=r"holds model\.safetensors already"):
        whatwhere("finetune", files / "run", files / "train.npz", "--out", out, *FAST)


def test_a_model_file_and_lines_for_people(files: Path, tmp_path: Path) -> None:
    save(load(files / "run"), tmp_path / "model.safetensors")
    output = whatwhere(
        "finetune",
        tmp_path / "model.safetensors",
        files / "train.npz",
        "--out",
        tmp_path / "a",
        "--reconstruction",
        0.01,
        *FAST,
    )
    assert "tested on a held-out sixth" in output
    assert "fine-tuned" in output
    assert "cost of a test image after 1 steps" in output


def test_its_defaults_are_those_of_the_library() -> None:
    settings = asdict(FinetuneSpec())
    defaults = {name: p.default for name, p in inspect.signature(finetune).parameters.items() if name in settings}
    assert defaults == {name: settings[name] for name in defaults} | {"epochs": None}
    assert len(defaults) == 8


def test_settings_that_are_not_possible(files: Path, tmp_path: Path) -> None:
    for option, value in (("--dropout", 1), ("--learning-rate", 0)):
        with pytest.raises(SpecError, match=option[2:].replace("-", "_")):
            whatwhere("finetune", files / "run", files / "train.npz", "--out", tmp_path / "b", option, value, *FAST)
    assert not (tmp_path / "b").exists()
