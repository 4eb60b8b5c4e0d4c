"""`whatwhere label` as a command: its pictures, its exports, its errors."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import tiny_run as tiny
from programs import fail_without
from tiny_run import whatwhere
from tiny_training import process
from whatwhere.app import app
from whatwhere.commands.inputs import source_of
from whatwhere.data.mixed import PicturesBecomeSquares
from whatwhere.errors import InvalidSetting, RunError, SpecError
from whatwhere.labelling.command import _LabelViews, read_to_label
from whatwhere.labelling.session import Labelling
from whatwhere.learning import TrainingOptions, train


def test_label_scales_pictures_to_the_given_size_and_then_as_its_model(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name, size in (("a", (12, 30)), ("b", (40, 50)), ("c", (20, 20))):
        Image.effect_noise(size, 80).save(folder / f"{name}.png")
    out = tmp_path / "labels.csv"
    with pytest.warns(UserWarning, match="like the smallest") as caught:
        assert read_to_label(str(folder), None, out, None).shape == (1, 12, 12)
    assert str(caught[0].message).endswith(
        "12 pixels are few, which costs accuracy. Stop (Ctrl-C) and run again with --size 64 and"
        " another --out, or leave out the smallest picture."
    )
    squares = read_to_label(str(folder), None, out, 16)
    assert squares.shape == (1, 16, 16)

    on_cpu = TrainingOptions(engine="reference", device="cpu")
    train(squares, tiny.recipe(), tmp_path / "labels.run", options=on_cpu)
    assert source_of(tmp_path / "labels.run") == str(folder)
    with pytest.warns(UserWarning, match="16 pixels, like the pictures that the run learned from"):
        assert read_to_label(str(folder), None, out, None).shape == (1, 16, 16)
    with pytest.warns(PicturesBecomeSquares):
        session = Labelling(folder, labels=out, options=on_cpu)
    assert session.images is not None
    assert session.images.shape == (1, 16, 16)

    with pytest.raises(SpecError, match=r"learned from squares of 16 pixels\. For --size 20"):
        whatwhere("label", folder, "--size", "20", "--out", out)
    with pytest.raises(InvalidSetting) as unused:
        read_to_label("digits", None, tmp_path / "others.csv", 16)
    assert "--size" in unused.value.given


@pytest.mark.parametrize("others", [0, 2])
def test_an_export_counts_the_imported_labels_and_estimates_the_error(
    others: int, tmp_path: Path
) -> None:
    run = tiny.make(tmp_path / "run")
    folder = tmp_path / "pictures"
    folder.mkdir()
    images, labels = tiny.bars(40, seed=3)
    for number, image in enumerate(images):
        Image.fromarray((255 * image.clip(0, 1)).astype(np.uint8)).save(folder / f"{number}.png")
    lines = [f"{number}.png,kind {labels[number]}" for number in range(8)]
    lines += [f"{number}.png,kind 0" for number in range(100, 100 + others)]
    few = tmp_path / "few.csv"
    few.write_text("\n".join(["file,class", *lines]))
    arguments = ["label", folder, run, "--labels-from", few, "--out", tmp_path / "labels.csv"]
    arguments += ["--export", tmp_path / "classes.csv", "--set", "engine=reference"]
    arguments += ["--set", "device=cpu", "--set", "copies=2"]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    counted = [str(one.message) for one in caught if "Imported" in str(one.message)]
    if others:
        assert counted == ["Imported 8 of 10 labels; no picture is called '100.png' or '101.png'."]
        assert "Imported" not in result.stderr
    else:
        assert counted == []
        assert "Imported 8 labels." in result.stderr.splitlines()
    assert "classes.csv: the classes of 40 pictures" in result.stdout
    assert re.search(
        r"^(About )?\d+( to \d+)? % of the predicted classes are wrong", result.stdout, re.M
    )


def test_a_missing_folder_to_label_is_an_error_before_scikit_learn_is_imported() -> None:
    ended = process(fail_without, "sklearn", ["label", "no-such-folder"])
    ended.join()
    assert ended.exitcode == 0


@pytest.mark.parametrize("name", ["labels.csv", "predictions.csv", "few.csv", "other.json"])
def test_an_export_never_replaces_a_table_of_labels_nor_a_file_without_overwrite(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(3):
        Image.effect_noise((12, 12), 80).save(folder / f"{number}.png")
    written = tmp_path / name
    written.write_text("file,class\n0.png,cat\n")
    arguments = ["--labels-from", tmp_path / "few.csv", "--out", tmp_path / "labels.csv"]
    for options in ([], ["--overwrite"]):
        if options and name == "other.json":
            continue
        with pytest.raises(RunError):
            whatwhere("label", folder, *arguments, "--export", written, *options)
        assert written.read_text() == "file,class\n0.png,cat\n"
    assert not (tmp_path / "labels.run").exists(), "nothing was learned first"


def test_without_a_folder_the_page_waits_for_pictures(tmp_path: Path) -> None:
    """Pictures of an earlier session stay: the next folder gets a number."""
    (tmp_path / "dropped").mkdir()
    command = [sys.executable, "-m", "whatwhere", "label"]
    program = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BROWSER": "true"},
    )
    assert program.stdout is not None
    url = program.stdout.readline().strip()
    words = program.stdout.readline()
    assert "dropped-2 keeps them, and dropped-2.csv your labels" in words
    state = json.loads(urllib.request.urlopen(f"{url}state").read())
    assert state == {"drop": "dropped-2", "count": 0}
    program.send_signal(signal.SIGINT)
    assert program.wait(30) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["dropped"]
    with pytest.raises(SpecError, match="need pictures"):
        whatwhere("label", "--export", tmp_path / "classes.csv")


def test_a_person_chooses_the_views_of_a_page() -> None:
    usual = _LabelViews().plain().views
    assert [view.name for view in usual] == ["colour", "edges"]
    chosen = _LabelViews(features="own, edges").plain().views
    assert chosen == (usual[1],)
    with pytest.raises(SpecError, match="Unknown view 'shapes'"):
        _LabelViews(features="shapes").plain()
