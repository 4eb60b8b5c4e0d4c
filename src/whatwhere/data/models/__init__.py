"""Trained models by name: `ww.load("mnist")`. Each has a card (Markdown) with its data, recipe and error."""

from __future__ import annotations

import os
from pathlib import Path

from whatwhere.data.cache import missing_files, verified_path
from whatwhere.data.models.catalogue import find, names
from whatwhere.errors import RunError
from whatwhere.files import is_regular

EXAMPLES = "digits"  # images for a model whose card names none

__all__ = ["card", "names", "path"]


def path(name: str) -> Path:
    """The file of a model that is known by name; its checksum is compared at its first use.

    name  one of `names`

    >>> ww.models.path("mnist").name
    'mnist.safetensors'
    """
    entry = find(name)
    if missing_files(entry):
        raise RunError(f"the model {name!r} is not on this machine; `{entry.how_to_get}` downloads it")
    return verified_path(entry, entry.files[0])


def card(name: str) -> str:
    """The card of a model, in Markdown: data, licence, recipe, error, checksum.

    name  one of `names`

    >>> print(ww.models.card("mnist").splitlines()[0])
    # mnist
    """
    return find(name).card


def resolve(given: str | os.PathLike[str]) -> Path:
    """What a path or a name stands for: a run folder or a model file of that name if there is one, else the model."""
    file = Path(given)
    if is_regular(file) or is_regular(file / "model.safetensors") or os.fspath(file) not in names():
        return Path(given)
    return path(os.fspath(file))


def example_images(given: str | os.PathLike[str]) -> str:
    """The data set that the card of a model names, to try it on; for a file that has no card, the included digits."""
    name = os.fspath(Path(given))
    return find(name).facts.get("example images", EXAMPLES) if resolve(given) != Path(given) else EXAMPLES
