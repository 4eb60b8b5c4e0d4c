"""`whatwhere info`: what is installed, and the models and data sets that are known by name."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whatwhere.commands.builder import command
from whatwhere.commands.old_forms import Moved
from whatwhere.errors import UnknownChoice

if TYPE_CHECKING:
    from whatwhere.data.catalogue import Entry


@dataclass(frozen=True)
class _Known:
    """What is known about a model or a data set.

    Parameters
    ----------
    facts
        its title, licence, folder and so on
    available
        whether all of its files are there
    files
        the state of each file by its name
    """

    facts: Mapping[str, str]
    available: bool
    files: Mapping[str, str]

    def table(self) -> dict[str, object]:
        """Return all but the files."""
        return {**self.facts, "available": self.available}


PACKAGES = (
    "whatwhere",
    "torch",
    "numpy",
    "numba",
    "triton",
    "scikit-learn",
    "matplotlib",
    "safetensors",
)


@command(old=(Moved("--download", "download"),))
def info(name: str | None = None, *, json_: bool = False) -> None:
    """Show what is installed: versions, devices, engines, models and data sets.

    With the name of a model or a data set, show its details and verify its files; the exit status
    is 1 if a file is damaged. With the folder of a run, show its model and what its rows describe.

    Parameters
    ----------
    name
        name of a model or a data set, or the folder of a run

    Examples
    --------
    $ whatwhere info
    $ whatwhere info mnist
    $ whatwhere info runs/mine
    """
    if name is None:
        _show_installation(json_)
        return
    if (Path(name) / "recipe.toml").is_file():
        _show_run(Path(name), json_)
        return
    entries = find(name)
    show_entries(name, entries, json_)


def show_entries(name: str, entries: "Mapping[str, Entry]", as_json: bool) -> None:
    """Print what is known about a data set or a model, and verify its files. The exit status is 1
    if one is damaged."""
    known = {kind: _known_of(entry) for kind, entry in entries.items()}
    if as_json:
        facts = {kind: {**one.table(), "files": one.files} for kind, one in known.items()}
        typer.echo(json.dumps(facts, indent=2))
    else:
        sections = [
            "\n".join([f"{kind} {name}", *_description(known[kind], entry)])
            for kind, entry in entries.items()
        ]
        typer.echo("\n\n".join(sections))
    if any("damaged" in one.files.values() for one in known.values()):
        raise typer.Exit(1)


def _show_installation(as_json: bool) -> None:
    """Print what is installed, and what is known by name."""
    facts = gather()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for title, rows in facts.items():
        typer.echo(title)
        for item in rows.items():
            typer.echo(row(item))


def _show_run(run: Path, as_json: bool) -> None:
    """Print the recipe of a run and, once it is chosen, what its rows describe."""
    from whatwhere.classification.where import WHERE_FILE, read_choice
    from whatwhere.learning import read_run

    recipe = read_run(run).recipe
    choice = read_choice(run / WHERE_FILE)
    line = f"where: {recipe.descriptor.where} (the first command that describes images chooses)"
    if choice is not None:
        line = choice.line
    if as_json:
        typer.echo(json.dumps({"run": str(run), "recipe": repr(recipe), "where": line}, indent=2))
    else:
        typer.echo(f"{run}: {recipe!r}\n{line}")


def find(name: str) -> dict[str, "Entry"]:
    """Return the data set and the model of this name; at least one of them exists."""
    from whatwhere.data import models
    from whatwhere.data.catalogue import CATALOGUE

    entries: dict[str, Entry] = {}
    if name in CATALOGUE:
        entries["data set"] = CATALOGUE[name]
    if name in models.names():
        entries["model"] = models.find(name)
    if not entries:
        known = sorted({*models.names(), *CATALOGUE})
        raise UnknownChoice("data set or model", name, known)
    return entries


def _known_of(entry: "Entry") -> _Known:
    """Return what is known about a model or a data set, and the state of its files."""
    from whatwhere.data.catalogue import folder_of, missing_files, verify

    facts = {"title": entry.title, **entry.facts, "folder": str(folder_of(entry))}
    files = {file.name: str(verify(entry, file)) for file in entry.files}
    return _Known(facts, not missing_files(entry), files)


def _description(known: _Known, entry: "Entry") -> list[str]:
    """Return a model's card, or the facts of a data set, and the state of the files."""
    lines = [row(fact) for fact in known.table().items()]
    if entry.card:
        lines = _card_as_text(entry.card)
    folder = known.facts["folder"]
    states = [f"  {state:<9} {folder}/{name}" for name, state in known.files.items()]
    if not known.available:
        states.append(f"  not available: {entry.how_to_get}")
    return [*lines, "", *states]


def _card_as_text(card: str) -> list[str]:
    """Return a card in Markdown as text: without its title and its pictures; rows of a table as
    facts."""
    lines = []
    for line in card.splitlines()[1:]:
        text = line.replace("`", "")
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if text.startswith("!["):
            continue
        if text.startswith("|"):
            if any(cells) and not cells[0].startswith("---"):
                lines.append(row((cells[0], " ".join(cells[1:]))))
        else:
            lines.append(f"  {text}".rstrip())
    # blank lines where a picture or a title was
    kept = [line for line, last in zip(lines, ["", *lines], strict=False) if line or last]
    return kept[:-1] if kept and not kept[-1] else kept


def row(item: tuple[str, object]) -> str:
    return f"  {item[0]:<14} {item[1]}"


def gather() -> dict[str, dict[str, str]]:
    """Return the installed versions, the devices, the state of each engine, models and data
    sets."""
    import platform

    import torch

    from whatwhere.data import models
    from whatwhere.data.catalogue import CATALOGUE

    versions = {name: installed_version(name) for name in PACKAGES}
    devices = {
        "cpu": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"
    }
    for i in range(torch.cuda.device_count()):
        devices[f"cuda:{i}"] = torch.cuda.get_device_name(i)
    return {
        "versions": {"python": platform.python_version(), **versions},
        "devices": devices,
        "engines": _engine_states(),
        "models": {name: summary(models.find(name)) for name in models.names()},
        "data sets": {name: summary(entry) for name, entry in CATALOGUE.items()},
    }


def installed_version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def summary(entry: "Entry") -> str:
    from whatwhere.data.catalogue import missing_files

    text = entry.title
    if "result" in entry.facts:
        text += f" {entry.facts['result']}."
    if missing_files(entry):
        text += f" (not available: {entry.how_to_get})"
    return text


def _engine_states() -> dict[str, str]:
    """Tell for every engine: 'supported', or why not."""
    import torch

    from whatwhere.engines import unsupported_reasons
    from whatwhere.model import DeconvNet, Problem
    from whatwhere.spec import ModelSpec
    from whatwhere.spec.recipe import joint

    home = "cuda" if torch.cuda.is_available() else "cpu"
    model = DeconvNet(ModelSpec.paper()).to(home)
    image = torch.full((1, 1, 28, 28), 0.5, device=home)
    reasons = unsupported_reasons(Problem(model, image, joint(2)[0]))
    return {name: reason or "supported" for name, reason in reasons.items()}
