"""The outputs of commands (`claim` before the work, `write` after it), and their progress, on
standard error."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from whatwhere import files
from whatwhere.files import disk_errors, write_atomic, write_result
from whatwhere.progress import Pace

REMEDY = "free some disk space, or choose another path with --out"


def claim(
    outputs: Iterable[Path],
    *read: str | Path | None,
    folder: Path | None = None,
    overwrite: bool = False,
) -> None:
    """Raise an error, before anything is written, unless all of these files may be written
    (`files.claim`).

    Parameters
    ----------
    read
        what the command reads: runs, models, images by name or path; the figures of a run are its
        results. A recording stands for all of its files
    folder
        folder of results, if the outputs are in one; `write` records them there
    """
    from whatwhere.data.formats import is_recording_file, recordings  # torch, not for --help

    inputs = files.input_files(*read)
    inputs += [
        file
        for source in inputs
        if is_recording_file(source)
        for file in recordings().read_along(source)
    ]
    files.claim(outputs, inputs, folder=folder, overwrite=overwrite)


def write(path: Path, content: bytes, folder: Path | None = None) -> None:
    """Write a file, complete or not at all, and its folders.

    Parameters
    ----------
    folder
        folder of results, which has a record of the file
    """
    if folder is not None:
        write_result(folder, path, content, REMEDY)
        return
    with disk_errors(f"writing {path}", REMEDY):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


@dataclass(frozen=True)
class Report:
    """The result of a command, which it prints at its end.

    Parameters
    ----------
    facts
        facts for programs, as JSON (--json)
    words
        text for people
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
        # imported here, because rich is slow to import and `whatwhere --help` does not need it
        from rich.console import Console

        # titles hold names of files
        self.console = Console(stderr=True, quiet=quiet, highlight=False, markup=False)

    def note(self, text: str) -> None:
        """Print a line between two stages."""
        self.console.print(text, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int, done: int = 0) -> Iterator[Callable[[int], None]]:
        """Show one stage of `total` pieces; some may be done already. Call the function that it
        yields with the number of pieces just done."""
        import rich.progress as bars

        room = self.console.width - 2 * len(str(total)) - len(" / 100 min left ")
        is_wide = len(title) + 24 <= room  # a bar and a rate
        columns = (
            bars.TextColumn("{task.description}", markup=False),
            *((bars.BarColumn(),) if is_wide else ()),
            bars.MofNCompleteColumn(),
            *((bars.TextColumn("{task.fields[rate]}"),) if is_wide else ()),
            bars.TextColumn("{task.fields[time_left]}"),
        )
        start = time.monotonic()
        no_bar = self.console.quiet or not self.console.is_terminal
        if no_bar:
            self.console.print(f"{title} …", soft_wrap=True)
        pace = Pace(total, done)
        last_line = start
        with bars.Progress(
            *columns, console=self.console, transient=True, disable=no_bar
        ) as display:
            task = display.add_task(
                _shortened(title, room), total=total, completed=done, rate="", time_left=""
            )

            def advance(pieces: int) -> None:
                nonlocal last_line
                pace.add(pieces)
                display.update(task, advance=pieces, rate=pace.rate, time_left=pace.time_left)
                now = time.monotonic()
                if no_bar and pace.done < total and now - last_line >= 10:  # seconds
                    last_line = now
                    self.console.print(f"{title}: {_pace_words(pace)}", soft_wrap=True)

            yield advance
        self.console.print(f"{title}: {time.monotonic() - start:.1f} s", soft_wrap=True)


def _shortened(title: str, room: int) -> str:
    """Return a title that leaves room for the numbers behind it, in whole words."""
    if len(title) <= room:
        return title
    words = title[: max(room - 1, 1)].rpartition(" ")[0] or title[: max(room - 1, 1)]
    return f"{words.rstrip(',')}…"


def _pace_words(pace: Pace) -> str:
    """Return how much is done, and, once they are known, the rate and the time that is left."""
    words = [f"{pace.done:,} of {pace.total:,}", pace.rate, pace.time_left]
    return ", ".join(word for word in words if word)
