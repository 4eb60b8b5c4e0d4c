"""What commands receive: a run folder or a model file, a source of images, labelled images."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whatwhere.data import Images
    from whatwhere.model import DeconvNet
    from whatwhere.spec import Recipe


def open_run(run: Path, device: str) -> tuple[Recipe, DeconvNet]:
    """The recipe and the model of a run folder or a model file, on a device ('auto': a GPU where there is one).

    A model file does not contain a recipe: the paper's settings are used with it.
    """
    from dataclasses import replace

    from whatwhere.distributed import choose_device
    from whatwhere.errors import RunError
    from whatwhere.model import load
    from whatwhere.regular_file import is_folder, is_regular
    from whatwhere.spec import Recipe
    from whatwhere.spec_toml import read_recipe

    if is_regular(run):
        model = load(run).to(choose_device(device))
        paper = Recipe.paper()
        learning = (paper.learning[0], *[paper.learning[1]] * (model.spec.depth - 1))
        return replace(paper, model=model.spec, learning=learning), model
    missing = [name for name in ("recipe.toml", "model.safetensors") if not is_regular(run / name)]
    if missing:
        reason = f"there is no {' and no '.join(missing)} in it" if is_folder(run) else "there is no such folder"
        command = f"whatwhere train --out {shlex.quote(str(run))}"
        raise RunError(f"{run} was given as a run folder or a model file; {reason} (`{command}` creates a run)")
    recipe, model = read_recipe(run / "recipe.toml"), load(run / "model.safetensors")
    if recipe.model != model.spec or not (run / "recipe.toml").stat().st_size:
        raise RunError(f"{run}: recipe.toml does not belong to model.safetensors; put back the file that was replaced")
    return recipe, model.to(choose_device(device))


def source_of(run: Path) -> str:
    """The images that a run was trained on, where it recorded them; otherwise the included digits."""
    from whatwhere.cli.train import notes_of
    from whatwhere.storage import has_checkpoint

    return notes_of(run).get("source", "digits") if has_checkpoint(run / "checkpoint") else "digits"


def absolute_source(source: str) -> str:
    """The source as a run records it: a name of a data set as it is, a path in full."""
    from whatwhere.data.catalogue import CATALOGUE

    return source if source in CATALOGUE else str(Path(source).absolute())


def labelled(images: Images, option: str) -> Images:
    """The same images; raises an error if they have no labels."""
    from whatwhere.errors import ImageError

    if images.labels is None:
        raise ImageError(f"{images.name} has no labels; give them with {option}, an IDX or .npy file")
    return images
