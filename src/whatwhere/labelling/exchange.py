"""Exchange labels and classes with other programs: folders, pandas, Label Studio, CSV."""

import csv
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import numpy as np

from whatwhere.data import Images
from whatwhere.data.pictures import Picture, Pictures
from whatwhere.errors import ImageError, MissingExtra, plural, printable
from whatwhere.files import claim, disk_errors, write_atomic
from whatwhere.html import png, thumbnail
from whatwhere.labelling.label_tables import (
    CLASS_HEADINGS,
    FILE_HEADINGS,
    LABELLED,
    PREDICTED,
    csv_cells,
    predictions_text,
)
from whatwhere.labelling.name_matching import match_labels, quoted

if TYPE_CHECKING:
    import pandas

_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')  # in the name of a folder, on any system
_LOCAL_FILES = "/data/local-files/?d="  # where Label Studio serves files of its own machine
_MOST_UNKNOWN = 3  # names without a picture in a message
_LARGEST_SIDE = 1 << 16  # of a picture without a file: it is written as it is
_REMEDY = "free some disk space, or choose another folder"


@dataclass(frozen=True)
class ClassTable:
    """The class of every picture.

    Parameters
    ----------
    names
        names of the pictures
    classes
        all names of classes
    probabilities
        probabilities of the classes, [N, K]
    said
        the rows whose class a person said; the others are predicted
    """

    names: Sequence[str]
    classes: Sequence[str]
    probabilities: np.ndarray
    said: frozenset[int]

    def __post_init__(self) -> None:
        if not self.classes:
            raise ImageError("There is no class yet. Label pictures of two classes first.")
        if len(self.classes) == 1:
            raise ImageError(
                f"All labels are {self.classes[0]!r}, so no other picture has a class yet. Label a"
                " picture of a second class first."
            )

    @property
    def best(self) -> list[str]:
        """The class of every picture."""
        return [self.classes[number] for number in self.probabilities.argmax(1)]


# Out ------------------------------------------------------------------------------------------


