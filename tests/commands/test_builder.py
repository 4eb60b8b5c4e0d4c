"""Commands from functions and dataclasses: their options, `--set`, suggestions, their number;
`info` and `bench`."""

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from raising import raises
from tiny_run import whatwhere
from whatwhere import engines
from whatwhere.app import app, bench
from whatwhere.app.bench import bench_inference, cases
from whatwhere.app.info import installed_version
from whatwhere.commands.builder import Settings, command, known_settings, sentence
from whatwhere.engines import ENGINES
from whatwhere.errors import NoSuchImages, SpecError, UnknownChoice
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked, Count


@dataclass(frozen=True, kw_only=True)
class Tea(Checked):
    """How tea is made.

    minutes  of waiting; default: as the packet says
    sugar    spoons of sugar
    milk     with milk
    names    of the guests
    kettle   which kettle
    """

    minutes: Count | None = None
    sugar: float = 1.5
    milk: bool = False
    names: tuple[str, ...] = ()
    kettle: str = "black"


def make(*arguments: object) -> tuple[Tea, dict[str, object]]:
    """What a command for tea gets."""
    result, got = run(*arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return got[0]


def run(*arguments: object) -> tuple[Result, list[tuple[Tea, dict[str, object]]]]:
    got, program = [], typer.Typer()

    @command(Tea, (Recipe, "inference seed"), flags="minutes milk", app=program)
    def brew(cup: Path, *, count: int = 1, settings: Settings, json_: bool = False) -> None:
        """Make tea.

        cup    to pour it into
        count  of cups

        $ brew mug --minutes 3     # strong
        """
        got.append(
            (settings.of(Tea), {"cup": cup, "count": count, "json": json_, "settings": settings})
        )

    return CliRunner().invoke(program, [str(a) for a in arguments]), got


def test_flags_and_set_give_the_same_value() -> None:
    flags, rest = make("mug", "--minutes", 3, "--milk", "--count", 2, "--json")
    assert flags == Tea(minutes=3, milk=True)
    assert (rest["cup"], rest["count"], rest["json"]) == (Path("mug"), 2, True)
    by_set, _ = make(
        "mug", *(f"--set={change}" for change in ("minutes=2", "minutes=3", "milk=true"))
    )
    assert by_set == flags
    assert make("mug", "--set", "names=['ann', 'bob']")[0].names == ("ann", "bob")
    assert make("mug", "--set", "kettle=2024", "--set", "sugar=2")[0] == Tea(
        kettle="2024", sugar=2.0
    )
    assert make("mug")[0] == Tea()


def test_settings_of_a_recipe_are_changed_by_their_full_names() -> None:
    _, given = make("mug", "--set", "inference.steps=7", "--set", "seed=3")
    settings = given["settings"]
    assert isinstance(settings, Settings)
    changed = settings.override(Recipe.paper())
    assert (changed.inference.steps, changed.seed) == (7, 3)
    assert settings.given("inference")
    assert not settings.given("minutes")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("minutes=x", "minutes = 'x'; expected an integer"),
        ("minutes=0.5", "Got minutes = 0.5"),
        ("minutes=-1", "an integer of at least 1"),
        ("minute=3", "this command has no setting minute. Did you mean 'minutes'"),
        ("steps=3", "Did you mean 'inference.steps'"),
        ("inference.stepp=3", "Did you mean 'inference.step"),
        ("xyzzy=3", "Its settings are minutes, sugar"),
        ("minutes", "expected NAME=VALUE"),
        ("model.layers=[]", "this command has no setting model.layers"),
    ],
)
def test_a_wrong_setting_raises_an_error_that_names_it(change: str, message: str) -> None:
    known = known_settings([Tea, (Recipe, "inference seed")])
    with pytest.raises(SpecError, match=re.escape(message)):
        assert Settings(known, {}, [change]).override(Recipe.paper()) and Settings(  # noqa: PT018
            known, {}, [change]
        ).of(Tea)


def test_an_unknown_option_is_answered_with_a_setting() -> None:
    def message(*arguments: str) -> str:
        return " ".join(re.sub(r"[│╭╮╰╯─]", "", run("mug", *arguments)[0].output).split())

    assert "--sugar. Did you mean --set sugar=VALUE?" in message("--sugar", "2")
    assert "--steps. Did you mean --set inference.steps=VALUE?" in message("--steps", "2")
    assert "--minute-s. Did you mean --minutes?" in message("--minute-s", "2")
    assert "Did you mean" not in message("--xyzzy")


