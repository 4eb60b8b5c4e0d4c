"""The program itself: its version, how it ends, and what its messages look like."""

import io
import os
import re
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

import tiny_run as tiny
import whatwhere as ww
from programs import start
from raising import raises
from tiny_run import PLAIN, whatwhere
from whatwhere import app as assembled
from whatwhere.app import app
from whatwhere.commands.builder import Program
from whatwhere.data.catalogue import absolute_source
from whatwhere.errors import (
    ConvergenceWarning,
    NoSuchImages,
    RunError,
    SlowEngineWarning,
    UnusableImageFile,
    WhatwhereError,
)
from whatwhere.files import CannotWrite
from whatwhere.learning.run_folder import NoRun


def test_version() -> None:
    assert whatwhere("--version") == f"whatwhere {ww.__version__}\n"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> object:
    """`program(function)` runs `main` with a program that calls the function, and returns its exit
    status."""
    monkeypatch.setattr("warnings.showwarning", None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)

    def run(function: object) -> object:
        monkeypatch.setattr(assembled, "app", function)
        with pytest.raises(SystemExit) as ended:
            assembled.main()
        return ended.value.code

    return run


def test_errors_are_messages_without_control_characters(
    program, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise RunError("a\x1b[2Jb [/b] is no run\nchoose another")

    assert program(fail) == 2
    assert capsys.readouterr().err == "Error: a\\x1b[2Jb [/b] is no run\nchoose another\n"


def test_an_unforeseen_disk_error_is_a_message(program, capsys: pytest.CaptureFixture[str]) -> None:
    assert program(lambda: Path("no\x07where").read_bytes()) == 2
    assert capsys.readouterr().err == "Error: No such file or directory: no\\x07where\n"


def test_three_interrupts_end_the_program_quietly() -> None:
    """One while it works, one while it cleans up, one while Python exits."""
    code = """
import atexit, sys, time
from whatwhere import __main__
from whatwhere import app as assembled

def pause(word):
    print(word, flush=True)
    time.sleep(1 if word == "exiting" else 30)

@assembled.app.command("wait")
def wait():
    try:
        pause("working")
    finally:
        pause("cleaning")

atexit.register(pause, "exiting")
sys.argv = ["whatwhere", "wait"]
__main__.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for word in ("working", "cleaning", "exiting"):
        assert process.stdout.readline() == f"{word}\n"
        process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert errors == ""


def test_a_page_that_still_computes_ends_quietly() -> None:
    """A request is answered in a daemon thread, which may be within a compiler or torch when the
    program ends."""
    code = """
import threading
import torch
from whatwhere import __main__
from whatwhere import app as assembled
from whatwhere.html.server import PageServer

def compute():
    matrix = torch.rand(300, 300)
    while True:
        torch.linalg.svd(matrix)

def run():
    with PageServer(lambda path: None) as server:
        threading.Thread(target=compute, daemon=True).start()
        try:
            print("serving", flush=True)
            server.serve_forever()
        except KeyboardInterrupt:
            print("ended")

assembled.main = run
__main__.main()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "serving\n"
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=120)
    assert (process.returncode, printed, errors) == (0, "ended\n", "")


def test_markup_in_a_path_is_shown_as_it_is(tmp_path: Path) -> None:
    run = tiny.make(tmp_path / "[red]run")
    source = tmp_path / "a[" / "b].npy"
    source.parent.mkdir()
    np.save(source, tiny.bars(3)[0])
    printed = whatwhere(
        "encode", source, run, "--out", tmp_path / "c[" / "b].npz", "--preset", "recipe", *PLAIN
    )
    assert "c[/b].npz: codes of 3 images" in printed


def test_a_run_records_names_as_they_are_and_paths_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    assert absolute_source("digits") == "digits"
    assert absolute_source("./digits") == str(tmp_path / "digits")


