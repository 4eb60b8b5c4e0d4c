"""Reading what a training left: the one reader of run folders and model files."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from whatwhere.data.models import names, resolve
from whatwhere.errors import RunError, command, did_you_mean, printable
from whatwhere.files import is_folder, is_regular, parse_json, read_regular
from whatwhere.learning.checkpoint import difference, settings
from whatwhere.learning.reports import EpochReport
from whatwhere.model import DeconvNet
from whatwhere.model import load as load_file
from whatwhere.spec import Recipe
from whatwhere.spec.toml import INCLUDED, override, read_recipe, read_toml

LONGEST_HISTORY = 2**25  # bytes
SECTIONS = ("model", "learning", "inference", "descriptor", "batch_size", "seed")  # in every recipe of a run


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its recipe and the history of its training.

    name     for titles and legends: the name of the folder or file
    recipe   every setting
    model    the trained model
    history  one `EpochReport` an epoch; empty for a model file
    folder   of the run; None for a model file, and where everything stayed in memory

    >>> ww.read_run("mnist")
    TrainedRun('mnist', Recipe(layers of 16 and 48 maps, 50 and 50 epochs, batch_size=1000, seed=0), 0 epochs)
    """

    name: str
    recipe: Recipe
    model: DeconvNet
    history: tuple[EpochReport, ...] = ()
    folder: Path | None = None

    def __repr__(self) -> str:
        last = f", cost {self.history[-1].cost:.4g} per image" if self.history else ""
        return f"TrainedRun({self.name!r}, {self.recipe!r}, {len(self.history)} epochs{last})"


def load(path: str | os.PathLike[str]) -> DeconvNet:
    """Read a model: by its name, or from its file, or from the folder of a run.

    A file of another format, a damaged one, or one whose tensors are not those of its spec raises a RunError.

    path     one of `ww.models.names()`, a model file, or a run folder; a file or a run of that name comes first
    returns  the model, on the CPU

    >>> model = ww.load("mnist")
    >>> model.spec.depth
    2
    """
    file = resolve(path)
    if file.name == os.fspath(path) != "" and not (is_regular(file) or is_folder(file)):
        raise RunError(
            f"{os.fspath(path)!r} was given as a model; there is no such file or folder, and no model of that name "
            f"(known by name: {', '.join(names())})"
        )
    return load_file(path if file == Path(path) else file)


def read_run(path: str | os.PathLike[str]) -> TrainedRun:
    """Read a run folder, or a model file, which has no history, and the included recipe of its name or the paper's.

    path  of the folder that training wrote, or of a .safetensors file; or the name of a model (`ww.models.names()`)

    >>> small = {"model": {"layers": [{"maps": 4}]}, "learning": {"each": {"epochs": 2, "inference": {"steps": 2}}}}
    >>> _ = ww.train(ww.data.load("digits")[:10], ww.override(ww.Recipe.paper(), small), out="runs/small")
    >>> run = ww.read_run("runs/small")
    >>> run.name, [epoch.epoch for epoch in run.history]
    ('small', [1, 2])
    """
    path = resolve(path)
    if is_regular(path):
        model = load_file(path)
        included = read_recipe(path.stem) if path.stem in INCLUDED else None
        recipe = included if included and included.model == model.spec else Recipe.paper(model.spec)
        return TrainedRun(path.stem, recipe, model)
    missing = [name for name in ("recipe.toml", "model.safetensors") if not is_regular(path / name)]
    if missing:
        absent = " and no ".join(missing)
        problem = f"there is no {absent} in it" if is_folder(path) else "there is no such folder, or file"
        create = command("whatwhere", "train", "--out", path)
        raise RunError(
            f"{printable(path)} was given as a run folder or a model file; {problem} ({create} creates a run)"
            f"{'' if is_folder(path) else did_you_mean(path.name, names())}"
        )
    model, recipe = load_file(path / "model.safetensors"), read_run_recipe(path)
    if recipe.model != model.spec:
        what = difference(settings(asdict(model.spec), "model"), settings(asdict(recipe.model), "model"))
        raise RunError(f"{printable(path)}: recipe.toml does not match model.safetensors: {what}; restore one of them")
    return TrainedRun(path.resolve().name, recipe, model, read_history(path / "history.jsonl"), path)


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe that a run wrote. It states every setting, so a missing one means damage, not the paper's value."""
    content = read_toml(folder / "recipe.toml")
    missing = [name for name in SECTIONS if name not in content]
    if missing:
        raise RunError(
            f"{printable(folder / 'recipe.toml')} lacks {', '.join(missing)}; expected every setting, as training "
            "wrote it (restore the file)"
        )
    return override(Recipe.paper(), content)


def read_history(path: Path) -> tuple[EpochReport, ...]:
    """The epochs of a run, one JSON object per line; empty if there is no such file."""
    if not os.path.lexists(path):
        return ()
    try:
        lines = read_regular(path, LONGEST_HISTORY).splitlines()
        return tuple(_epoch(line, number) for number, line in enumerate(lines, start=1) if line.strip())
    except OSError as error:
        raise RunError(f"{printable(path)} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise RunError(
            f"{printable(path)} is damaged: {error}; expected one JSON object per line, an epoch each "
            f"({command('whatwhere', 'train', '--resume', path.parent)} writes it again)"
        ) from None


def _epoch(line: bytes, number: int) -> EpochReport:
    """One line of a history; ValueError if it is not an epoch."""
    try:
        return EpochReport.of(parse_json(line))
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from None
