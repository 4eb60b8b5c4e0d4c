"""`whatwhere svm`, run as a command."""

import json
from pathlib import Path

import numpy as np
import pytest

import tiny_run as tiny
from raising import raises
from tiny_run import PLAIN, whatwhere
from whatwhere.errors import ImageError, InvalidSetting, RunError, SpecError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("svm") / "run")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Labelled training and test images, and the test images without labels."""
    images, labels = tiny.bars(120, seed=1)
    np.savez(tmp_path / "train.npz", images=images, labels=labels)
    images, labels = tiny.bars(50, seed=2)
    np.save(tmp_path / "test.npy", images)
    np.savez(tmp_path / "test.npz", images=images, labels=labels)
    return tmp_path


def test_the_error_of_a_run_on_images_from_files(run: Path, files: Path) -> None:
    test = ("--test", files / "test.npz")
    output = whatwhere("svm", files / "train.npz", run, *test, "--json", *PLAIN)
    result = json.loads(output)
    assert result["images"] == 50
    assert result["error"] == result["errors"] / 50 < 0.2
    assert sum(map(sum, result["confusion"])) == 50
    assert result["interval"][0] <= result["error"] <= result["interval"][1]
    assert {trial["C"] for trial in result["validation"]} == {0.3, 3, 30}


def test_of_the_images_of_a_run_those_that_it_learned_from_count(
    files: Path, tmp_path: Path
) -> None:
    training = ("--set", "learning.each.epochs=1", "--set", "learning.each.inference.steps=2")
    training += ("--set", "model.layers=[{maps=4}]", "--set", "inference.steps=5")
    training += ("--set", "limit=60", "--quiet")
    whatwhere("train", files / "train.npz", "--out", tmp_path / "run", *training)
    for images, count in (("train.npz", 50), ("test.npz", 41)):
        words = whatwhere("svm", files / images, tmp_path / "run", "--set", "C=[1]", *PLAIN)
        assert f"({count} images)" in words


def test_a_model_file_is_classified_with_the_papers_settings(run: Path, files: Path) -> None:
    output = whatwhere(
        "svm",
        files / "train.npz",
        run / "model.safetensors",
        "--set",
        "C=[1]",
        "--json",
        *PLAIN,
    )
    assert json.loads(output)["error"] < 0.3
    assert json.loads(output)["run"].endswith("model.safetensors")


def test_output_in_words_with_a_held_out_sixth(run: Path, files: Path) -> None:
    output = whatwhere(
        "svm",
        files / "train.npz",
        run,
        "--set",
        "C=[1]",
        "--set",
        "descriptor.layers=[1, 2]",
        *PLAIN,
    )
    assert "(100 images), tested on a held-out sixth of" in output
    assert "95 % interval" in output
    assert "), C = 1\n" in output
    assert "confusion" in output


def test_progress_goes_to_standard_error_unless_quiet(run: Path, files: Path) -> None:
    from typer.testing import CliRunner

    from whatwhere.app import app

    arguments = ["svm", str(files / "train.npz"), str(run), "--set", "C=[1]", *PLAIN]
    result = CliRunner().invoke(app, arguments)
    assert "describing 100 training images" in result.stderr
    assert "describing" not in result.stdout
    assert CliRunner().invoke(app, [*arguments, "--quiet"]).stderr == ""


def test_unusable_input_raises_an_error(run: Path, files: Path) -> None:
    with pytest.raises(RunError, match="Cannot find a run"):
        whatwhere("svm", files / "train.npz", files, *PLAIN)
    with pytest.raises(ImageError, match=r"has no labels\. .* `whatwhere classify`"):
        whatwhere("svm", files / "test.npy", run, *PLAIN)
    np.save(files / "short.npy", np.arange(49))
    with pytest.raises(ImageError, match="50 images and 49 labels"):
        whatwhere("svm", files / "test.npy", run, "--labels", files / "short.npy", *PLAIN)
    np.save(files / "same.npy", np.zeros(50, int))
    with pytest.raises(ImageError, match="All 50 labels are 0; expected at least two classes"):
        whatwhere("svm", files / "test.npy", run, "--labels", files / "same.npy", *PLAIN)
    with pytest.raises(ImageError, match=r"has no labels\. .* `whatwhere classify`"):
        whatwhere("svm", files / "train.npz", run, "--test", files / "test.npy", *PLAIN)
    with raises(InvalidSetting, given={"descriptor.layers": 3}):
        whatwhere("svm", files / "train.npz", run, "--set", "descriptor.layers=[3]", *PLAIN)
    with pytest.raises(SpecError, match="C = -1"):
        whatwhere("svm", files / "train.npz", run, "--set", "C=[-1]", *PLAIN)


def test_labels_of_a_few_pictures_answer_with_the_command_that_takes_them(run, files):
    (files / "few.csv").write_text("file,class\n0,cat\n")
    with pytest.raises(SpecError, match=r"whatwhere classify .*test\.npy .* --labels .* --out OUT"):
        whatwhere("svm", files / "test.npy", run, "--labels", files / "few.csv", *PLAIN)
