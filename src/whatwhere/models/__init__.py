"""Trained models that ship with the package; each has a card of the same name (Markdown)."""

from __future__ import annotations

from pathlib import Path

from whatwhere.errors import RunError

FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The models that ship with the package.

    >>> "mnist" in ww.models.names()
    True
    """
    return tuple(sorted(file.stem for file in FOLDER.glob("*.safetensors")))


def path(name: str) -> Path:
    """The file of a model that ships with the package.

    name  one of `names`

    >>> ww.models.path("mnist").name
    'mnist.safetensors'
    """
    if name not in names():
        raise RunError(f"{name!r} was given as a model; the package ships {', '.join(names())}")
    return FOLDER / f"{name}.safetensors"
