"""`whatwhere models`: the models known by name, with their numbers; the card of one; downloading a large one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from whatwhere.cli.data import From, download_files
from whatwhere.cli.options import Json

SHOWN = ("data", "licence", "result", "file")  # of a card, in the list


def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Show the card of this model.")] = None,
    get: Annotated[bool, typer.Option("--get", help="Download the model, if it is not here yet.")] = False,
    source: From = None,
    as_json: Json = False,
) -> None:
    """List the trained models that commands accept by name in place of a run, or show the card of one.

    Small models are part of the package. A large one is downloaded with --get, verified and stored in the cache.
    """
    from whatwhere.data.cache import folder_of
    from whatwhere.data.models.catalogue import find, names
    from whatwhere.errors import SpecError

    if name is None:
        if get or source:
            raise SpecError(
                "--get and --from were given without a model; expected a name (whatwhere models lists them)"
            )
        list_models([_facts(each) for each in names()], as_json)
        return
    entry = find(name)
    if get or source:
        download_files(entry, source)
        typer.echo(f"{name}: {entry.files[0].name} verified in {folder_of(entry)}")
    else:
        typer.echo(json.dumps(_facts(name), indent=2) if as_json else entry.card.rstrip())


def list_models(models: list[dict[str, Any]], as_json: bool) -> None:
    """Print what is known of every model."""
    if as_json:
        typer.echo(json.dumps(models, indent=2))
        return
    for facts in models:
        place = "" if facts["available"] else f" (not available: whatwhere models {facts['name']} --get)"
        typer.echo(f"{facts['name']:<14} {facts['title']}{place}")
        for key in SHOWN:
            typer.echo(f"{'':<14} {key}: {facts[key]}")


def _facts(name: str) -> dict[str, Any]:
    """The rows of a model's card, its title, and whether its file is here."""
    from whatwhere.data.cache import missing_files
    from whatwhere.data.models.catalogue import find

    entry = find(name)
    return {"name": name, "title": entry.title, "available": not missing_files(entry), **entry.facts}
