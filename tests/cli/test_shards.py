"""Shards of the commands that treat pictures one by one: the parts together are the result of one
process, a killed shard runs again alone, and a missing one is named."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import programs
import tiny_run as tiny
from surfaces import scratched, surface
from tiny_run import PLAIN, whatwhere
from whatwhere.cli import app
from whatwhere.data import find_parts
from whatwhere.errors import ImageError, SpecError
from whatwhere.spec.execution import TrainingOptions
from whatwhere.spec.tasks import Distortions
from whatwhere.tasks.anomaly import AnomalyDetector
from whatwhere.tasks.labelling.session import Labelling
from whatwhere.tasks.restoration import fill

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT")
SLURM = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "7"}
FEW_ROUNDS = 2  # of filling in
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2"}


class Command(NamedTuple):
    """A command, and what it leaves.

    arguments   before the place of its results
    option      that the place is given with; none for a command that takes it as an argument
    results     of a file or folder that it wrote: something for each picture
    killed_at   the end of the name of the file at which it is killed, in the second of two parts
    part        the name of that part
    """

    arguments: tuple[object, ...]
    option: tuple[str, ...]
    results: Callable[[Path], list[Any]]
    killed_at: str
    part: str = "part-00002-of-00002"

    def words(self, out: Path, *more: object) -> list[str]:
        return [str(word) for word in (*self.arguments, *self.option, out, *more)]

    def joined(self, out: Path) -> list[Any]:
        """The results of all parts."""
        return [result for part in find_parts(out) for result in self.results(part)]


def pictures_of(folder: Path) -> list[Any]:
    return [(path.name, path.read_bytes()) for path in sorted(folder.glob("*.png"))]


def scores_of(folder: Path) -> list[Any]:
    return sorted((folder / "scores.csv").read_text().splitlines()[1:])


def classes_of(folder: Path) -> list[Any]:
    return (folder / "predictions.csv").read_text().splitlines()[1:]


def descriptors_of(file: Path) -> list[Any]:
    with np.load(file) as arrays:
        rows = arrays["descriptors"].tolist()
        return [(name, *row) for name, row in zip(arrays["names"], rows, strict=True)]


def save(folder: Path, pictures: np.ndarray) -> Path:
    folder.mkdir()
    for number, picture in enumerate((255 * pictures.clip(0, 1)).astype(np.uint8)):
        Image.fromarray(picture).save(folder / f"{number}.png")
    return folder


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    """Every command whose parts are not codes, upon five pictures: parts of two and of three."""
    place = tmp_path_factory.mktemp("shards")
    surfaces = scratched(surface(5, seed=6))[0][:, 0].numpy()
    whole = save(place / "whole", surfaces)
    crops = save(place / "crops", surfaces[:, :12, :12])
    mask = np.full((12, 12), 255, np.uint8)
    mask[5:7, 5:7] = 0
    Image.fromarray(mask).save(place / "mask.png")
    AnomalyDetector().fit(surface(8)).save(place / "detector")
    bars, labels = tiny.bars(5, seed=4)
    bar_pictures = save(place / "bars", bars)
    lines = [f"{row}.png,{'abc'[label]}" for row, label in enumerate(labels)]
    (place / "labels.csv").write_text("\n".join(["file,class", *lines]) + "\n")
    run = tiny.make(place / "run")
    session = Labelling(
        bar_pictures,
        run=run,
        labels=place / "labels.csv",
        invariant_to=Distortions(copies=2),
        options=TrainingOptions(engine="reference", device="cpu"),
    )
    session.save(place / "classifier")
    describe = ("encode", run, bar_pictures, "--descriptors", "--set", "copies=2", *PLAIN)
    whatwhere(*describe, "--out", place / "metric.npz")
    denoise = ("denoise", crops, "--noise", "0.1")
    score = ("anomaly", "score", place / "detector", whole)
    classify = ("classify", place / "classifier", bar_pictures)
    out = ("--out",)
    return {
        "denoise": Command(denoise, (), pictures_of, "3.png"),
        "inpaint": Command(("inpaint", crops, place / "mask.png"), (), pictures_of, "3.png"),
        "score": Command(score, out, scores_of, "index.html"),
        "classify": Command(classify, out, classes_of, "predictions.csv"),
        "descriptors": Command(
            describe, out, descriptors_of, "part-00002-of-00002.npz", "part-00002-of-00002.npz"
        ),
    }


@pytest.fixture(params=["denoise", "inpaint", "score", "classify", "descriptors"])
def command(request: pytest.FixtureRequest, commands: dict[str, Command]) -> Command:
    return commands[request.param]


@pytest.fixture(autouse=True)
def no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fill, "ROUNDS", FEW_ROUNDS)


def first_line(words: list[str], variables: dict[str, str]) -> str:
    """Run a command with variables of a scheduler; its first line on standard error."""
    done = CliRunner().invoke(app, words, env=variables, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stderr.splitlines()[0]


def test_a_killed_shard_runs_again_and_the_parts_are_the_result_of_one_process(
    command: Command, tmp_path: Path
) -> None:
    whole = tmp_path / f"whole{Path(command.part).suffix}"
    out = tmp_path / "parts"
    whatwhere(*command.words(whole))
    errors = tmp_path / "errors.txt"
    killed = programs.start(
        command.words(out, "--shard", "2/2"),
        errors,
        constants={"whatwhere.tasks.restoration.fill.ROUNDS": FEW_ROUNDS},
        ending=programs.Ending(signal.SIGKILL, command.killed_at),
    )
    line = first_line(command.words(out), SLURM)
    assert line == "part 1/2 of the pictures (SLURM_ARRAY_TASK_ID)"
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL, errors.read_text()
    with pytest.raises(ImageError, match=r"part 2 of 2 is (missing|unfinished)\. .* --shard 2/2"):
        find_parts(out)
    assert first_line(command.words(out), TORCHRUN) == "part 2/2 of the pictures (RANK)"
    expected = command.results(whole)
    assert len(expected) == 5
    assert sorted(command.joined(out)) == sorted(expected)
    assert not list(out.glob("*/.unfinished"))
    assert not list(out.glob("*/*.part")), "nothing is left half written"


def test_more_parts_than_pictures_raise_before_anything_is_written(
    command: Command, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"part 2/6 of 5 pictures \(--shard\)"):
        whatwhere(*command.words(tmp_path / "out", "--shard", "2/6"))
    assert not (tmp_path / "out").exists()


def test_parts_of_a_folder_of_many_sizes_are_equal_and_keep_the_names(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    import whatwhere as ww

    folder = tmp_path / "pictures"
    folder.mkdir()
    for side in range(10, 14):
        Image.fromarray(np.full((side, side), 90, np.uint8)).save(folder / f"{side}.png")
    run = commands["descriptors"].arguments[1]
    encode = ("encode", run, folder, "--preset", "recipe", *PLAIN)
    for shard in ("1/2", "2/2"):
        whatwhere(*encode, "--out", tmp_path / "codes", "--shard", shard)
    assert ww.load_codes(tmp_path / "codes").names == [f"{side}.png" for side in range(10, 14)]
    assert [len(ww.load_codes(part)) for part in find_parts(tmp_path / "codes")] == [2, 2]
    with pytest.raises(ImageError, match="has parts of 2 shards"):
        whatwhere(*encode, "--out", tmp_path / "codes", "--shard", "2/3")
    # another model or other settings in one part are an error where all are read
    again = ("--out", tmp_path / "codes", "--shard", "2/2", "--overwrite")
    whatwhere(*encode, *again, "--set", "exact=true")
    with pytest.raises(ImageError, match="part 2 of 2 was encoded with another model or other"):
        ww.load_codes(tmp_path / "codes")


def test_an_array_of_one_task_says_that_it_treats_everything(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    words = commands["classify"].words(tmp_path / "out")
    one = {**SLURM, "SLURM_ARRAY_TASK_COUNT": "1"}
    assert first_line(words, one) == "part 1/1 of the pictures (SLURM_ARRAY_TASK_ID)"