def test_a_command_never_writes_onto_what_it_reads(tmp_path: Path) -> None:
    """Not even with --overwrite; without it, not onto any file that is no result of its own
    folder."""
    run, pictures = tiny.make(tmp_path / "run"), tmp_path / "pictures"
    pictures.mkdir()
    for i in range(3):
        Image.fromarray(np.full((10, 10), 60 * i, np.uint8)).save(pictures / f"{i}.png")
    codes = ("--out", tmp_path / "codes.npz", "--where", "--preset", "recipe")
    whatwhere("encode", pictures, run, *codes, *PLAIN)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    commands = [
        ("denoise", pictures, "--out", pictures),
        ("denoise", pictures / "0.png", "--out", pictures / "0.png"),
        ("anomaly", "fit", pictures, "--out", pictures / "0.png"),
        ("encode", pictures, run, "--out", run / "model.safetensors"),
        ("encode", pictures, run, "--out", pictures / "0.png"),
        ("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "codes.npz"),
        ("explore", run, "--images", pictures, "--out", run / "recipe.toml"),
    ]
    for command in commands:
        with raises(CannotWrite, reason="read"):
            whatwhere(*command, "--overwrite")
    for command in (*commands, ("decode", tmp_path / "codes.npz", run, "--out", pictures)):
        with pytest.raises(CannotWrite):
            whatwhere(*command)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "decoded")
    # its own results again
    whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "decoded")


@pytest.mark.parametrize("delay", [0.1, 0.8])
def test_a_signal_while_modules_are_imported_ends_the_program_quietly(delay: float) -> None:
    code = f"""
import os, signal, sys, threading, time
from whatwhere.__main__ import main

def interrupt():
    time.sleep({delay})
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
sys.argv = ["whatwhere", "info"]
main()
time.sleep(3)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, 130)  # 0: it had ended before
    assert "Traceback" not in done.stderr


def test_a_warning_is_one_line_and_said_once(
    capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(assembled, "_WARNED", set())
    for category, line in ((UserWarning, 1), (UserWarning, 2), (SlowEngineWarning, 1)):
        assembled._print_warning(f"a {category.__name__}", category, "file.py", line)
    assert capsys.readouterr().err.splitlines() == [
        "Warning: a UserWarning",
        "Warning: a SlowEngineWarning",
    ]


def test_batches_that_do_not_converge_are_counted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, program: Any
) -> None:
    """The first is reported, and the number of all of them at the end."""
    monkeypatch.setattr(assembled, "_UNCONVERGED", [])

    def work() -> None:
        for batch in range(4):
            warned = ConvergenceWarning("tolerance", 1e-6, batch, 9, 30, 0.1)
            warnings.warn(warned, stacklevel=1)
        raise SystemExit(0)

    with warnings.catch_warnings():
        assert program(work) == 0
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("Warning: 0 of 9 images did not")
    assert last == "Warning: The warning about tolerance came 4 times, once per batch."


def test_every_command_stands_in_one_section_of_the_help() -> None:
    listed = [name for names in Program.sections.values() for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(app).commands)
    shown = CliRunner().invoke(app, ["--help"]).output
    for title, names in Program.sections.items():
        section = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\w+)  ", section, re.MULTILINE) == list(names)


MISSING = (
    "classify PICTURES mnist --labels none.csv --out OUT",
    "label PICTURES --labels-from none.csv --export OUT.csv --out OUT",
    "svm PICTURES mnist --labels none.npy",
    "decode none.npz mnist --out OUT.npz",
    "encode none.png mnist --out OUT.npz",
    "encode PICTURES none --out OUT.npz",
    "encode PICTURES mnist --mask none.png --out OUT.npz",
    "denoise none.png --out OUT.png",
    "inpaint PICTURES --mask none.png --out OUT",
    "events none.csv WAVEFORMS --out OUT.csv",
    "explore none --out OUT.html",
    "figures none",
    "train none --out OUT",
    "train PICTURES --recipe none.toml --out OUT",
    "anomaly score PICTURES none --out OUT",
    "anomaly fit PICTURES --marks none.csv --out OUT",
)


@pytest.mark.parametrize("line", MISSING)
def test_a_missing_file_is_an_error_in_words(line: str, tmp_path: Path) -> None:
    """A table of labels that was not there printed an `Errno`."""
    (tmp_path / "pictures").mkdir()
    for number in range(6):
        Image.effect_noise((32, 32), 80).save(tmp_path / "pictures" / f"{number}.png")
    model = ww.DeconvNet(ww.ModelSpec.signals(2, 16))
    ww.save(model, tmp_path / "waveforms.safetensors")
    places = {"PICTURES": "pictures", "OUT": "out", "WAVEFORMS": "waveforms.safetensors"}
    words = []
    for word in line.split():
        name, dot, suffix = word.partition(".")
        words.append(str(tmp_path / places[name]) + dot + suffix if name in places else word)
    ended = CliRunner().invoke(app, words)
    message = str(ended.exception)
    assert isinstance(ended.exception, WhatwhereError), message
    assert "none" in message
    for harmful in ("Errno", "errno", "allow_pickle", "mnist, "):
        assert harmful not in message


@pytest.mark.parametrize("name", ["figures", "explore", "distill"])
def test_pictures_in_place_of_a_model_are_named(name: str, tmp_path: Path) -> None:
    """The advice was to write a new run into the folder of the pictures."""
    Image.effect_noise((32, 32), 80).save(tmp_path / "a.png")
    with raises(NoRun) as caught:
        whatwhere(name, tmp_path, *(("--out", tmp_path / "x.html") if name == "explore" else ()))
    assert f"--out {tmp_path}" not in str(caught.value)


def test_a_picture_in_place_of_codes_is_named(tmp_path: Path) -> None:
    """NumPy's own words advised to load it with pickle."""
    for name in ("a.png", "a.npz"):
        Image.effect_noise((32, 32), 80).save(tmp_path / name, "PNG")
        with raises(UnusableImageFile, reason="it is not an archive of NumPy") as caught:
            whatwhere("decode", tmp_path / name, "mnist", "--out", tmp_path / "out.npz")
        assert "pickle" not in str(caught.value)