def to_pandas(table: ClassTable) -> "pandas.DataFrame":
    """Make a DataFrame with a row for each picture: its class, the probability of it, whether it
    was said or predicted, and the probabilities of all classes."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "a DataFrame of all classes") from None
    sources = [LABELLED if row in table.said else PREDICTED for row in range(len(table.names))]
    columns: dict[str, object] = {
        "class": table.best,
        "probability": table.probabilities.max(1),
        "source": sources,
    }
    columns |= {f"p({name})": table.probabilities[:, k] for k, name in enumerate(table.classes)}
    return pandas.DataFrame(columns, index=pandas.Index(list(table.names), name="file"))


def label_studio_tasks(table: ClassTable) -> list[dict[str, object]]:
    """Tasks as Label Studio imports them: what a person said is an annotation, and everything else
    is a prediction with its probability."""
    tasks = []
    for row, (name, best) in enumerate(zip(table.names, table.best, strict=True)):
        result = [
            {
                "from_name": "class",
                "to_name": "image",
                "type": "choices",
                "value": {"choices": [best]},
            }
        ]
        task: dict[str, object] = {"data": {"image": _LOCAL_FILES + quote(name), "file": name}}
        if row in table.said:
            task["annotations"] = [{"result": result}]
        else:
            score = round(float(table.probabilities[row].max()), 4)
            task["predictions"] = [{"model_version": "whatwhere", "score": score, "result": result}]
        tasks.append(task)
    return tasks


def write_folders(table: ClassTable, images: Images, folder: Path, *, links: bool = False) -> Path:
    """Write a folder with a sub-folder of pictures for each class, as `data.load` reads it.

    Parameters
    ----------
    links
        make symbolic links to the pictures instead of copies; pictures without a file, and pages of
        a file with several, are always written

    Returns the folder. It is always new: if the name is taken, a number follows it.
    """
    with disk_errors(f"writing {folder}", _REMEDY):
        folder = _make_new_folder(folder)
        places = _class_folders(table.classes)
        for name in set(table.best):
            (folder / places[name]).mkdir()
        taken: set[Path] = set()
        for row, (name, best) in enumerate(zip(table.names, table.best, strict=True)):
            place = _free_name(folder / places[best], name, taken)
            _write_picture(images, row, place, links)
    return folder


def _write_picture(images: Images, row: int, place: Path, links: bool) -> None:
    picture = _picture(images, row)
    if picture is None or picture.pages > 1:
        shades = thumbnail(images[row] / images.white, _LARGEST_SIDE)
        place.with_name(f"{place.name}.png").write_bytes(png(shades))
    elif links:
        place.symlink_to(picture.file.resolve())
    else:
        shutil.copyfile(picture.file, place)


def _picture(images: Images, row: int) -> Picture | None:
    return images.pixels.pictures[row] if isinstance(images.pixels, Pictures) else None


def _make_new_folder(folder: Path) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        tried = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            tried.mkdir()
        except FileExistsError:
            number += 1
        else:
            return tried


def _class_folders(classes: Sequence[str]) -> dict[str, str]:
    """Make a name that every system accepts for the folder of each class."""
    places: dict[str, str] = {}
    used: set[str] = set()
    for name in classes:
        safe = _UNSAFE.sub("_", name).strip(". ")[:100] or "_"
        place = safe
        number = 1
        # Some systems take upper and lower case for the same.
        while place.casefold() in used:
            number += 1
            place = f"{safe}-{number}"
        used.add(place.casefold())
        places[name] = place
    return places


def _free_name(folder: Path, name: str, taken: set[Path]) -> Path:
    """Make a place for a picture whose name may have the folder of a label in front."""
    safe = _UNSAFE.sub("-", name).lstrip(".")[-200:] or "picture"
    place = folder / safe
    number = 1
    while place in taken:
        number += 1
        place = folder / f"{number}-{safe}"
    taken.add(place)
    return place


# In -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignLabels:
    """Labels that another program wrote.

    Parameters
    ----------
    labels
        classes by the names of pictures that are here
    unknown
        names for which there is no picture here
    """

    labels: Mapping[str, str]
    unknown: Sequence[str]

    @property
    def words(self) -> str:
        """How many labels are for pictures that are here, and which are not."""
        count = len(self.labels)
        if not self.unknown:
            return f"Imported {plural(count, 'label')}."
        total = plural(count + len(self.unknown), "label")
        listed = " or ".join(quoted(name) for name in self.unknown[:_MOST_UNKNOWN])
        more = len(self.unknown) - _MOST_UNKNOWN
        rest = f" ({plural(more, 'more name')} without a picture)" if more > 0 else ""
        return f"Imported {count:,} of {total}; no picture is called {listed}{rest}."


def read_foreign_labels(content: bytes, source: str, names: Sequence[str]) -> ForeignLabels:
    """Read labels that were made elsewhere: CSV, or the JSON of Label Studio.

    Parameters
    ----------
    source
        the name of the file, for messages; .json or .csv
    names
        names of the pictures that are here
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ImageError(
            f"Cannot read {printable(source)}: it is not UTF-8. Save it as UTF-8."
        ) from None
    is_json = source.lower().endswith(".json") or text.lstrip()[:1] in ("[", "{")
    pairs = _label_studio_pairs(text, source) if is_json else _csv_pairs(text, source)
    labels, unknown = match_labels(pairs, source, names)
    if not labels:
        example = f", such as {unknown[0]!r}" if unknown else ""
        raise ImageError(
            f"{printable(source)} has no label for these pictures ({plural(len(unknown), 'label')}"
            f" for others{example}). Expected names such as {names[0]!r}."
        )
    return ForeignLabels(labels, unknown)