def test_the_help_has_the_words_of_the_docstrings() -> None:
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", "", run("--help")[0].output).split())
    assert "To pour it into." in shown
    assert "Of waiting; default: as the packet says." in shown
    assert "Print the result as JSON." in shown
    assert shown.endswith("Examples: brew mug --minutes 3 # strong")
    assert "Spoons of sugar." not in shown, "settings are a list of their own"
    assert sentence("β of inference") == "β of inference."


def test_a_list_of_settings_has_all_that_are_no_options() -> None:
    result, got = run("--help-settings")
    shown = " ".join(result.output.split())
    assert (result.exit_code, got) == (0, [])
    assert "sugar=1.5 Spoons of sugar. (number)" in shown
    assert "kettle=black Which kettle." in shown
    assert "inference.penalty What features cost" in shown
    assert "inference.step.per 'image': β for each image; 'batch'" in shown
    assert "(image|batch; recipe paper: image)" in shown
    assert "(integer ≥ 0; recipe paper: 50)" in shown
    assert "minutes" not in shown


def own_commands() -> dict[str, Any]:
    """Every command by its name, with those of groups."""
    commands = {}
    for name, each in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        group = getattr(each, "commands", None)
        if group is None:
            commands[name] = each
        else:
            commands |= {f"{name} {inner}": one for inner, one in group.items()}
    return commands


@pytest.mark.parametrize("name", own_commands())
def test_the_help_of_every_command_ends_with_examples_that_can_be_given(name: str) -> None:
    commands = own_commands()
    examples = commands[name].examples
    assert examples
    assert examples[0].startswith("whatwhere ")
    for line in examples:
        words = shlex.split(line, comments=True)
        depth = 3 if words[1] == "anomaly" else 2
        given = commands[" ".join(words[1:depth])]
        context = given.make_context(name, words[depth:])
        changes = context.params.get("set") or ()
        Settings(given.known, {}, changes)


def test_options_of_one_name_mean_the_same_in_every_command() -> None:
    program = typer.main.get_command(app)
    words: dict[str, set[str]] = {}
    for each in program.commands.values():  # type: ignore[attr-defined]
        for option in each.params:
            if option.param_type_name == "option" and option.name in (
                "device",
                "quiet",
                "json_",
                "mask",
            ):
                words.setdefault(option.name, set()).add(option.help)
    assert all(len(texts) == 1 for texts in words.values()), words
    assert len(words) == 4


# `whatwhere info`: what it says about engines and files is true -----------------------------------


def test_versions_devices_and_engines() -> None:
    facts = json.loads(whatwhere("info", "--json"))
    assert facts["versions"]["whatwhere"] == whatwhere("--version").split()[1]
    assert list(facts["engines"]) == list(ENGINES)
    assert facts["engines"]["reference"] == "supported"
    assert "cpu" in facts["devices"]
    assert installed_version("no-such-package") == "not installed"
    assert "reference      supported" in whatwhere("info")


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_data_sets_are_listed_and_described(empty_cache: Path) -> None:
    shown = whatwhere("info")
    assert "5,000 training and 2,000 test digits" in shown
    assert "(not available: whatwhere download kmnist)" in shown
    facts = json.loads(whatwhere("info", "digits", "--json"))["data set"]
    assert facts["available"]
    assert set(facts["files"].values()) == {"verified"}
    assert facts["licence"] == "CC BY-SA 3.0"
    both = json.loads(whatwhere("info", "mnist", "--json"))
    assert both["model"]["available"]
    assert not both["data set"]["available"]
    assert both["data set"]["folder"] == str(empty_cache / "mnist")
    shown = whatwhere("info", "mnist")
    assert "not available: whatwhere download mnist" in shown
    assert shown.startswith("data set mnist\n  title          MNIST")
    card = shown.partition("\n\nmodel mnist\n  Two layers")[2]
    assert "\n  licence        MIT" in card
    for markdown in ("![", "| |", "---", "`", "# "):
        assert markdown not in card, "a card is shown as text"


