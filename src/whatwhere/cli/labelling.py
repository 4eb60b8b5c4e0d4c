"""Classes of all pictures from the labels of a few: a table, and a page of pictures for every class."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification import describe_images
from whatwhere.classification.graph import UNLABELLED, GraphClassifier
from whatwhere.classification.metric import run_metric
from whatwhere.cli.outputs import png, write
from whatwhere.cli.settings import Settings
from whatwhere.data import Images
from whatwhere.data.pictures import picture_names
from whatwhere.errors import ImageError, printable
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe
from whatwhere.spec.distortions import Distortions
from whatwhere.spec.training import TrainingOptions

SHOWN, SIDE = 24, 96  # pictures in a row of the page, and their largest side
STYLE = """body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 90rem; padding: 0 1rem }
div { display: flex; flex-wrap: wrap; gap: .5rem } figure { margin: 0; width: 6.5rem; font-size: .75rem }
img { height: 5rem; max-width: 100%; object-fit: contain; image-rendering: pixelated }
figcaption { overflow-wrap: anywhere } .given img { outline: 2px solid #36c }"""


class Labelling:
    """Pictures, the labels of a few of them, and what the others are.

    images   of one size
    labels   a CSV file with the name and the class of some pictures
    """

    def __init__(self, images: Images, labels: Path) -> None:
        self.images = images
        self.names = picture_names(images.pixels) or [str(row) for row in range(len(images))]
        self.given = read_labels(labels, self.names)

    def solve(
        self, run: Path, model: DeconvNet, recipe: Recipe, how: Distortions, *, balanced: bool, engine: str,
        progress: Callable[[int], Any],
    ) -> None:  # fmt: skip
        """Describe the pictures in the metric of small distortions, and spread the labels.

        run       whose folder keeps the metric
        how       pictures may be distorted and stay what they are
        balanced  classes have about equally many pictures
        progress  called after every batch with the number of pictures in it
        """
        metric = run_metric(run, model, self.images, recipe, how, engine=engine)
        rows = metric(describe_images(model, self.images, recipe, engine=engine, progress=progress))
        y = np.full(len(rows), UNLABELLED, dtype=object)
        y[list(self.given)] = list(self.given.values())
        classifier = GraphClassifier(class_prior="uniform" if balanced else None, device=str(model.device))
        classifier.fit(rows.cpu().numpy(), y)
        self.classes: list[str] = classifier.classes_.tolist()
        self.probabilities = classifier.label_distributions_

    @property
    def found(self) -> np.ndarray:
        """The number of every picture's class."""
        return np.asarray(self.probabilities.argmax(1))

    def worth_labelling(self) -> np.ndarray:
        """The pictures without a label that are least sure, least sure first."""
        two = np.sort(self.probabilities, axis=1)[:, -2:]
        order = np.argsort(two[:, -1] - two[:, 0] if len(self.classes) > 1 else two[:, -1], kind="stable")
        return np.array([row for row in order if row not in self.given], dtype=int)

    def table(self) -> str:
        """predictions.csv: the name, the class, its probability, and the probabilities of all classes."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["file", "class", "probability", *self.classes])
        for name, row, best in zip(self.names, self.probabilities, self.found, strict=True):
            writer.writerow([name, self.classes[best], *(f"{p:.4f}" for p in (row[best], *row))])
        return text.getvalue()

    def page(self) -> str:
        """Rows of pictures: those worth labelling next, then those of every class, from sure to unsure."""
        rows = [("Worth labelling next", self.worth_labelling()[:SHOWN])]
        for number, name in enumerate(self.classes):
            members = np.flatnonzero(self.found == number)
            members = members[np.argsort(-self.probabilities[members, number], kind="stable")]
            shown = np.linspace(0, len(members) - 1, min(SHOWN, len(members))).astype(int)
            rows.append((f"{name} ({len(members):,})", members[shown]))
        body = "".join(
            f"<h2>{escape(title)}</h2>\n<div>{''.join(map(self._figure, shown))}</div>\n" for title, shown in rows
        )
        lead = f"{len(self.given):,} of {len(self.names):,} pictures had a label (framed). All are in predictions.csv."
        head = f'<meta charset="utf-8"><title>Classes</title>\n<style>{STYLE}</style>'
        text = f"<h1>{escape(self.images.name)}</h1>\n<p>{lead}</p>\n{body}"
        return f'<!DOCTYPE html>\n<html lang="en">\n<head>{head}</head>\n<body>\n{text}</body>\n</html>\n'

    def _figure(self, row: int) -> str:
        best = self.found[row]
        words = f"{self.names[row]}: {self.classes[best]}, {self.probabilities[row, best]:.0%}"
        picture = base64.b64encode(png(thumbnail(self.images[int(row)]))).decode()
        kind = ' class="given"' if row in self.given else ""
        return (
            f'<figure{kind}><img src="data:image/png;base64,{picture}" alt="{escape(words)}">'
            f"<figcaption>{escape(words)}</figcaption></figure>"
        )


def write_descriptors(
    out: Path, run: Path, model: DeconvNet, recipe: Recipe, images: Images, settings: Settings
) -> list[int]:
    """Write the descriptors of images, in the metric that the run keeps, with names and labels; returns their shape."""
    engine = settings.of(TrainingOptions).engine
    metric = run_metric(run, model, images, recipe, settings.of(Distortions), engine=engine)
    rows = metric(describe_images(model, images, recipe, engine=engine)).cpu().numpy()
    found = {"descriptors": rows, "names": picture_names(images.pixels), "labels": images.labels}
    arrays: Any = {name: np.asarray(value) for name, value in found.items() if value is not None}
    file = io.BytesIO()
    np.savez(file, **arrays)
    write(out, file.getvalue())
    return list(rows.shape)


def thumbnail(image: Tensor) -> Tensor:
    """An image [C, H, W] as bytes [h, w] or [h, w, 3], its sides at most `SIDE`."""
    largest = max(image.shape[1:])
    if largest > SIDE:
        size = [max(1, round(side * SIDE / largest)) for side in image.shape[1:]]
        image = F.interpolate(image[None], size, mode="area")[0]
    shades = (255 * image.clamp(0, 1)).round().to(torch.uint8)
    return shades.permute(1, 2, 0) if len(shades) == 3 else shades[0]


def read_labels(file: Path, names: Sequence[str]) -> dict[int, str]:
    """The classes that a CSV file gives to some pictures, by their row; a first line `file,class` is a heading."""
    try:
        lines = list(csv.reader(io.StringIO(file.read_text(encoding="utf-8-sig"))))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ImageError(f"{printable(file)} cannot be read as a table of labels: {error}") from error
    given: dict[int, str] = {}
    rows = {name: row for row, name in enumerate(names)}
    for number, line in enumerate(lines, start=1):
        cells = [cell.strip() for cell in line]
        if not any(cells) or (number == 1 and cells[0] not in rows and cells[0].lower() == "file"):
            continue
        where = f"line {number} of {printable(file)}"
        if len(cells) != 2 or not all(cells):
            raise ImageError(
                f"{where} is {','.join(line)!r}; expected the name of a picture and its class: cat1.png,cat"
            )
        if cells[0] not in rows:
            raise ImageError(f"{where} names {cells[0]!r}; expected one of the pictures, such as {names[0]!r}")
        if given.setdefault(rows[cells[0]], cells[1]) != cells[1]:
            raise ImageError(f"{where} gives {cells[0]!r} the class {cells[1]!r}; a line above gives it another one")
    if len(set(given.values())) < 2:
        raise ImageError(f"{printable(file)} names {len(set(given.values()))} classes; expected at least two")
    return given