def test_a_picture_that_is_missing_offers_no_data_sets(tmp_path: Path) -> None:
    """`denoise mnist` cannot read a data set, and offered its name."""
    for source in ("mnist", "minst"):
        with raises(NoSuchImages, path=str(source), remedy="Check the path."):
            whatwhere("denoise", source, "--out", tmp_path / "out")


def test_a_terminal_without_a_character_prints_its_number() -> None:
    """Otherwise a command whose work is done ends with a traceback."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="latin-1", write_through=True)
    assembled.print_any_character(stream)
    print("Größe 5 €", file=stream)
    assert written.getvalue() == "Größe 5 \\u20ac\n".encode("latin-1")


def test_all_messages_begin_with_the_same_word(tmp_path: Path) -> None:
    """`error:` of the parser of the command line and `Error:` of the program were mixed."""
    errors = tmp_path / "errors"
    for words in (("denoise", tmp_path / "none.png", "--out", "x.png"), ("denoise",), ("bogus",)):
        ended = start(words, errors)
        ended.join()
        assert ended.exitcode == 2
        printed = errors.read_text(encoding="utf-8")
        assert len(re.findall("^Error: ", printed, re.MULTILINE)) == 1
        assert "error: " not in printed


def test_threads_that_wait_for_each_other_sleep(tmp_path: Path) -> None:
    """On a busy machine, a picture took 16 to 24 processor seconds in place of 2: set before
    PyTorch is imported, because it is read there; a user's own choice stays."""
    code = (
        "import os, sys; sys.argv = ['whatwhere', '--version']\n"
        "from whatwhere import __main__ as program\n"
        "assert 'torch' not in sys.modules\n"
        "try: program.main()\n"
        "except SystemExit: print(os.environ['OMP_WAIT_POLICY'])"
    )
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for chosen, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        ended = subprocess.run(
            [sys.executable, "-c", code], env=clean | chosen, capture_output=True, text=True
        )
        assert ended.stdout.splitlines()[-1] == expected, ended.stderr
