"""Shards of the commands that treat pictures one by one: the parts together are the result of one
process, a killed shard runs again alone, and a missing one is named."""

import shutil
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
from raising import Containing, raises
from surfaces import scratched, surface
from tiny_run import PLAIN, whatwhere
from whatwhere import files
from whatwhere.anomaly import AnomalyDetector
from whatwhere.app import app
from whatwhere.classification.settings import Distortions
from whatwhere.data import find_parts, load, pictures
from whatwhere.data.parts import OtherShards, PartMissing, PartsDiffer
from whatwhere.data.pictures import NoPictures
from whatwhere.errors import InvalidImages, InvalidSetting
from whatwhere.files import CannotWrite
from whatwhere.labelling.session import Labelling
from whatwhere.spec.execution import Shard, TrainingOptions

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_PROCID")
SLURM = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "2", "SLURM_ARRAY_TASK_MIN": "7"}
FEW_ROUNDS = ("--set", "rounds=2")  # of filling in
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
    describe = ("describe", bar_pictures, run, "--set", "copies=2", *PLAIN)
    whatwhere(*describe, "--out", place / "metric.npz")
    denoise = ("denoise", crops, "--noise", "0.1")
    score = ("anomaly", "score", whole, place / "detector")
    classify = ("classify", bar_pictures, place / "classifier")
    out = ("--out",)
    return {
        "denoise": Command(denoise, out, pictures_of, "3.png"),
        "inpaint": Command(
            ("inpaint", crops, "--mask", place / "mask.png", *FEW_ROUNDS), out, pictures_of, "3.png"
        ),
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
        ending=programs.Ending(signal.SIGKILL, command.killed_at),
    )
    line = first_line(command.words(out), SLURM)
    assert line == "part 1/2 of the pictures (SLURM_ARRAY_TASK_ID)"
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL, errors.read_text()
    with raises(PartMissing, shard=Shard(2, 2)):
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
    with raises(InvalidSetting, given={"--shard": "2/6", "pictures": 5}):
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
    run = commands["descriptors"].arguments[2]
    encode = ("encode", folder, run, "--preset", "recipe", *PLAIN)
    for shard in ("1/2", "2/2"):
        whatwhere(*encode, "--out", tmp_path / "codes", "--shard", shard)
    assert ww.load_codes(tmp_path / "codes").names == [f"{side}.png" for side in range(10, 14)]
    assert [len(ww.load_codes(part)) for part in find_parts(tmp_path / "codes")] == [2, 2]
    with raises(OtherShards, counts=(2, 3)):
        whatwhere(*encode, "--out", tmp_path / "codes", "--shard", "2/3")
    # another model or other settings in one part are an error where all are read
    again = ("--out", tmp_path / "codes", "--shard", "2/2", "--overwrite")
    whatwhere(*encode, *again, "--set", "exact=true")
    with raises(PartsDiffer, difference=Containing("other settings")):
        ww.load_codes(tmp_path / "codes")


def test_pictures_that_change_between_shards_are_an_error(command: Command, tmp_path: Path) -> None:
    """A picture that is added moves all pictures after it, some into another part."""
    [folder] = [
        argument
        for argument in command.arguments
        if isinstance(argument, Path) and (argument / "0.png").exists()
    ]
    growing = tmp_path / "growing"
    shutil.copytree(folder, growing)
    arguments = [growing if argument == folder else argument for argument in command.arguments]
    command = command._replace(arguments=tuple(arguments))
    out = tmp_path / "parts"
    whatwhere(*command.words(out, "--shard", "1/2"))
    shutil.copy(growing / "0.png", growing / "00.png")
    for shard in ("2/2", "1/2"):
        with pytest.raises((PartsDiffer, CannotWrite)):
            whatwhere(*command.words(out, "--shard", shard))
    with raises(PartMissing, shard=Shard(2, 2), begun=False):
        find_parts(out)
    whatwhere(*command.words(out, "--shard", "2/2", "--overwrite"))
    with raises(PartsDiffer, difference=Containing("5 and 6")):
        find_parts(out)
    whatwhere(*command.words(out, "--shard", "1/2", "--overwrite"))
    assert len(find_parts(out)) == 2