def _csv_pairs(text: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the names and classes of a table, by its heading or, without one, by its two
    columns."""
    lines = _csv_lines(text, source)
    columns = LabelColumns.of(lines[0] if lines else [])
    for number, line in enumerate(lines, start=1):
        if number == 1 and columns.have_heading:
            continue
        if not any(cell.strip() for cell in line):
            continue
        if len(line) <= max(columns.file, columns.label):
            raise ImageError(
                f"Line {number} of {printable(source)} is {','.join(line)[:80]!r}; expected the"
                " name of a picture and its class, or a heading that names them: file,class."
            )
        label = line[columns.label].strip()
        if label and not columns.is_predicted(line):
            yield line[columns.file], label


def _csv_lines(text: str, source: str) -> list[list[str]]:
    """Return the cells of every line. The heading shows the separator; without a heading, lines
    show it by having equally many cells. Quotes are always those that we write: `"`, doubled
    inside."""
    try:
        tables = [csv_cells(text, delimiter) for delimiter in ",;\t"]
    except csv.Error as error:
        raise ImageError(f"Cannot read {printable(source)} as a table: {error}.") from None
    for lines in tables:
        if lines and LabelColumns.of(lines[0]).have_heading:
            return lines
    for lines in tables:
        widths = {len(line) for line in lines if any(line)}
        if len(widths) == 1 and widths != {1}:
            return lines
    return tables[0]


class LabelColumns(NamedTuple):
    """Which columns of a table hold the names, the classes and, if any, who said them."""

    file: int
    label: int
    source: int | None
    have_heading: bool

    @classmethod
    def of(cls, first_line: Sequence[str]) -> "LabelColumns":
        """By the words of the heading; a table without one has two columns."""
        heading = [cell.strip().lower() for cell in first_line]
        file = _column(heading, FILE_HEADINGS)
        label = _column(heading, CLASS_HEADINGS)
        if file is None or label is None:
            return cls(0, 1, None, have_heading=False)
        return cls(file, label, _column(heading, ("source",)), have_heading=True)

    def is_predicted(self, line: Sequence[str]) -> bool:
        """Tell whether a table of predictions says that nobody gave this class. A row that was
        added by hand may end before its column of sources, and is a person's."""
        if self.source is None or self.source >= len(line):
            return False
        return line[self.source].strip() == PREDICTED


def _column(heading: Sequence[str], known: Sequence[str]) -> int | None:
    return next((heading.index(name) for name in known if name in heading), None)


def _label_studio_pairs(text: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield the names and classes of tasks, as Label Studio exports them: JSON and JSON-MIN."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError):
        raise ImageError(
            f"Cannot read {printable(source)}: it is not JSON. Export JSON or JSON-MIN."
        ) from None
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ImageError(
            f"{printable(source)} is not a list of tasks. Export JSON or JSON-MIN from Label"
            " Studio."
        )
    for task in tasks:
        name = _task_name(task)
        label = _task_class(task)
        if name is not None and label is not None:
            yield name, label


def _task_name(task: Mapping[str, object]) -> str | None:
    data = task.get("data")
    fields = data if isinstance(data, dict) else task
    for key in (*FILE_HEADINGS, "file_upload"):
        value = fields.get(key, task.get(key))
        if isinstance(value, str) and value:
            return value
    return None


def _task_class(task: Mapping[str, object]) -> str | None:
    """Return the class of the last annotation that was not cancelled; None if there is none."""
    annotations = task.get("annotations")
    if isinstance(annotations, list):
        for annotation in reversed(annotations):
            label = _annotation_class(annotation)
            if label is not None:
                return label
        return None
    return _choice(next((task[key] for key in CLASS_HEADINGS if key in task), None))


def _annotation_class(annotation: object) -> str | None:
    if not isinstance(annotation, dict) or annotation.get("was_cancelled"):
        return None
    results = annotation.get("result")
    for result in results if isinstance(results, list) else ():
        value = result.get("value") if isinstance(result, dict) else None
        label = _choice(value.get("choices")) if isinstance(value, dict) else None
        if label is not None:
            return label
    return None


def _choice(value: object) -> str | None:
    """Return a class: text, or the only one of a list of choices."""
    if isinstance(value, dict):
        value = value.get("choices")
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value.strip() if isinstance(value, str) and value.strip() else None


def export(
    table: ClassTable,
    images: Images | None,
    path: str | os.PathLike[str],
    *,
    links: bool = False,
    overwrite: bool = False,
    own: Sequence[Path] = (),
) -> Path:
    """Write the classes of all pictures in the form that the name asks for: .csv, .json for Label
    Studio, otherwise a folder by class, which is always new.

    Parameters
    ----------
    overwrite
        replace a file that exists
    own
        files that are never replaced, such as the table of labels

    Returns what was written.
    """
    file = Path(path)
    writers = {".csv": _table_text, ".json": _label_studio_text}
    if writer := writers.get(file.suffix.lower()):
        claim([file], own, overwrite=overwrite)
        with disk_errors(f"writing {file}", _REMEDY):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, writer(table).encode())
        return file
    if images is None:
        raise ImageError(
            f"Cannot write {printable(file)} as a folder by class: the session has only"
            " descriptors. Make the session from pictures, or export .csv or .json."
        )
    return write_folders(table, images, file, links=links)


def _table_text(table: ClassTable) -> str:
    return predictions_text(table.names, table.classes, table.probabilities, table.said)


def _label_studio_text(table: ClassTable) -> str:
    return json.dumps(label_studio_tasks(table), ensure_ascii=False, indent=1)
