"""Every command that writes asks before it replaces a file of somebody else, and never writes onto
what it reads."""

import inspect
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import tiny_run as tiny
import whatwhere as ww
from public_names import is_error, public_names
from raising import raises
from tiny_run import PLAIN
from whatwhere import restoration, signals
from whatwhere.app import app
from whatwhere.errors import MissingExtra, RunError
from whatwhere.files import CannotWrite
from whatwhere.model.events import Events


class Place(NamedTuple):
    """What commands read."""

    run: Path
    pictures: Path
    picture: Path
    mask: Path
    waveforms: Path
    recording: Path
    codes: Path
    labels: Path
    detector: Path


class Case(NamedTuple):
    """A command line that writes one file at least.

    words   the line, in which OUT stands for the output
    result  the file that it writes, from the output; empty: the output itself
    reads   the file that it reads, which the output must not be; None for outputs in a folder
    """

    words: tuple[Any, ...]
    result: str = ""
    reads: Path | None = None


OUT = "OUT"
FEW = (*PLAIN, "--set", "inference.steps=1")
CASES: dict[str, Callable[[Place], Case]] = {
    "demo": lambda a: Case(("--out", OUT), "demo.json"),
    "explore": lambda a: Case((a.run, "--images", a.picture, "--out", OUT), reads=a.picture),
    "label": lambda a: Case(
        (a.pictures, "--labels-from", a.labels, "--export", OUT, "--out", a.labels.parent / "own"),
        reads=a.labels,
    ),
    "encode": lambda a: Case((a.picture, a.run, "--out", OUT, *FEW), reads=a.picture),
    "decode": lambda a: Case((a.codes, a.run, "--out", OUT), reads=a.codes),
    "events": lambda a: Case((a.recording, a.waveforms, "--out", OUT), reads=a.recording),
    "describe": lambda a: Case((a.picture, a.run, "--out", OUT, *FEW), reads=a.picture),
    "classify": lambda a: Case(
        (a.pictures, a.run, "--labels", a.labels, "--out", OUT), "predictions.csv"
    ),
    "figures": lambda a: Case((a.run, "--images", a.pictures, "--out", OUT), "report.html"),
    "denoise": lambda a: Case((a.picture, "--out", OUT, "--noise", 0.1), reads=a.picture),
    "inpaint": lambda a: Case((a.picture, "--mask", a.mask, "--out", OUT), reads=a.mask),
    "anomaly fit": lambda a: Case((a.pictures, "--out", OUT), reads=a.pictures / "0.png"),
    "anomaly score": lambda a: Case((a.pictures, a.detector, "--out", OUT), "scores.csv"),
    "anomaly odd": lambda a: Case((a.pictures, "--out", OUT), "scores.csv"),
}
WITHOUT_A_FILE_OF_THE_USERS_CHOICE = {
    "train",  # a run is a folder, and one that exists is an error
    "distill",  # next to the model, under a name of its own
    "svm",
    "info",
    "download",  # into the cache
    "bench",
}


