"""The outputs of commands (`claim` before the work, `write` after it), and their progress, on
standard error."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from whatwhere.files import (
    check_outputs,
    claim_outputs,
    disk_errors,
    write_atomic,
    write_result,
)

REMEDY = "free some disk space, or choose another path with --out"


def claim(
    outputs: Iterable[Path],
    *read: str | Path | None,
    folder: Path | None = None,
    overwrite: bool = False,
    recorded: bool = False,
) -> None:
    """Raise an error, before anything is written, unless all of these files may be written
    (`files.check_outputs`).

    read      what the command reads: runs, models, images by name or path; the figures of a run are
              its results
    folder    folder of results, if the outputs are in one
    recorded  `write` records each of them with its content; otherwise their names are recorded now
    """
    inputs = [file for source in read if source is not None for file in _files(Path(source))]
    check = check_outputs if recorded else claim_outputs
    check(outputs, inputs, folder=folder, overwrite=overwrite)


def write(path: Path, content: bytes, folder: Path | None = None) -> None:
    """Write a file, complete or not at all, and its folders.

    folder  folder of results, which has a record of the file
    """
    if folder is not None:
        write_result(folder, path, content, REMEDY)
        return
    with disk_errors(f"writing {path}", REMEDY):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def _files(source: Path) -> Iterable[Path]:
    """The source; for a run, its own files and its checkpoint, since its other folders may hold
    results."""
    if source.is_dir() and (source / "model.safetensors").exists():
        return [*(path for path in source.iterdir() if not path.is_dir()), source / "checkpoint"]
    return [source]


LINE_SECONDS = 10.0  # from one line about progress to the next, where there is no bar


@dataclass(frozen=True)
class Report:
    """The result of a command, which it prints at its end.

    facts  facts for programs, as JSON (--json)
    words  text for people
    """

    facts: Mapping[str, object]
    words: str

    def text(self, as_json: bool) -> str:
        return json.dumps(self.facts) if as_json else self.words


@dataclass
class Stages:
    """Stages one after the other, each with a bar on a terminal and its time at the end; `quiet`
    shows nothing."""

    def __init__(self, quiet: bool = False) -> None:
        # here, and not above: `whatwhere --help` needs none of rich, whose import takes long
        from rich.console import Console

        # titles hold names of files
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False)

    def note(self, text: str) -> None:
        """A line between two stages."""
        self.console.print(text, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """One stage of `total` pieces, some of which may be done already; call the function that
        it yields with the number of pieces just done."""
        import rich.progress as bars

        columns = (
            bars.TextColumn("{task.description}", markup=False),
            bars.BarColumn(),
            bars.MofNCompleteColumn(),
            bars.TextColumn("{task.fields[rate]}"),
            bars.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        )
        start = time.monotonic()
        no_bar = self.console.quiet or not self.console.is_terminal
        if no_bar:
            self.console.print(f"{title} …", soft_wrap=True)
        pace = Pace(total, start, done, done)
        with bars.Progress(
            *columns, console=self.console, transient=True, disable=no_bar
        ) as display:
            task = display.add_task(title, total=total, completed=done, rate="")

            def advance(pieces: int) -> None:
                pace.add(pieces)
                display.update(task, advance=pieces, rate=pace.rate)
                if no_bar and pace.line_is_due():
                    self.console.print(f"{title}: {pace.words}", soft_wrap=True)

            yield advance
        self.console.print(f"{title}: {time.monotonic() - start:.1f} s", soft_wrap=True)


@dataclass
class Pace:
    """The pace of a stage, and when to print a line about it if there is no bar.

    started  when the stage began, by `time.monotonic`
    earlier  pieces that were done before
    """

    total: int
    started: float
    done: int = 0
    earlier: int = 0
    last_line: float = field(init=False)

    def __post_init__(self) -> None:
        self.last_line = self.started

    def add(self, pieces: int) -> None:
        self.done += pieces

    @property
    def per_second(self) -> float:
        return (self.done - self.earlier) / max(time.monotonic() - self.started, 1e-9)

    @property
    def rate(self) -> str:
        return f"{self.per_second:,.3g}/s"

    @property
    def words(self) -> str:
        """How much is done, the rate, and the time that is left."""
        left = (self.total - self.done) / max(self.per_second, 1e-9)
        return f"{self.done:,} of {self.total:,}, {self.rate}, {left:,.0f} s left"

    def line_is_due(self) -> bool:
        """Once in LINE_SECONDS."""
        now = time.monotonic()
        if self.done >= self.total or now - self.last_line < LINE_SECONDS:
            return False
        self.last_line = now
        return True