def test_codes_of_pictures_that_changed_are_an_error(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    """The second part would begin with a picture that the first part has already."""
    import whatwhere as ww

    bars, run = commands["descriptors"].arguments[1:3]
    folder = tmp_path / "pictures"
    shutil.copytree(str(bars), folder)
    out = tmp_path / "codes"
    encode = ("encode", folder, run, "--where", "--preset", "recipe", *PLAIN, "--out", out)
    whatwhere(*encode, "--shard", "1/2")
    shutil.copy(folder / "0.png", folder / "00.png")
    for shard in ("1/2", "2/2"):  # complete, and still to do
        with raises(PartsDiffer, difference=Containing("5 and 6")):
            whatwhere(*encode, "--shard", shard)
    whatwhere(*encode, "--shard", "2/2", "--overwrite")
    with raises(PartsDiffer, difference=Containing("5 and 6")):
        ww.load_codes(out)
    with raises(PartsDiffer, difference=Containing("5 and 6")):
        whatwhere("decode", out, run, "--out", tmp_path / "decoded")
    whatwhere(*encode, "--shard", "1/2", "--overwrite")
    assert len(ww.load_codes(out)) == 6
    (folder / "00.png").rename(folder / "5.png")
    with raises(PartsDiffer, difference=Containing("other names")):
        whatwhere(*encode, "--shard", "2/2")


def test_parts_of_an_array_know_the_array(commands: dict[str, Command], tmp_path: Path) -> None:
    """By its name and its number of images, whatever folder it is in."""
    run = commands["descriptors"].arguments[2]
    for place, count in (("here", 6), ("there", 6), ("later", 7)):
        (tmp_path / place).mkdir()
        np.save(tmp_path / place / "bars.npy", tiny.bars(count)[0])
    out = ("--out", tmp_path / "codes", "--preset", "recipe", *PLAIN)
    whatwhere("encode", tmp_path / "here" / "bars.npy", run, *out, "--shard", "1/3")
    whatwhere("encode", tmp_path / "there" / "bars.npy", run, *out, "--shard", "2/3")
    with raises(PartsDiffer, difference=Containing("6 and 7")):
        whatwhere("encode", tmp_path / "later" / "bars.npy", run, *out, "--shard", "3/3")


def test_parts_of_other_settings_are_an_error(commands: dict[str, Command], tmp_path: Path) -> None:
    crops = commands["denoise"].arguments[1]
    out = tmp_path / "parts"
    whatwhere("denoise", crops, "--out", out, "--noise", "0.1", "--shard", "1/2")
    other = ("denoise", crops, "--out", out, "--noise", "0.03", "--shard", "2/2")
    with raises(PartsDiffer, difference=Containing("other settings")):
        whatwhere(*other)
    whatwhere(*other, "--overwrite")
    with raises(PartsDiffer, difference=Containing("other settings")):
        find_parts(out)


def test_masks_that_change_between_shards_are_an_error(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    """The masks of all shards are as many as their pictures, even where those of a shard are."""
    folder, run = commands["descriptors"].arguments[1:3]
    masks = tmp_path / "masks"
    masks.mkdir()
    for number in range(6):
        Image.fromarray(np.full((10, 10), 255, np.uint8)).save(masks / f"mask{number}.png")
    words = ("encode", folder, run, "--mask", masks, "--preset", "recipe", *PLAIN)
    with raises(InvalidImages, given=Containing("6 masks for 5 pictures in all shards")):
        whatwhere(*words, "--out", tmp_path / "codes", "--shard", "1/2")


def test_an_array_of_one_task_says_that_it_treats_everything(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    words = commands["classify"].words(tmp_path / "out")
    one = {**SLURM, "SLURM_ARRAY_TASK_COUNT": "1"}
    assert first_line(words, one) == "part 1/1 of the pictures (SLURM_ARRAY_TASK_ID)"


# What a shard opens


def opened_files(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the pictures that are opened from now on."""
    opened: list[str] = []

    def open_and_note(path: Any) -> Any:
        opened.append(Path(path).name)
        return files.open_regular(path)

    monkeypatch.setattr(pictures, "open_regular", open_and_note)
    return opened


def test_a_shard_opens_its_own_pictures_only(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = opened_files(monkeypatch)
    whatwhere(*command.words(tmp_path / "out", "--shard", "2/2"))
    assert set(opened) - {"mask.png"} == {"2.png", "3.png", "4.png"}


def test_a_shard_of_codes_opens_its_own_pictures_and_masks_only(
    commands: dict[str, Command], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, run = commands["descriptors"].arguments[1:3]
    masks = tmp_path / "masks"
    masks.mkdir()
    for number in range(5):
        Image.fromarray(np.full((10, 10), 255, np.uint8)).save(masks / f"mask{number}.png")
    opened = opened_files(monkeypatch)
    words = ("encode", folder, run, "--mask", masks, "--preset", "recipe", *PLAIN)
    whatwhere(*words, "--out", tmp_path / "codes", "--shard", "1/3")
    assert set(opened) == {"0.png", "mask0.png"}


def test_labels_are_the_same_in_all_shards(commands: dict[str, Command], tmp_path: Path) -> None:
    """Each class is in one shard alone."""
    import whatwhere as ww

    for number, label in enumerate(("ash", "birch", "cedar")):
        (tmp_path / "trees" / label).mkdir(parents=True)
        picture = np.full((10, 10), 50 * number, np.uint8)
        Image.fromarray(picture).save(tmp_path / "trees" / label / "a.png")
    encode = ("encode", tmp_path / "trees", commands["descriptors"].arguments[2], *PLAIN)
    for number in (1, 2, 3):
        shard = ("--out", tmp_path / "codes", "--shard", f"{number}/3")
        whatwhere(*encode, *shard, "--preset", "recipe")
    labels = ww.load_codes(tmp_path / "codes").labels
    assert labels is not None
    assert labels.tolist() == [0, 1, 2]


@pytest.mark.filterwarnings("ignore:.* has 16-bit pixels:UserWarning")
def test_pictures_of_16_bits_have_one_white_in_all_shards(tmp_path: Path) -> None:
    """The brightest of them shows it, although only one shard has it."""
    folder = tmp_path / "deep"
    folder.mkdir()
    for number, largest in enumerate((900, 4000, 800)):
        Image.fromarray(np.full((10, 10), largest, np.uint16)).save(folder / f"{number}.png")
    values = [float(load(folder, shard=Shard(k, 3))[:].max()) for k in (1, 2, 3)]
    assert values == pytest.approx([900 / 4095, 4000 / 4095, 800 / 4095])


def test_a_shard_without_a_usable_picture_names_them(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"damaged")
    Image.fromarray(np.zeros((10, 10), np.uint8)).save(tmp_path / "b.png")
    with raises(NoPictures, skipped={tmp_path / "a.png": Containing("")}):
        load(tmp_path, shard=Shard(1, 2))


def test_a_shard_of_descriptors_does_not_learn_the_metric_again(
    commands: dict[str, Command], tmp_path: Path
) -> None:
    """A shard of grey pictures of another size is made like those of the metric."""
    run = tmp_path / "run"
    shutil.copytree(str(commands["descriptors"].arguments[2]), run)
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(5):
        pixels = rng.integers(0, 255, (10, 10, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    describe = ("describe", folder, run, "--set", "copies=2", *PLAIN)
    whatwhere(*describe, "--out", tmp_path / "metric.npz")
    metric = (run / "metric.safetensors").read_bytes()
    for number in (3, 4):
        Image.fromarray(rng.integers(0, 255, (20, 30), np.uint8)).save(folder / f"{number}.png")
    whatwhere(*describe, "--out", tmp_path / "parts", "--shard", "2/2")
    assert (run / "metric.safetensors").read_bytes() == metric
    whatwhere(*describe, "--out", tmp_path / "parts", "--shard", "1/2")
    whatwhere(*describe, "--out", tmp_path / "whole.npz")
    joined = [row for part in find_parts(tmp_path / "parts") for row in descriptors_of(part)]
    for row, expected in zip(joined, descriptors_of(tmp_path / "whole.npz"), strict=True):
        assert row[0] == expected[0]
        np.testing.assert_allclose(row[1:], expected[1:], atol=1e-5)