def commands(group: Any, before: str = "") -> Iterator[str]:
    """The names of all commands, with their groups."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield before + name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("claims")
    (folder / "pictures").mkdir()
    for number, bar in enumerate((255 * tiny.bars(4)[0]).astype(np.uint8)):
        Image.fromarray(bar).save(folder / "pictures" / f"{number}.png")
    Image.fromarray((255 * tiny.bars(1)[0][0]).astype(np.uint8)).save(folder / "a.png")
    mask = np.full((10, 10), 255, np.uint8)
    mask[2:4, 2:4] = 0
    Image.fromarray(mask).save(folder / "mask.png")
    np.save(folder / "recording.npy", np.random.default_rng(0).normal(size=400).astype(np.float32))
    model = ww.DeconvNet(ww.ModelSpec.signals(2, 16))
    ww.save(model, folder / "waveforms.safetensors")
    (folder / "labels.csv").write_text("file,class\n0.png,a\n1.png,b\n")
    run = tiny.make(folder / "run")
    few = ww.InferenceSpec(steps=1)
    options = ww.codes.EncodeOptions(where=True)
    ww.codes.write_codes(folder / "codes.npz", ww.load(run), folder / "a.png", few, options=options)
    noise = torch.rand(40, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    ww.AnomalyDetector().fit(noise).save(folder / "detector.safetensors")
    return Place(
        run,
        folder / "pictures",
        folder / "a.png",
        folder / "mask.png",
        folder / "waveforms.safetensors",
        folder / "recording.npy",
        folder / "codes.npz",
        folder / "labels.csv",
        folder / "detector.safetensors",
    )


def test_every_command_is_here() -> None:
    names = set(commands(typer.main.get_command(app)))
    assert names == set(CASES) | WITHOUT_A_FILE_OF_THE_USERS_CHOICE


def run(name: str, words: tuple[Any, ...], out: Path) -> Any:
    """Run a command; one that takes minutes, such as a demo that was not refused, is stopped."""

    def stop(*_: object) -> None:
        raise TimeoutError

    line = [*name.split(), *(str(out if word == OUT else word) for word in words)]
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(120)
    try:
        return CliRunner().invoke(app, line)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_somebody_else_is_not_replaced(name: str, place: Place, tmp_path: Path) -> None:
    case = CASES[name](place)
    suffix = case.reads.suffix if case.reads else ""
    out = tmp_path / f"out{'' if case.result else suffix or '.x'}"
    file = out / case.result
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"mine")
    ended = run(name, case.words, out)
    assert isinstance(ended.exception, RunError), ended.output
    assert "exists already" in str(ended.exception)
    work = [line for line in ended.output.splitlines() if not line.startswith("loading")]
    assert work == [], "it asks before it works"
    assert file.read_bytes() == b"mine"


@pytest.mark.parametrize("name", CASES)
def test_what_is_read_is_not_replaced_even_with_overwrite(name: str, place: Place) -> None:
    case = CASES[name](place)
    if case.reads is None:
        pytest.skip("the results are in a folder of their own")
    before = case.reads.read_bytes()
    ended = run(name, (*case.words, "--overwrite"), case.reads)
    assert isinstance(ended.exception, RunError), ended.output
    assert "reads it" in str(ended.exception)
    assert case.reads.read_bytes() == before


class Writer(NamedTuple):
    """A method or a function that writes a file into a folder."""

    file: str
    write: Callable[[Place, Path], object]


def session(folder: Path) -> ww.Labelling:
    """A session that can save a classifier, with its own files elsewhere."""
    said = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    said.label({0: "cat", 3: "dog"})
    return said


def save_steps(place: Place, out: Path) -> None:
    model = ww.load(place.run)
    ww.save(model, out / "model.safetensors")
    ww.UnrolledInference(model, steps=2).learned.save(out / "model.safetensors")


def write_codes(place: Place, out: Path) -> None:
    one_step = ww.InferenceSpec(steps=1)
    ww.codes.write_codes(out / "codes.npz", ww.load(place.run), place.picture, one_step)


ONE_EVENT = Events.of([(0, 1, 0, 120.2, 0.1, 2.0, 1.0, 0, 0.9, False, 0.4, -1, 117.2, 0.1)])
WRITERS = {
    "save": Writer("a", lambda place, out: ww.save(ww.load(place.waveforms), out / "a")),
    "AnomalyDetector.save": Writer(
        "a", lambda place, out: ww.AnomalyDetector.load(place.detector).save(out / "a")
    ),
    "Labelling.save": Writer("a", lambda _, out: session(out).save(out / "a")),
    "Labelling.export": Writer("a.csv", lambda _, out: session(out).export(out / "a.csv")),
    "PictureClassifier.save": Writer("a", lambda _, out: session(out).classifier().save(out / "a")),
    "LearnedSteps.save": Writer("inference-2.safetensors", save_steps),
    "write_codes": Writer("codes.npz", write_codes),
    "save_onnx": Writer(
        "a", lambda _, out: restoration.save_onnx(restoration.load_denoiser(), out / "a")
    ),
    "write_phy": Writer(
        "spike_times.npy",
        lambda place, out: signals.write_phy(out, ONE_EVENT, ww.load(place.waveforms), 1e3),
    ),
    "write_wfdb": Writer("a.ww", lambda _, out: signals.write_wfdb(out, "a", ONE_EVENT, 1e3)),
}
LIKE_OTHER_LIBRARIES = {
    "figures.save",  # replaces a file, as matplotlib's savefig
    "Events.to_csv",  # as pandas
    "Labelling.write_predictions",  # the session's own table; test_labelling.py has a foreign one
}


def writers() -> Iterator[str]:
    """The public functions and methods that write files, by their names."""
    for full_name, thing in public_names().items():
        module, name = full_name.rsplit(".", 1)
        if inspect.isclass(thing) and not is_error(thing):
            for method in dir(thing):
                if re.match("save|write|export|to_csv", method):
                    yield f"{name}.{method}"
        elif re.match("save|write", name):
            yield "figures.save" if module.endswith("figures") else name


def test_every_method_that_writes_is_here() -> None:
    # of a value that `load_classifier` returns, and in a module without documented classes
    others = {"PictureClassifier.save", "write_codes"}
    assert set(writers()) | others == set(WRITERS) | LIKE_OTHER_LIBRARIES


@pytest.mark.parametrize("name", WRITERS)
def test_no_method_replaces_a_file_of_somebody_else(
    name: str, place: Place, tmp_path: Path
) -> None:
    file = tmp_path / WRITERS[name].file
    file.write_bytes(b"mine")
    try:
        with raises(CannotWrite, path=str(file), reason="exists"):
            WRITERS[name].write(place, tmp_path)
    except MissingExtra as missing:
        pytest.skip(str(missing))
    assert file.read_bytes() == b"mine"


def test_decoded_pictures_do_not_replace_those_of_somebody_else(
    place: Place, tmp_path: Path
) -> None:
    """A picture that `decode` wrote, and that was edited since, is one of them."""
    out = tmp_path / "decoded"
    line = ("decode", (place.codes, place.run, "--out", OUT), out)
    assert run(*line).exit_code == 0
    assert run(*line).exit_code == 0, "its own results may be made again"
    (file,) = out.glob("*.png")
    file.write_bytes(b"mine")
    ended = run(*line)
    assert isinstance(ended.exception, RunError), ended.output
    assert file.read_bytes() == b"mine"


def test_two_results_never_have_the_same_file(place: Place, tmp_path: Path) -> None:
    """However it is called. The second would replace the first."""
    table, picture = tmp_path / "e.csv", tmp_path / "a.png"
    again = tmp_path.parent / tmp_path.name / ".." / tmp_path.name
    lines = [
        ("events", (place.recording, place.waveforms, "--out", OUT, "--quality", again / "e.csv")),
        ("events", (place.recording, place.waveforms, "--out", OUT, "--page", table)),
        ("denoise", (place.picture, "--out", OUT, "--keep-noise", again / "a.png")),
        ("anomaly fit", (place.pictures, "--out", OUT, "--report", again)),
        ("anomaly odd", (place.pictures, "--out", again, "--detector", OUT)),
    ]
    outputs = (table, table, picture, tmp_path / "scores.csv", tmp_path / "index.html")
    for (name, words), out in zip(lines, outputs, strict=True):
        ended = run(name, words, out)
        assert isinstance(ended.exception, CannotWrite), ended.output
        assert ended.exception.reason == "twice"
    assert list(tmp_path.iterdir()) == []


def test_no_file_of_a_recording_is_replaced(place: Place, tmp_path: Path) -> None:
    """Neither the header nor the form of its samples."""
    np.zeros(400, "<i2").tofile(tmp_path / "raw.dat")
    form = '{"dtype": "int16", "channels": 1, "rate": 1000}'
    (tmp_path / "raw.json").write_text(form)
    words = (tmp_path / "raw.dat", place.waveforms, "--overwrite", "--out", OUT)
    ended = run("events", words, tmp_path / "raw.json")
    assert isinstance(ended.exception, CannotWrite), ended.output
    assert ended.exception.reason == "read"
    assert (tmp_path / "raw.json").read_text() == form


def test_a_model_does_not_replace_another_file(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_bytes(b"mine")
    model = ww.DeconvNet(ww.ModelSpec.signals(2, 16))
    with raises(CannotWrite, reason="exists"):
        ww.save(model, tmp_path / "labels.csv")
    ww.save(model, tmp_path / "labels.csv", overwrite=True)
    ww.save(model, tmp_path / "labels.csv")  # it is a model now
