"""Command lines of earlier versions: each answers with the line to type now."""

import contextlib
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tiny_run as tiny
from whatwhere.app import app


def answer(words: list[str]) -> str:
    """Run a command line that is an error of usage; what it says, in one line."""
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 2
    return " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["encode", "a b.wav", "runs/ecg", "--events", "events.csv", "--json"],
            "whatwhere events 'a b.wav' runs/ecg --out events.csv --json",
        ),
        (
            ["encode", "a.wav", "m", "--events=e.csv", "--out", "codes.npz"],
            "whatwhere events a.wav m --out e.csv",
        ),
        (
            ["encode", "pictures", "m", "--out", "rows.npz", "--descriptors"],
            "whatwhere describe pictures m --out rows.npz",
        ),
        (
            ["info", "mnist", "--download", "--from", "~/mnist"],
            "whatwhere download mnist --from '~/mnist'",
        ),
        (
            ["svm", "mnist", "--device", "cpu"],
            "whatwhere svm PICTURES mnist --device cpu",
        ),
        (
            ["denoise", "a.png", "b c.png", "--noise", "0.1"],
            "whatwhere denoise a.png --out 'b c.png' --noise 0.1",
        ),
        (
            ["denoise", "a.wav", "--model", "runs/ecg", "b.wav", "--no-baseline"],
            "whatwhere denoise a.wav runs/ecg --out b.wav --no-baseline",
        ),
        (
            ["inpaint", "a.png", "alpha", "b.png", "--overwrite"],
            "whatwhere inpaint a.png --mask alpha --out b.png --overwrite",
        ),
        (
            ["inpaint", "a.csv", "nan", "b.csv", "--model=m"],
            "whatwhere inpaint a.csv m --mask nan --out b.csv",
        ),
        (
            ["figures", "runs/a", "pictures", "--only", "filters"],
            "whatwhere figures runs/a --images pictures --only filters",
        ),
        (["explore", "runs/a", "x.png"], "whatwhere explore runs/a --images x.png"),
        (
            ["distill", "runs/a", "mnist", "--steps", "3"],
            "whatwhere distill runs/a --images mnist --steps 3",
        ),
    ],
)
def test_a_form_of_earlier_answers_with_the_line_to_type(words: list[str], line: str) -> None:
    assert answer(words).endswith(f"Run: {line}")


@pytest.mark.parametrize("command", ["encode", "describe", "decode", "events", "classify"])
def test_a_model_before_the_pictures_answers_with_the_other_order(
    command: str, tmp_path: Path
) -> None:
    """Whatever the model is: a run, a file, or the name of one."""
    run = tiny.make(tmp_path / "run")
    for model in (run, run / "model.safetensors", "mnist"):
        said = answer([command, str(model), "mine", "--out", "x"])
        assert said.endswith(f"Run: whatwhere {command} mine {model} --out x")


def test_a_detector_before_the_pictures_answers_with_the_other_order(tmp_path: Path) -> None:
    detector = tmp_path / "detector"  # a file of any name: its first bytes tell
    detector.write_bytes((2).to_bytes(8, "little") + b"{}")
    said = answer(["anomaly", "score", str(detector), "new", "--out=x"])
    assert said.endswith(f"Run: whatwhere anomaly score new {detector} --out x")


def test_a_name_that_is_a_data_set_and_a_model_is_read_in_the_order_of_today() -> None:
    """`encode mnist mnist` is the same in both orders: another error answers."""
    result = CliRunner().invoke(app, ["encode", "mnist", "mnist", "--out", "x", "--shard", "2/1"])
    assert "has changed" not in result.stderr


def test_the_page_of_old_forms_has_the_lines_that_commands_answer(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs/reference/was_is.md"
    rows = re.findall(r"^\| `whatwhere (.*?)` \| `(whatwhere .*?)` \|$", page.read_text(), re.M)
    assert len(rows) > 10
    tiny.make(tmp_path / "runs" / "a")
    (tmp_path / "detector").write_bytes((2).to_bytes(8, "little") + b"{}")
    with contextlib.chdir(tmp_path):
        for was, now in rows:
            assert answer(was.split()).endswith(f"Run: {now}"), was
