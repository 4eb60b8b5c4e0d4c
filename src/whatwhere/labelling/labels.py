"""The labels of a session: what a person said about which row, and how to take it back.

They are kept in memory or in a table (`label_file.LabelFile`) that other processes may change,
too.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from whatwhere.errors import ImageError
from whatwhere.labelling.label_file import LabelFile, changed
from whatwhere.labelling.label_tables import NOT_SURE, check_class
from whatwhere.labelling.name_matching import other_spellings

Key = int | str
GivenLabels = Mapping[int, str | None] | Mapping[str, str | None] | Mapping[Key, str | None]
"""Classes by the names or the numbers of pictures; None takes a label away."""


class Labels:
    """What a person said about the pictures of a session.

    Parameters
    ----------
    keys
        what the pictures are called: names, or numbers
    earlier
        pictures by names that earlier versions gave them
    file
        the table that holds the labels; None keeps them in memory alone

    Public attributes: `said`, the classes by row; `elsewhere`, labels of pictures that are not here
    now; `history`, what each action replaced; `prompted` and `unprompted`, the rows that were
    suggested, and those that a person chose to label.
    """

    def __init__(
        self, keys: Sequence[Key], earlier: Mapping[str, str], file: LabelFile | None = None
    ) -> None:
        self.keys = list(keys)
        self.names = [str(key) for key in keys]
        self.file = file
        self.other_names = other_spellings(self.names) | dict(earlier)
        """Pictures by what a table may call them besides their names."""
        self.said: dict[int, str] = {}
        self.elsewhere: dict[str, str] = {}
        self.history: list[dict[int, str | None]] = []
        self.prompted: set[int] = set()
        self.unprompted: set[int] = set()
        self._index = {name: row for row, name in enumerate(self.names)}
        if file is not None:
            self._take(file.read())

    def row(self, key: Key) -> int:
        """Return the row of a name or a number."""
        if isinstance(key, str) and key in self._index:
            return self._index[key]
        if isinstance(key, int | np.integer) and not isinstance(key, bool):
            row = int(key)
            if 0 <= row < len(self.keys):
                return row
        raise ImageError(
            f"Unknown picture {key!r}. Expected the name or the number of a picture, such as"
            f" {self.keys[0]!r}."
        )

    def say(self, labels: GivenLabels) -> None:
        """Give pictures their classes, by name or number; None takes a label away."""
        rows = {
            self.row(key): None if name is None else check_class(str(name))
            for key, name in labels.items()
        }
        self.history.append({row: self.said.get(row) for row in rows})
        self.unprompted |= set(rows) - self.prompted
        self._change(rows)

    def undo(self) -> bool:
        """Take the last action back; return False if there is none."""
        if not self.history:
            return False
        self._change(self.history.pop())
        return True

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return sorted(set(self.said.values()) - {NOT_SURE})

    @property
    def labelled(self) -> list[int]:
        """The rows that have a class from a person."""
        return [row for row, name in self.said.items() if name != NOT_SURE]

    def classes_of(self, rows: Iterable[int]) -> list[str]:
        """Return what a person said about these rows."""
        return [self.said[row] for row in rows]

    def _change(self, rows: Mapping[int, str | None]) -> None:
        labels = {self.names[row]: name for row, name in self.said.items()} | self.elsewhere
        changes = {self.names[row]: name for row, name in rows.items()}
        # A picture is not in the table under two names.
        changes |= {
            other: None
            for other, name in self.other_names.items()
            if name in changes and other not in self.elsewhere
        }
        if self.file is None:
            self._take(changed(labels, changes))
        else:
            self._take(self.file.change(changes, labels))

    def _take(self, labels: Mapping[str, str]) -> None:
        said: dict[int, str] = {}
        elsewhere: dict[str, str] = {}
        for given, label in labels.items():
            name = self.other_names.get(given, given)
            if name != given and name in labels:  # `given` was another picture of this name
                elsewhere[given] = label
            elif name in self._index:
                said[self._index[name]] = label
            else:
                elsewhere[given] = label
        self.said = said
        self.elsewhere = elsewhere
