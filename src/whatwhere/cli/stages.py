"""What a command is doing and how far it is: a bar a stage on a terminal, plain lines elsewhere, on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import rich.progress as bars
from rich.console import Console

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
    def named(self) -> Iterator[Callable[[str, float], None]]:
        """Stages whose names come with the share that is done: a new name begins a stage."""
        current, percent = "", 0
        advance: Callable[[int], None]
        with ExitStack() as stage:

            def progress(name: str, share: float) -> None:
                nonlocal current, percent, advance
                if name != current:
                    stage.close()
                    current, percent, advance = name, 0, stage.enter_context(self.stage(name, 100))
                advance(int(100 * share) - percent)
                percent = int(100 * share)

            yield progress

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
