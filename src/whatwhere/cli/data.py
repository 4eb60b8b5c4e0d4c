"""`whatwhere data`: get the named sets of images, list them, verify them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from whatwhere.data.catalogue import Entry

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="mnist, fashion-mnist or kmnist.")]
From = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder, packed or not.")
]


@app.callback()
def data() -> None:
    """Get the named sets of images, list them, verify them again. WHATWHERE_DATA names another cache folder."""


@app.command("get")
def get(name: Name, source: From = None) -> None:
    """Download a set, or take it from a folder, verify it and keep it in the cache."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from whatwhere.data.cache import folder_of
    from whatwhere.data.catalogue import find
    from whatwhere.data.obtain import obtain

    entry = find(name)
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        obtain(entry, source, lambda file: _Bar(progress, file.download_name))
    typer.echo(f"{name}: {len(entry.files)} files verified in {folder_of(entry)}")
    typer.echo(f"licence: {entry.licence}\ncite: {entry.citation}")


@app.command("list")
def list_sets(as_json: Json = False) -> None:
    """Say which sets there are, and where each is."""
    from whatwhere.data.catalogue import CATALOGUE

    sets = [_where(entry) for entry in CATALOGUE.values()]
    if as_json:
        typer.echo(json.dumps(sets, indent=2))
        return
    for facts in sets:
        typer.echo(f"{facts['name']:<14} {facts['title']} ({facts['licence']})")
        place = f"in {facts['folder']}" if facts["here"] else f"not here: whatwhere data get {facts['name']}"
        typer.echo(f"{'':<14} {place}")


@app.command("check")
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Sets to verify; all that are here by default.")] = None,
    as_json: Json = False,
) -> None:
    """Verify the files of the sets again; the exit status is 1 unless all are sound."""
    from whatwhere.data.cache import State, verify
    from whatwhere.data.catalogue import CATALOGUE, find

    entries = [find(name) for name in names] if names else [e for e in CATALOGUE.values() if _where(e)["files"]]
    states = {entry.name: {file.name: verify(entry, file) for file in entry.files} for entry in entries}
    if as_json:
        typer.echo(json.dumps(states, indent=2))
    else:
        for name, files in states.items():
            for file, state in files.items():
                typer.echo(f"{state:<9} {name}/{file}")
    if any(state is not State.VERIFIED for files in states.values() for state in files.values()):
        raise typer.Exit(1)


def _where(entry: Entry) -> dict[str, Any]:
    """What `list` says of a set: whether all of it is here, and which of its files are."""
    from whatwhere.data.cache import folder_of, missing_files

    folder = folder_of(entry)
    return {
        "name": entry.name,
        "title": entry.title,
        "licence": entry.licence,
        "citation": entry.citation,
        "folder": str(folder),
        "here": not missing_files(entry),
        "files": [file.name for file in entry.files if (folder / file.name).is_file()],
    }


class _Bar:
    """One file's progress, in the form pooch drives; where there is no terminal, a single line."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress = progress
        self.task: TaskID = progress.add_task(name, total=None)
        if progress.disable:
            progress.console.print(f"downloading {name}")

    @property
    def total(self) -> int:
        return int(self.progress.tasks[self.task].total or 0)

    @total.setter
    def total(self, size: int) -> None:
        self.progress.update(self.task, total=size or None)

    def update(self, size: int) -> None:
        self.progress.update(self.task, advance=size)

    def reset(self) -> None:
        self.progress.reset(self.task)

    def close(self) -> None:
        self.progress.stop_task(self.task)
