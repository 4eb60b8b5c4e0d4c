"""What commands are given: the folder of a run, a device, labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whatwhere.data import Images
    from whatwhere.model import DeconvNet
    from whatwhere.spec import Recipe


def open_run(folder: Path, device: str) -> tuple[Recipe, DeconvNet]:
    """The recipe of a run, and its model on a device ('auto': a GPU where there is one)."""
    from whatwhere.distributed import choose_device
    from whatwhere.errors import RunError
    from whatwhere.model import load
    from whatwhere.spec_toml import read_recipe

    missing = [name for name in ("recipe.toml", "model.safetensors") if not (folder / name).is_file()]
    if missing:
        found = f"there is no {' and no '.join(missing)} in it" if folder.is_dir() else "there is no such folder"
        raise RunError(f"{folder} was given as a run; {found} (`whatwhere train --out {folder}` makes one)")
    home = choose_device(device)
    return read_recipe(folder / "recipe.toml"), load(folder / "model.safetensors").to(home)


def source_of(run: Path) -> str:
    """The images that a run was trained on, where it noted them; else the embedded digits."""
    from whatwhere.cli.train import notes_of
    from whatwhere.storage import has_checkpoint

    return notes_of(run).get("source", "digits") if has_checkpoint(run / "checkpoint") else "digits"


def labelled(images: Images, option: str) -> Images:
    """The same images, refused where they have no labels."""
    from whatwhere.errors import ImageError

    if images.labels is None:
        raise ImageError(f"{images.name} brings no labels; give them with {option}, an IDX or .npy file")
    return images
