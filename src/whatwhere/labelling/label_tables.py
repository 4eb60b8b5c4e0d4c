"""Tables as CSV files: the labels that a person gave to some pictures, and the classes of all
pictures."""

import csv
import io
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from whatwhere.errors import ImageError, as_clause, printable
from whatwhere.files import read_regular, write_result
from whatwhere.labelling.name_matching import match_labels, quoted

LONGEST_TABLE = 1 << 26
"""Bytes of a table of labels."""

_LONGEST_CLASS = 200  # characters
_UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that no name of a class has: control, surrogate, line and paragraph
separator."""

FILE_HEADINGS = ("file", "filename", "file_name", "name", "image", "picture", "path")
CLASS_HEADINGS = ("class", "label", "category", "choice", "choices")
"""Headings of the columns of names and of classes in users' tables."""

PREDICTION_HEADING = ("file", "class", "probability", "source")
_LAST_PLACE = 10_000  # numbers have four decimal places
_SHARE_TEXTS = np.array([f"{n / _LAST_PLACE:.4f}" for n in range(_LAST_PLACE + 1)], dtype=object)
LABELLED = "labelled"
PREDICTED = "predicted"
"""The sources of a class in a table: a person, or the program."""

NOT_SURE = "not sure"
"""What a person says about a picture to leave out: it has no class, and is not suggested again."""

NONE_OF_THESE = "none of these"
"""A class like others, for pictures that belong to no other one."""


def check_class(name: str) -> str:
    """Return the name of a class without spaces at its ends; an ImageError for one that a table
    cannot hold."""
    name = name.strip()
    if not name:
        raise ImageError("Got an empty class; expected a name.")
    if len(name) > _LONGEST_CLASS:
        raise ImageError(
            f"The class has a name of {len(name):,} characters; expected at most {_LONGEST_CLASS}."
        )
    if any(unicodedata.category(char) in _UNWRITABLE for char in name):
        raise ImageError(
            f"The class {printable(name)} has line breaks, control characters or damaged"
            " characters; expected a name without them."
        )
    return name


def read_labels(file: Path) -> dict[str, str]:
    """Return the classes by the names of pictures, which are kept as they are; a first line such as
    `file,class` or `name,label` is a heading."""
    lines = _csv_lines(file)
    given: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and _is_heading(cells)):
            continue
        where = f"line {number} of {printable(file)}"
        if len(cells) != 2 or not line[0] or not cells[1]:
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
        return csv_cells(read_regular(file, LONGEST_TABLE).decode("utf-8-sig"))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImageError(
            f"Cannot read {printable(file)} as a table of labels: {as_clause(error)}."
        ) from error


def labels_of_pictures(
    file: Path, labels: Mapping[str, str], names: Sequence[str]
) -> dict[str, str]:
    """Return the classes of a table by the names of these pictures; the table may leave their
    folders out.

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
            " new pictures, use the classifier that this command writes: whatwhere classify NEW/"
            " OUT/classifier.safetensors --out NEW_OUT"
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


def write_predictions(
    file: Path,
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> None:
    """Write a table of the class of every picture, its probability, and the probabilities of all
    classes.

    Parameters
    ----------
    probabilities
        [N, K]; a picture whose probabilities are all 0 has no class yet, and gets empty cells
    said
        the rows whose class a person said; the others are predicted
    """
    content = predictions_text(names, classes, probabilities, said).encode()
    write_result(file.parent, file, content, "free some disk space, or choose another folder")


def predictions_text(
    names: Sequence[str],
    classes: Sequence[str],
    probabilities: np.ndarray,
    said: Collection[int],
) -> str:
    """Return the table of `write_predictions` as text."""
    lines = [[*PREDICTION_HEADING, *classes]]
    if len(classes):
        # A number has one of 10,001 texts: to look them up takes a sixth of the time of a format.
        shares = np.rint(_LAST_PLACE * probabilities).astype(int)
        best = probabilities.argmax(1).tolist()
        has_class: list[bool] = (probabilities.max(1) > 0).tolist()
        no_class = [""] * (len(PREDICTION_HEADING) - 1 + len(classes))
        for row, numbers in enumerate(_SHARE_TEXTS[shares].tolist()):
            if not has_class[row]:
                lines.append([names[row], *no_class])
                continue
            source = LABELLED if row in said else PREDICTED
            lines.append([names[row], classes[best[row]], numbers[best[row]], source, *numbers])
    return csv_text(lines)


def csv_text(lines: Iterable[Sequence[str]]) -> str:
    r"""Return lines of cells as a CSV table that `csv_cells` reads back, whatever the cells hold.

    >>> csv_text([["a\rb", 'c"d'], ["e", "f"]])
    '"a\rb","c""d"\ne,f\n'
    """
    text = _UnixLines()
    # Cells with line breaks of any kind are quoted only if the end of a line has both kinds.
    csv.writer(text, lineterminator="\r\n").writerows(lines)
    return "".join(text.lines)


class _UnixLines:
    """Takes the lines of a csv.writer, and ends each with a line feed alone."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, line: str) -> None:
        """Take one line."""
        self.lines.append(line.removesuffix("\r\n") + "\n")


def csv_cells(text: str, delimiter: str = ",") -> list[list[str]]:
    """Return the cells of a CSV table, line by line; raises csv.Error."""
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=False))
