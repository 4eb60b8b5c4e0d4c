"""The files of a labelling session: a table of labels, which several processes may change, and a
table of the classes of all pictures next to it."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from whatwhere.errors import RunError, SpecError, printable
from whatwhere.files import (
    disk_errors,
    locked,
    open_regular,
    read_results,
    remove_dead_leftovers,
    write_atomic,
)
from whatwhere.labelling.label_tables import (
    PREDICTION_HEADING,
    csv_text,
    read_labels,
    write_predictions,
)


class LabelFile:
    """A table of labels, and `predictions.csv` next to it.

    Parameters
    ----------
    path
        the table of labels, .csv; it need not exist

    Raises an error if a session may not write one of its files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.predictions = path.with_name("predictions.csv")
        for other in (self.predictions, path.with_suffix(".run")):
            if path.name.casefold() == other.name.casefold():
                raise SpecError(
                    f"Cannot write the labels to {printable(path)}: labelling writes another file"
                    " of this name. Choose another name, such as labels.csv."
                )
        check_predictions(self.predictions)
        remove_dead_leftovers([self.path, self.predictions])

    def read(self) -> dict[str, str]:
        """Return the classes by the names of pictures; none if there is no such file."""
        return read_labels(self.path) if self.path.exists() else {}

    def change(
        self, changes: Mapping[str, str | None], before: Mapping[str, str]
    ) -> dict[str, str]:
        """Change the table, and return all of it (`change_labels`)."""
        return change_labels(self.path, changes, before)

    def write_predictions(
        self,
        names: Sequence[str],
        classes: Sequence[str],
        probabilities: np.ndarray,
        said: Collection[int],
    ) -> None:
        """Write the classes of all pictures, unless somebody else wrote the file that is there."""
        check_predictions(self.predictions)
        write_predictions(self.predictions, names, classes, probabilities, said)


def changed(labels: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """Labels by the names of pictures with some changes, the newest last; None takes a
    label away."""
    rest = {name: label for name, label in labels.items() if name not in changes}
    said = {name: label for name, label in changes.items() if label is not None}
    return rest | said


def change_labels(
    file: Path,
    changes: Mapping[str, str | None],
    before: Mapping[str, str],
    patience: float = 10.0,
) -> dict[str, str]:
    """Change the current table of labels on the disk, where other processes may have changed it;
    returns all of it.

    Parameters
    ----------
    before
        the labels to start from if there is no such file
    patience
        seconds to wait for another process that writes
    """
    with disk_errors(f"writing {file}", "free some disk space, or choose another folder"):
        file.parent.mkdir(parents=True, exist_ok=True)
        busy = (
            f"Another process has been writing to {file.parent} for {patience:g} s. Stop it, or"
            " choose another table."
        )
        with locked(file.parent, busy, patience):
            labels = changed(read_labels(file) if file.exists() else before, changes)
            lines = [["file", "class"], *map(list, labels.items())]
            write_atomic(file, csv_text(lines).encode())
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
    """Tell whether a file has the heading of predictions: earlier versions left no record of
    them."""
    heading = ",".join(PREDICTION_HEADING).encode()
    try:
        with open_regular(file) as opened:
            return opened.read(len(heading)) == heading
    except OSError:
        return False
