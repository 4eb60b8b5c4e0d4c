"""Reading what a training left: the one reader of run folders and model files."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whatwhere.errors import RunError, SpecError
from whatwhere.learning.recipe_changes import difference, settings
from whatwhere.learning.reports import EpochReport
from whatwhere.messages import command, printable
from whatwhere.model import DeconvNet, load
from whatwhere.regular_file import is_regular, read_regular
from whatwhere.spec import Recipe
from whatwhere.spec_toml import override, parse_toml, read_toml, to_toml
from whatwhere.storage import has_checkpoint, load_checkpoint

LONGEST_HISTORY = 2**28  # bytes
SECTIONS = ("model", "learning", "inference", "descriptor", "batch_size", "seed")  # in every recipe of a run


@dataclass(frozen=True)
class TrainedRun:
    """A trained model, its recipe and the history of its training; `name` is for titles and legends."""

    name: str
    recipe: Recipe
    model: DeconvNet
    history: tuple[EpochReport, ...] = ()

    def __repr__(self) -> str:
        return f"TrainedRun({self.name!r}, {self.recipe!r}, {len(self.history)} epochs)"


def read_run(path: str | os.PathLike[str]) -> TrainedRun:
    """Read a run folder, or a model file, which has the paper's recipe and no history."""
    path = Path(path)
    if is_regular(path):
        model = load(path)
        return TrainedRun(path.stem, Recipe.paper(model.spec), model)
    missing = [name for name in ("recipe.toml", "model.safetensors") if not is_regular(path / name)]
    if missing:
        absent = " and no ".join(missing)
        problem = f"there is no {absent} in it" if os.path.isdir(path) else "there is no such folder, or file"
        create = command("whatwhere", "train", "--out", path)
        raise RunError(
            f"{printable(path)} was given as a run folder or a model file; {problem} ({create} creates a run)"
        )
    model, recipe = load(path / "model.safetensors"), read_run_recipe(path)
    if recipe.model != model.spec:
        recorded, stored = to_toml(recipe), to_toml(Recipe.paper(model.spec))
        what = difference(settings(parse_toml(stored, "")), settings(parse_toml(recorded, "")), "model.")
        raise RunError(f"{printable(path)}: recipe.toml does not match model.safetensors: {what}; restore one of them")
    return TrainedRun(path.resolve().name, recipe, model, read_history(path))


def read_run_recipe(folder: Path) -> Recipe:
    """The recipe that a run wrote. It states every setting, so a missing one means damage, not the paper's value."""
    content = read_toml(folder / "recipe.toml")
    written = recipe_in_checkpoint(folder)
    present = settings(content)
    missing = [name for name in SECTIONS if name not in content] or [name for name in written if name not in present]
    if missing:
        raise RunError(
            f"{printable(folder / 'recipe.toml')} lacks {', '.join(missing[:4])}{', …' if len(missing) > 4 else ''}; "
            "expected every setting, as training wrote it (restore the file)"
        )
    return override(Recipe.paper(), content)


def recipe_in_checkpoint(folder: Path) -> dict[str, Any]:
    """The settings in the run's checkpoint by their full names; empty if there is none that can be read."""
    if not has_checkpoint(folder / "checkpoint"):
        return {}
    try:
        return settings(parse_toml(load_checkpoint(folder / "checkpoint").recipe, "the checkpoint's recipe"))
    except (RunError, SpecError):
        return {}


def read_history(folder: Path) -> tuple[EpochReport, ...]:
    """The epochs of a run; empty if it has no history, as when a model was saved by hand."""
    path = folder / "history.jsonl"
    if not path.exists():
        return ()
    try:
        lines = read_regular(path, LONGEST_HISTORY).decode("utf-8").splitlines()
        return tuple(EpochReport.of(json.loads(line)) for line in lines if line.strip())
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        remedy = f"{command('whatwhere', 'train', '--resume', folder)} writes it again"
        raise RunError(f"{printable(path)} is damaged, it is not one JSON object a line: {error}; {remedy}") from None
