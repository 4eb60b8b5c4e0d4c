"""What commands write, `claim` before the work and `write` after it, and how far they are, on standard error."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import rich.progress as bars
from rich.console import Console

from whatwhere.files import claim_outputs, disk_errors, write_atomic


def claim(
    outputs: Iterable[Path], *read: str | Path | None, folder: Path | None = None, overwrite: bool = False
) -> None:
    """Raise an error, before anything is written, unless all of these files may be written (`files.claim_outputs`).

    read    what the command reads: runs, models, images by name or path; the figures of a run are its results
    folder  of results, if the outputs are in one
    """
    inputs = [file for source in read if source is not None for file in _files(Path(source))]
    claim_outputs(outputs, inputs, folder=folder, overwrite=overwrite)


def write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all, and its folders."""
    with disk_errors(f"writing {path}", "make room, or choose another place with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def _files(source: Path) -> Iterable[Path]:
    """A source; of a run its own files and its checkpoint, since results may lie in other folders of it."""
    if source.is_dir() and (source / "model.safetensors").exists():
        return [*(path for path in source.iterdir() if not path.is_dir()), source / "checkpoint"]
    return [source]


LINE_EVERY = 10.0  # seconds between plain lines


class Stages:
    """Stages one after the other; `quiet` says nothing."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False)  # titles hold names of files

    @contextmanager
    def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        """One stage of `total` pieces; call what it gives with the number of pieces just done."""
        start = time.monotonic()
        with self._bar(title, total) if self.console.is_terminal else self._lines(title, total) as advance:
            yield advance
        self.console.print(f"{title}: {time.monotonic() - start:.1f} s", soft_wrap=True)

    @contextmanager
    def _bar(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        columns = (
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        with bars.Progress(*columns, console=self.console, transient=True, disable=self.console.quiet) as display:
            task = display.add_task(title, total=total)
            yield lambda pieces: display.update(task, advance=pieces)

    @contextmanager
    def _lines(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
        done, said = 0, time.monotonic()
        self.console.print(f"{title} …", soft_wrap=True)

        def advance(pieces: int) -> None:
            nonlocal done, said
            done += pieces
            if time.monotonic() - said >= LINE_EVERY:
                said = time.monotonic()
                self.console.print(f"{title}: {done:,} of {total:,}", soft_wrap=True)

        yield advance
