"""`whatwhere data`: download the named data sets, list them, verify them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from whatwhere.data.catalogue import Entry, FileSet

app = typer.Typer(no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="mnist, fashion-mnist or kmnist.")]
From = Annotated[
    Path | None, typer.Option("--from", metavar="DIR", help="Take the files from this folder, compressed or not.")
]


@app.callback()
def data() -> None:
    """Download the named data sets, list them, verify them. WHATWHERE_DATA sets another cache folder."""


@app.command("get")
def get(name: Name, source: From = None) -> None:
    """Download a data set, or take it from a folder, verify it and store it in the cache."""
    from whatwhere.data.cache import folder_of
    from whatwhere.data.catalogue import find

    entry = find(name)
    download_files(entry, source)
    typer.echo(f"{name}: {len(entry.files)} files verified in {folder_of(entry)}")
    typer.echo(f"licence: {entry.licence}\ncite: {entry.citation}")


def download_files(entry: FileSet, source: Path | None) -> None:
    """Bring files into the cache, with a bar for each that is downloaded."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from whatwhere.data.cache import download

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        download(entry, source, lambda file: _Bar(progress, file.download_name))


@app.command("list")
def list_sets(as_json: Json = False) -> None:
    """List the data sets and the folder of each."""
    from whatwhere.data.catalogue import CATALOGUE

    data_sets = [_location(entry) for entry in CATALOGUE.values()]
    if as_json:
        typer.echo(json.dumps(data_sets, indent=2))
        return
    for facts in data_sets:
        typer.echo(f"{facts['name']:<14} {facts['title']} ({facts['licence']})")
        place = f"in {facts['folder']}" if facts["available"] else f"not available: whatwhere data get {facts['name']}"
        typer.echo(f"{'':<14} {place}")


@app.command("check")
def check(
    names: Annotated[
        list[str] | None, typer.Argument(help="Data sets to verify (default: all that are available).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify the files of the data sets; the exit status is 1 unless all are intact."""
    from whatwhere.data.cache import FileStatus, verify
    from whatwhere.data.catalogue import CATALOGUE, find

    entries = [find(name) for name in names] if names else [e for e in CATALOGUE.values() if _location(e)["files"]]
    statuses = {entry.name: {file.name: verify(entry, file) for file in entry.files} for entry in entries}
    if as_json:
        typer.echo(json.dumps(statuses, indent=2))
    else:
        for name, files in statuses.items():
            for file, status in files.items():
                typer.echo(f"{status:<9} {name}/{file}")
    if any(status is not FileStatus.VERIFIED for files in statuses.values() for status in files.values()):
        raise typer.Exit(1)


def _location(entry: Entry) -> dict[str, Any]:
    """What `list` shows of a data set: whether it is complete, and which of its files are in the cache."""
    from whatwhere.data.cache import folder_of, missing_files

    folder = folder_of(entry)
    return {
        "name": entry.name,
        "title": entry.title,
        "licence": entry.licence,
        "citation": entry.citation,
        "folder": str(folder),
        "available": not missing_files(entry),
        "files": [file.name for file in entry.files if (folder / file.name).is_file()],
    }


class _Bar:
    """The progress of one file, with the methods that pooch calls; a single line if there is no terminal."""

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