def test_damage_is_reported_by_the_exit_status(empty_cache: Path) -> None:
    (empty_cache / "mnist").mkdir(parents=True)
    (empty_cache / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(bytes(10_008))
    result = CliRunner().invoke(app, ["info", "mnist"])
    assert result.exit_code == 1
    assert f"damaged   {empty_cache}/mnist/t10k-labels-idx1-ubyte" in result.stdout
    assert f"missing   {empty_cache}/mnist/t10k-images-idx3-ubyte" in result.stdout


def test_download_raises_for_an_unknown_name_and_an_incomplete_folder(
    empty_cache: Path, tmp_path: Path
) -> None:
    with raises(UnknownChoice, kind="data set or model", given="mnsit"):
        whatwhere("download", "mnsit")
    with raises(NoSuchImages, kind="train-images-idx3-ubyte.gz in"):
        whatwhere("download", "mnist", "--from", tmp_path)
    assert whatwhere("download", "digits").count("verified  ") == 4


# `whatwhere bench`, with a few images and steps ---------------------------------------------------


CPU = torch.device("cpu")
LAST = "layer 1, image step, α 1"


@pytest.fixture
def one_engine(monkeypatch):
    """The engine that has nothing to compile."""
    monkeypatch.setattr(engines, "ENGINES", {"reference": engines.ENGINES["reference"]})


class Twice:
    """Solves twice, so that it is about half as fast as the reference."""

    def unsupported_reason(self, problem):
        return None

    def solve(self, problem):
        engines.ENGINES["reference"].solve(problem)
        return engines.ENGINES["reference"].solve(problem)


@pytest.mark.usefixtures("one_engine")
def test_an_engine_is_measured_with_one_and_two_threads(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setattr(bench, "cases", lambda steps: {LAST: cases(steps)[LAST]})
    # the fastest is first
    monkeypatch.setattr(engines, "ENGINES", {"twice": Twice(), **engines.ENGINES})
    rows = list(bench_inference(CPU, images=3, steps=2, repeats=2))
    assert [(row["engine"], row["threads"]) for row in rows] == [
        (e, n) for n in (1, 2) for e in ("reference", "twice")
    ]
    for row in rows:
        assert (row["case"], row["images"], row["steps"], len(row["seconds"])) == (LAST, 3, 2, 2)
        assert row["best"] == pytest.approx(6 / min(row["seconds"]))
        assert row["median"] <= row["best"]
    for reference, twice in (rows[:2], rows[2:]):
        assert (reference["speedup"], twice["speedup"]) == (1.0, twice["best"] / reference["best"])
    assert torch.get_num_threads() == before


@pytest.mark.usefixtures("one_engine")
def test_the_command_prints_text_or_json(monkeypatch):
    monkeypatch.setattr(bench, "cases", lambda steps: {LAST: cases(steps)[LAST]})
    arguments = ["--images", 2, "--steps", 1, "--device", "cpu"]
    printed = json.loads(whatwhere("bench", *arguments, "--json"))
    assert {row["engine"] for row in printed["measurements"]} == {"reference"}
    assert "× the reference" in whatwhere("bench", *arguments)


def test_help_imports_nothing_that_takes_long() -> None:
    code = (
        "import sys; sys.argv = ['whatwhere', '--help']; from whatwhere.app import main\n"
        "try: main()\n"
        "except SystemExit: print(sorted({'rich', 'torch', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_commands_have_their_options_without_docstrings() -> None:
    """Python with -OO leaves docstrings out, from which the options come."""
    code = (
        "import sys; sys.argv = ['whatwhere', 'denoise', '--help']\n"
        "from whatwhere.app import main; main()"
    )
    helps = [
        subprocess.run(
            [sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        for flags in ((), ("-OO",))
    ]
    assert "standard deviation of the noise" in helps[0].lower()
    assert helps[0] == helps[1]


def test_the_usage_line_has_brackets_around_what_may_be_left_out_alone() -> None:
    for name, expected in (("classify", "PICTURES MODEL"), ("denoise", "PICTURES [MODEL]")):
        shown = CliRunner().invoke(app, [name, "--help"]).output
        assert f"Usage: whatwhere {name} [OPTIONS] {expected}\n" in shown
