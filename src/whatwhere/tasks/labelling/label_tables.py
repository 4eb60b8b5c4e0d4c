"""Tables as CSV files: the labels that a person gave to some pictures, and the classes of all
pictures."""

import csv
import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from whatwhere.errors import ImageError, printable
from whatwhere.files import disk_errors, locked, read_regular, write_atomic

LONGEST = 1 << 26  # table of labels, in bytes
PATIENCE = 10.0  # seconds that a process waits for another one that writes
REMEDY = "make room, or choose another place"
NOT_SURE = "not sure"
"""What a person says of a picture that is to be left out: it has no class, and is not suggested
again."""

NONE_OF_THESE = "none of these"
"""A class like others, for pictures that belong to no other one."""


def read_labels(file: Path) -> dict[str, str]:
    """The classes by the names of pictures; a first line `file,class` is a heading."""
    try:
        lines = list(
            csv.reader(io.StringIO(read_regular(file, LONGEST).decode("utf-8-sig"), newline=""))
        )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImageError(
            f"{printable(file)} cannot be read as a table of labels: {error}"
        ) from error
    given: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (
            number == 1 and [cell.lower() for cell in cells] == ["file", "class"]
        ):
            continue
        where = f"line {number} of {printable(file)}"
        if len(cells) != 2 or not all(cells):
            raise ImageError(
                f"{where} is {','.join(line)!r}; expected the name of a picture and its class:"
                " cat1.png,cat"
            )
        if given.setdefault(cells[0], cells[1]) != cells[1]:
            raise ImageError(
                f"{where} gives {cells[0]!r} the class {cells[1]!r}; a line above gives it"
                " another one"
            )
    return given


def check_names(file: Path, labels: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise an error unless a table of labels fits these pictures and has at least two classes."""
    known = set(names)
    if other := next((name for name in labels if name not in known), None):
        raise ImageError(
            f"{printable(file)} names {other!r}; expected one of the pictures, such as {names[0]!r}"
        )
    count = len(set(labels.values()) - {NOT_SURE})
    if count < 2:
        raise ImageError(f"{printable(file)} names {count} classes; expected at least two")


def change(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Labels by the names of pictures with some changes, the newest last; None takes a
    label away."""
    rest = {name: label for name, label in labels.items() if name not in changes}
    return rest | {name: label for name, label in changes.items() if label is not None}


def change_labels(
    file: Path, changes: Mapping[str, str | None], before: Mapping[str, str]
) -> dict[str, str]:
    """Change a table of labels as it is on the disk now, where other processes may have changed it;
    returns all of it.

    before  the labels to start from if there is no such file
    """
    with disk_errors(f"writing {file}", REMEDY):
        file.parent.mkdir(parents=True, exist_ok=True)
        busy = (
            f"another process has been writing in {file.parent} for {PATIENCE:g} s; end it, or"
            " choose another table"
        )
        with locked(file.parent, busy, PATIENCE):
            labels = change(read_labels(file) if file.exists() else before, changes)
            _write(file, [["file", "class"], *map(list, labels.items())])
    return labels


def write_predictions(
    file: Path,
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> None:
    """Write a table of the class of every picture, its probability, and those of all classes.

    probabilities  [N, K]
    said           the rows whose class a person said; the others are predicted
    """
    _write_text(file, predictions_text(names, classes, probabilities, said))


def predictions_text(
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> str:
    """The table of `write_predictions` as text."""
    lines = [["file", "class", "probability", "source", *classes]]
    for row, shares in enumerate(probabilities if len(classes) else ()):
        best = int(shares.argmax())
        source = "said" if row in said else "predicted"
        lines.append(
            [
                names[row],
                classes[best],
                f"{shares[best]:.4f}",
                source,
                *(f"{p:.4f}" for p in shares),
            ]
        )
    return _as_text(lines)


def _write(file: Path, lines: Iterable[Sequence[str]]) -> None:
    _write_text(file, _as_text(lines))


def _as_text(lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _write_text(file: Path, text: str) -> None:
    with disk_errors(f"writing {file}", REMEDY):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, text.encode())
