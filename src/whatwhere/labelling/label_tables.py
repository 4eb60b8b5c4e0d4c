"""Tables as CSV files: the labels that a person gave to some pictures, and the classes of all
pictures."""

import csv
import io
import os
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from whatwhere.errors import ImageError, RunError, printable
from whatwhere.files import (
    disk_errors,
    locked,
    open_regular,
    read_regular,
    read_results,
    write_atomic,
    write_result,
)
from whatwhere.labelling.name_matching import match_labels, quoted

LONGEST = 1 << 26  # table of labels, in bytes
PATIENCE = 10.0  # seconds that a process waits for another one that writes
LONGEST_CLASS = 200  # characters
UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that no name of a class has: control, surrogate, line and paragraph
separator."""

FILE_HEADINGS = ("file", "filename", "file_name", "name", "image", "picture", "path")
CLASS_HEADINGS = ("class", "label", "category", "choice", "choices")
"""Headings of the columns of names and of classes in users' tables."""

HEADING = ("file", "class", "probability", "source")
HEADING_BYTES = ",".join(HEADING).encode()
LAST_PLACE = 10_000  # numbers have four decimal places
SHARE_TEXTS = np.array([f"{n / LAST_PLACE:.4f}" for n in range(LAST_PLACE + 1)], dtype=object)
REMEDY = "free some disk space, or choose another folder"
LABELLED = "labelled"  # the source of a class in a table; otherwise "predicted"
NOT_SURE = "not sure"
"""What a person says about a picture to leave out: it has no class, and is not suggested again."""

NONE_OF_THESE = "none of these"
"""A class like others, for pictures that belong to no other one."""


def check_class(name: str) -> str:
    """The name of a class without spaces at its ends; an ImageError for one that a table cannot
    hold."""
    name = name.strip()
    if not name:
        raise ImageError("Got an empty class; expected a name.")
    if len(name) > LONGEST_CLASS:
        raise ImageError(
            f"The class has a name of {len(name):,} characters; expected at most {LONGEST_CLASS}."
        )
    if any(unicodedata.category(char) in UNWRITABLE for char in name):
        raise ImageError(
            f"The class {printable(name)} has line breaks, control characters or damaged"
            " characters; expected a name without them."
        )
    return name


def read_labels(file: Path) -> dict[str, str]:
    """The classes by the names of pictures, which are kept as they are; a first line such as
    `file,class` or `name,label` is a heading."""
    lines = _csv_lines(file)
    given: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and _is_heading(cells)):
            continue
        where = f"line {number} of {printable(file)}"
        if len(cells) != 2 or not all(cells):
            raise ImageError(
                f"{where} is {quoted(','.join(line))}; expected the name of a picture and its"
                " class, such as cat1.png,cat"
            )
        name = line[0]
        label = cells[1]
        if given.setdefault(name, label) != label:
            raise ImageError(
                f"{where} gives {quoted(name)} the class {quoted(label)}, but an earlier line"
                " gives it another class. Remove one of these lines."
            )
    return given


def _is_heading(cells: Sequence[str]) -> bool:
    words = [cell.lower() for cell in cells]
    return len(words) == 2 and words[0] in FILE_HEADINGS and words[1] in CLASS_HEADINGS


def _csv_lines(file: Path) -> list[list[str]]:
    try:
        text = read_regular(file, LONGEST).decode("utf-8-sig")
        return list(csv.reader(io.StringIO(text, newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImageError(f"Cannot read {printable(file)} as a table of labels: {error}.") from error


def labels_of_pictures(
    file: Path, labels: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """The classes of a table by the names of these pictures; the table may leave their folders out.

    Raises an error unless all names of the table are pictures, of at least two classes.
    """
    matched, unknown = match_labels(labels.items(), file, names)
    known = set(names)
    # A name with another folder may mean another picture.
    elsewhere = [name for name in labels if name not in known and "/" in name]
    if others := [*unknown, *elsewhere]:
        raise ImageError(
            f"{printable(file)} labels {quoted(others[0])}; expected the name of one of the"
            f" pictures, such as {names[0]!r}. Labels are for pictures of this folder. To classify"
            " new pictures, use the classifier that this command writes: whatwhere classify"
            " OUT/classifier.safetensors NEW/ --out NEW_OUT"
        )
    classes = {check_class(label) for label in matched.values()} - {NOT_SURE}
    if not classes:
        raise ImageError(
            f"{printable(file)} has no class; expected pictures of at least two classes."
        )
    if len(classes) == 1:
        only = printable(classes.pop())
        raise ImageError(
            f"{printable(file)} has only the class {only}; expected pictures of at least two"
            " classes."
        )
    return matched


def change(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Labels by the names of pictures with some changes, the newest last; None takes a
    label away."""
    rest = {name: label for name, label in labels.items() if name not in changes}
    said = {name: label for name, label in changes.items() if label is not None}
    return rest | said


def change_labels(
    file: Path, changes: Mapping[str, str | None], before: Mapping[str, str]
) -> dict[str, str]:
    """Change the current table of labels on the disk, where other processes may have changed it;
    returns all of it.

    before  the labels to start from if there is no such file
    """
    with disk_errors(f"writing {file}", REMEDY):
        file.parent.mkdir(parents=True, exist_ok=True)
        busy = (
            f"Another process has been writing to {file.parent} for {PATIENCE:g} s. Stop it, or"
            " choose another table."
        )
        with locked(file.parent, busy, PATIENCE):
            labels = change(read_labels(file) if file.exists() else before, changes)
            lines = [["file", "class"], *map(list, labels.items())]
            write_atomic(file, _as_text(lines).encode())
    return labels


def check_predictions(file: Path) -> None:
    """Raise a RunError if a file is there that the program did not write."""
    if not os.path.lexists(file):
        return
    result = read_results(file.parent).get(file.name)
    if result is None or not os.path.isfile(file):
        is_own = _begins_like_predictions(file)
    else:
        is_own = result.wrote(file)
    if not is_own:
        raise RunError(
            f"{printable(file)} is not a file that whatwhere wrote, or it has changed since. Move"
            " it, or choose another folder for the labels."
        )


def _begins_like_predictions(file: Path) -> bool:
    """Whether a file has the heading of predictions: earlier versions left no record of them."""
    try:
        with open_regular(file) as opened:
            return opened.read(len(HEADING_BYTES)) == HEADING_BYTES
    except OSError:
        return False


def write_predictions(
    file: Path,
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> None:
    """Write a table of the class of every picture, its probability, and those of all classes.

    probabilities  [N, K]; a picture whose probabilities are all 0 has no class yet, and gets empty
                   cells
    said           the rows whose class a person said; the others are predicted
    """
    content = predictions_text(names, classes, probabilities, said).encode()
    write_result(file.parent, file, content, REMEDY)


def predictions_text(
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> str:
    """The table of `write_predictions` as text."""
    lines = [[*HEADING, *classes]]
    if len(classes):
        # A number has one of 10,001 texts: to look them up takes a sixth of the time of a format.
        shares = np.rint(LAST_PLACE * probabilities).astype(int)
        best = probabilities.argmax(1).tolist()
        has_class: list[bool] = (probabilities.max(1) > 0).tolist()
        no_class = [""] * (len(HEADING) - 1 + len(classes))
        for row, numbers in enumerate(SHARE_TEXTS[shares].tolist()):
            if not has_class[row]:
                lines.append([names[row], *no_class])
                continue
            source = LABELLED if row in said else "predicted"
            lines.append([names[row], classes[best[row]], numbers[best[row]], source, *numbers])
    return _as_text(lines)


def _as_text(lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
