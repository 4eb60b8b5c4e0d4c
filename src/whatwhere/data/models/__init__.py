"""Trained models by name: `ww.load("mnist")`. A model's card, NAME.md, describes it: a title, a
figure, a table."""

import os
import re
from pathlib import Path

from whatwhere.data.catalogue import Entry, File, verified_path
from whatwhere.data.models import hub
from whatwhere.errors import UnknownModel

FOLDER = Path(__file__).parent
_ROW = re.compile(r"^\| (?P<key>[^|]+?) \| (?P<value>.+) \|$", re.MULTILINE)

__all__ = ["card", "names", "path"]


def names() -> tuple[str, ...]:
    """Return the names of the trained models that come with the package or can be downloaded.

    >>> ww.models.names()
    ('digits-demo', 'fashion', 'mnist', 'photographs')
    """
    return tuple(sorted(card.stem for card in FOLDER.glob("*.md")))


def find(name: str) -> Entry:
    """Return the model of this name, as its card describes it."""
    if name not in names():
        raise UnknownModel("model", name, names())
    card = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    title = card.split("\n\n")[1].replace("\n", " ")
    facts = {
        row["key"]: row["value"].replace("`", "")
        for row in _ROW.finditer(card)
        if row["key"] != "---"
    }
    file, size = facts["file"].removesuffix(" bytes").split(", ")
    files = (File(file, facts["sha256"], int(size.replace(",", ""))),)
    return Entry(name, title, files, facts, embedded=FOLDER, card=card)


def path(name: str) -> Path:
    """Return the file of a model that is known by name, after its checksum is verified.

    Parameters
    ----------
    name
        one of `names`

    Examples
    --------
    >>> ww.models.path("mnist").name
    'mnist.safetensors'
    """
    entry = find(name)
    return verified_path(entry, entry.files[0])


def card(name: str) -> str:
    """Return the card of a model, in Markdown: data, licence, recipe, error, checksum.

    Parameters
    ----------
    name
        one of `names`

    Examples
    --------
    >>> print(ww.models.card("mnist").splitlines()[0])
    # mnist
    """
    return find(name).card


def resolve(given: str | os.PathLike[str]) -> Path:
    """Return what a path or a name stands for: a run folder or a model file of that name if there
    is one, otherwise the model that is known by the name. An address hf://… is downloaded."""
    if os.fspath(given).startswith(hub.PREFIX):
        return hub.download(os.fspath(given))
    file = Path(given)
    if (
        os.path.isfile(file)
        or os.path.isfile(file / "model.safetensors")
        or os.fspath(file) not in names()
    ):
        return Path(given)
    return path(os.fspath(file))


def example_images(given: str | os.PathLike[str]) -> str | None:
    """Return the data set that the card of a known model names, to try the model on; None for a
    file or a run, whose images nobody knows, and for a card that names none."""
    if resolve(given) == Path(given):
        return None
    return find(os.fspath(Path(given))).facts.get("example images")
