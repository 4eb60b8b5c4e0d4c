"""A person's marks of pictures, as the page of anomalies saves them: which alarms were false, and
which pictures have a defect."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whatwhere.anomaly.pictures import PictureList, open_pictures, some_of, together
from whatwhere.errors import ImageError, RunError, as_clause, listed, printable
from whatwhere.files import read_regular

_HEADING = ["picture", "mark", "folder"]
_LONGEST = 1 << 26  # bytes of a table
_DEFECT = "defect"
_FALSE_ALARM = "false alarm"
_NOT_SURE = "not sure"


class MarksError(RunError):
    """A table of marks that cannot be used.

    Attributes
    ----------
    file
        the table
    given
        what is wrong with it
    expected
        what a table has
    """

    def __init__(self, file: Path, given: str, expected: str) -> None:
        self.file = file
        self.given = given
        self.expected = expected
        super().__init__(
            f"Cannot use {printable(file)} as a table of marks: {given}; expected {expected}. Save"
            " the table again from the page of anomalies."
        )


@dataclass(frozen=True)
class Marks:
    """The marks of pictures by their folders and names.

    Parameters
    ----------
    file
        the table
    folder
        folder → name → mark
    """

    file: Path
    folders: Mapping[str, Mapping[str, str]]

    @classmethod
    def read(cls, file: Path) -> "Marks":
        """Read the table that the page of anomalies saves: picture, mark and folder."""
        try:
            text = read_regular(file, _LONGEST).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise MarksError(
                file, f"it cannot be read ({as_clause(error)})", "a CSV table"
            ) from error
        lines = [line for line in csv.reader(io.StringIO(text)) if line]
        heading = ",".join(_HEADING)
        if not lines or lines[0] != _HEADING:
            given = ",".join(lines[0])[:60] if lines else "nothing"
            raise MarksError(file, f"its first line is {given!r}", heading)
        folders: dict[str, dict[str, str]] = {}
        for number, line in enumerate(lines[1:], start=2):
            if len(line) != len(_HEADING) or line[1] not in (_DEFECT, _FALSE_ALARM, _NOT_SURE):
                marks = listed([_DEFECT, _FALSE_ALARM, _NOT_SURE])
                raise MarksError(
                    file,
                    f"line {number} is {','.join(line)[:60]!r}",
                    f"{heading}, with the mark {marks}",
                )
            name, mark, folder = line
            folders.setdefault(folder, {})[name] = mark
        return cls(file, folders)

    @property
    def sources(self) -> list[str]:
        """The folders of the pictures, as paths of inputs."""
        return list(self.folders)

    def normal(self, source: PictureList, folder: str) -> PictureList:
        """Give the normal pictures to fit to: those of `folder` that are not marked as a defect or
        as unsure, and the false alarms of other folders."""
        here = self._of_same(folder)
        rows = [
            row
            for row, name in enumerate(source.names)
            if here.get(printable(name), _FALSE_ALARM) == _FALSE_ALARM
        ]
        kept = source if len(rows) == len(source) else some_of(source, rows)
        elsewhere = [one for one in self.folders if not _is_same(one, folder)]
        return together([kept, *self._marked(_FALSE_ALARM, elsewhere)])

    def defects(self) -> PictureList | None:
        """Give the pictures that are marked as defects; None without any."""
        found = self._marked(_DEFECT, self.folders)
        return together(found) if found else None

    def _of_same(self, folder: str) -> Mapping[str, str]:
        for one, marks in self.folders.items():
            if _is_same(one, folder):
                return marks
        return {}

    def _marked(self, mark: str, folders: Iterable[str]) -> list[PictureList]:
        found = []
        for folder in folders:
            names = [name for name, given in self.folders[folder].items() if given == mark]
            if names:
                found.append(self._open(folder, names))
        return found

    def _open(self, folder: str, names: Sequence[str]) -> PictureList:
        source = open_pictures(folder)
        rows = {printable(name): row for row, name in enumerate(source.names)}
        if missing := [name for name in names if name not in rows]:
            raise ImageError(
                f"{printable(self.file)} marks {missing[0]!r}, but {printable(folder)} has no"
                " picture of that name. Put the picture back, or remove the line."
            )
        return some_of(source, [rows[name] for name in names])


def _is_same(folder: str, other: str) -> bool:
    return Path(folder).resolve() == Path(other).resolve()
