"""A labelling session: a person says what a few pictures are, and all others get a class.

A session joins parts that stand alone: the labels and their file (`labels`), what describes the
pictures (`descriptions`), the graph that labels spread along (`neighbourhood`), what to label next
(`suggestions`), and the error (`estimate`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from whatwhere.classification.graph import ClassPrior
from whatwhere.classification.joined_describer import PictureDescriber
from whatwhere.classification.picture_classifier import (
    DescribingSettings,
    PictureClassifier,
    describe_pictures,
)
from whatwhere.classification.settings import Distortions
from whatwhere.data import Images, Source, is_folder, load, open_folder
from whatwhere.data.mixed import NOT_RECORDED, Recorded
from whatwhere.data.pictures import earlier_names, picture_names
from whatwhere.errors import ImageError, plural, warn
from whatwhere.files import claim, read_regular, readable
from whatwhere.html import notebook_strip
from whatwhere.labelling.choice import Candidate, candidates, elect
from whatwhere.labelling.descriptions import (
    Description,
    joined_description,
    plain_description,
)
from whatwhere.labelling.estimate import (
    ErrorEstimate,
    estimate_error,
    missing_for_estimate,
)
from whatwhere.labelling.exchange import (
    ClassTable,
    export,
    read_foreign_labels,
    to_pandas,
)
from whatwhere.labelling.label_file import LabelFile
from whatwhere.labelling.label_tables import LONGEST_TABLE, NOT_SURE
from whatwhere.labelling.labels import GivenLabels, Key, Labels
from whatwhere.labelling.neighbourhood import Neighbourhood, Spread, checked_rows
from whatwhere.labelling.suggestions import suggested_rows
from whatwhere.labelling.suspects import Suspect, suspected_labels
from whatwhere.learning import TrainedRun
from whatwhere.learning.run_folder import recorded_by
from whatwhere.nn.feature_maps import FeatureMaps
from whatwhere.progress import Stage, no_stage
from whatwhere.spec.execution import Execution
from whatwhere.views import OWN, GivenView, as_views, usual_views

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Predictions:
    """The class of every picture: its name, its probability, and whether a person said it; arrays
    [N]."""

    classes: np.ndarray
    probabilities: np.ndarray
    said: np.ndarray


class Labelling:
    """Label a few pictures, and classify all others.

    Parameters
    ----------
    images
        a folder of pictures, or images as `data.load` takes them; or descriptors, an array [N, D]
    features
        what describes the images: a list of views, which are weighed by the labels. A view is a
        word ('own' for learned features, 'colour', 'edges', 'patterns', 'patches', 'network'), a
        value such as `ww.views.Colour()`, an ONNX file, or a callable from pictures [n, C, h, w] to
        maps, such as a pretrained network. None takes the usual views, those of
        `ww.views.usual_views`, next to learned features; with a run, its features alone. A network
        helps most where classes are things in photographs
    run
        a run, a model file or the name of a model that describes the images; None learns one from
        them
    labels
        a CSV file of labels. The session starts with its labels, changes it after every label, and
        writes `predictions.csv` next to it. Other processes may change it as well; their labels are
        read with the next one
    invariant_to
        distortions that do not change what a picture shows
    class_prior
        the shares of the classes, if they are roughly known, as for `GraphClassifier`
    first
        with views, how many pictures are described at first, drawn at random; the others have no
        class until `use` gets rows of all. None describes all
    options
        engine and device
    stage
        shows the progress of a slow part: a context, called with its title and the number of its
        pieces

    Pictures are called by their names, or by their numbers if they have none. Classes are text;
    `not sure` leaves a picture out, `none of these` is a class for all that belongs to no other.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(60, 5)) + np.repeat(np.eye(3, 5) * 20, 20, 0)
    >>> session = ww.Labelling(rows)
    >>> for _ in range(3):
    ...     (row,) = session.suggest(1)
    ...     session.label({row: "abc"[row // 20]})
    >>> found = session.predict()
    >>> "".join(found.classes[::10]), int(found.said.sum())
    ('aabbcc', 3)
    """

    def __init__(
        self,
        images: Source,
        *,
        run: str | os.PathLike[str] | TrainedRun | None = None,
        features: FeatureMaps | Sequence[GivenView] | None = None,
        labels: str | os.PathLike[str] | None = None,
        invariant_to: Distortions | None = None,
        class_prior: ClassPrior = None,
        first: int | None = None,
        options: Execution | None = None,
        stage: Stage = no_stage,
    ) -> None:
        self.file = None if labels is None else Path(labels)
        self._stage = stage
        table = None if self.file is None else LabelFile(self.file)
        self.images: Images | None = None
        if isinstance(images, np.ndarray | torch.Tensor) and images.ndim == 2:
            description = Description("given rows", checked_rows(images))
            count = len(images)
        else:
            recorded = recorded_of(run, self.file)
            if isinstance(images, str | Path) and is_folder(images):
                self.images = open_folder(images, recorded=recorded)
            else:
                self.images = load(images, recorded=recorded)
            count = len(self.images)
            how = invariant_to or Distortions()
            options = options or Execution(device="cpu")
            description = self._described(self.images, features, run, how, options, first)
        if count < 2:
            raise ImageError(f"Got {plural(count, 'picture')}; expected at least two.")
        self.labels = Labels(*_names(self.images, count), table)
        self._class_prior = class_prior
        # numbers of labels, and the error that was estimated with them
        self.curve: list[tuple[int, float]] = []
        self.use(description)
        self.spread = self.spread_of(self.labels.said)
        if self.labels.elsewhere:
            warn(
                f"{self.file} also has {plural(len(self.labels.elsewhere), 'label')} of pictures"
                f" that are not here, such as {next(iter(self.labels.elsewhere))!r}. The file keeps"
                " these labels."
            )

    def _repr_html_(self) -> str:
        """Show the last labelled pictures, or the first of all, under the line of `repr`."""
        rows = self.labels.labelled[-12:] or range(min(12, len(self.names)))
        shown = [] if self.images is None else [self.images[row : row + 1][0] for row in rows]
        return notebook_strip(repr(self), shown)

    def __repr__(self) -> str:
        said = len(self.labels.said)
        classes = len(self.labels.classes)
        file = "" if self.file is None else f"; {self.file}"
        return (
            f"Labelling({plural(len(self.names), 'picture')}, {plural(said, 'label')} of"
            f" {plural(classes, 'class', 'classes')}{file})"
        )

    def _described(
        self,
        images: Images,
        features: FeatureMaps | Sequence[GivenView] | None,
        run: str | os.PathLike[str] | TrainedRun | None,
        how: Distortions,
        options: Execution,
        first: int | None,
    ) -> Description:
        stage = self._stage
        if features is None and run is None:
            features = [OWN, *usual_views()]
        if isinstance(features, str) or not isinstance(features, Sequence | None):
            features = [features]
        if features is not None and OWN not in features:
            at = None
            if first is not None and first < len(images):
                at = np.sort(np.random.default_rng(0).permutation(len(images))[:first])
            return plain_description(images, as_views(features), at, stage)
        others = as_views([view for view in features or () if view != OWN])
        settings = DescribingSettings(beside_others=bool(others))
        described = describe_pictures(images, run, how, options, self.file, stage, settings)
        describe, rows = described
        learned = Description("learned features", rows, describe, None, describe.columns)
        if not others:
            return learned
        return joined_description(plain_description(images, others, None, stage), learned)

    def use(self, description: Description, graph: Neighbourhood | None = None) -> None:
        """Describe the pictures otherwise from now on; `update` lets their classes follow.

        Parameters
        ----------
        graph
            the graph of the described pictures, if it was made already
        """
        self.description = description
        self.graph = graph or Neighbourhood(
            description.rows, self._class_prior, views=description.columns, stage=self._stage
        )
        count = len(self.names)
        self.at = np.arange(count) if description.at is None else description.at
        self._place = np.full(count, -1)
        self._place[self.at] = np.arange(len(self.at))

    def use_best(self, learned: Description) -> None:
        """Describe all pictures by views, by learned features or by both, as labels say."""
        plain = Candidate(self.description, self.graph)
        self.use(*elect(candidates(plain, learned), self.labels.said))
        self.update()

    # What a person says ---------------------------------------------------------------------------

    def label(self, labels: GivenLabels) -> None:
        """Give pictures their classes, by name or number; None takes a label away."""
        self.labels.say(labels)
        self.update()

    def undo(self) -> bool:
        """Take the last `label` back; False if there is none."""
        if not self.labels.undo():
            return False
        self.update()
        return True

    def update(self) -> None:
        """Let all pictures follow the labels, and write their classes next to the labels."""
        self.spread = self.spread_of(self.labels.said)
        self.write_predictions(self.labels.said)

    def spread_of(self, said: Mapping[int, str]) -> Spread:
        """Return the classes of all pictures that follow from some labels. Pictures that are not
        described yet have no class, unless a person gave it."""
        return self._of_all(said, self.graph.spread(self._described_of(said)))

    def follow(self, said: Mapping[int, str], *, quick: bool = False) -> Spread:
        """Return the same with the weights that the views have.

        Parameters
        ----------
        quick
            leave out what takes long, as `GraphClassifier.follow` does
        """
        return self._of_all(said, self.graph.follow(self._described_of(said), quick=quick))

    def _of_all(self, said: Mapping[int, str], described: Spread) -> Spread:
        """Return the classes of all pictures from those of the described ones."""
        classes, shares = described
        all_classes = tuple(sorted({name for name in said.values() if name != NOT_SURE}))
        result = np.zeros((len(self.names), len(all_classes)))
        columns = np.searchsorted(all_classes, classes)
        result[self.at[:, None], columns] = shares
        for row, name in said.items():
            if name != NOT_SURE:
                result[row] = 0
                result[row, all_classes.index(name)] = 1
        return Spread(all_classes, result)

    def write_predictions(self, said: Mapping[int, str]) -> None:
        """Write the classes of all pictures next to the table of labels, if there is one.

        Parameters
        ----------
        said
            the labels that they follow from
        """
        if self.labels.file is not None:
            rows = {row for row, name in said.items() if name != NOT_SURE}
            self.labels.file.write_predictions(self.names, *self.spread, rows)

    # What follows ---------------------------------------------------------------------------------

    @property
    def rows(self) -> torch.Tensor:
        """The descriptors of the pictures that are described, [n, D]."""
        return self.graph.rows

    @property
    def describe(self) -> PictureDescriber | None:
        """The function from new images to such rows."""
        return self.description.describe

    @property
    def views(self) -> str:
        """What describes the pictures, with the weights that follow from the labels, in a line."""
        weights = self.graph.classifier.weights_
        return self.description.name if weights is None else f"Weights of the views: {weights}."

    @property
    def keys(self) -> list[Key]:
        """What the pictures are called: their names, or their numbers."""
        return self.labels.keys

    @property
    def names(self) -> list[str]:
        """The names of the pictures, or their numbers as text."""
        return self.labels.names

    @property
    def said(self) -> dict[int, str]:
        """What a person said, by row."""
        return self.labels.said

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return list(self.spread.classes)

    @property
    def probabilities(self) -> np.ndarray:
        """The probabilities of the classes of every picture, [N, K]."""
        return self.spread.probabilities

    @property
    def labelled(self) -> list[int]:
        """The rows that have a class from a person."""
        return self.labels.labelled

    def predict(self) -> Predictions:
        """Return the class of every picture; until two classes have labels, '' for pictures without
        one."""
        said = np.zeros(len(self.names), bool)
        said[self.labelled] = True
        classes, shares = self.spread
        if not classes:
            return Predictions(np.full(len(said), ""), np.zeros(len(said)), said)
        best = np.array(classes)[shares.argmax(1)]
        probabilities = shares.max(1)
        return Predictions(np.where(probabilities > 0, best, ""), probabilities, said)

    def suggest(self, count: int = 12) -> list[Key]:
        """Return the pictures that are worth labelling next, the first most of all."""
        return [self.keys[row] for row in self.suggested_rows(count)]

    def suggested_rows(
        self, count: int = 12, goes_on: Callable[[], bool] = lambda: True
    ) -> list[int]:
        """Return the same by their numbers.

        Parameters
        ----------
        goes_on
            tells before each picture whether more are wanted
        """
        said = self._described_of(self.said)
        shares = Spread(self.spread.classes, self.spread.probabilities[self.at])
        chosen = self.at[suggested_rows(self.graph, shares, said, count, goes_on)].tolist()
        self.labels.prompted |= set(chosen)
        return chosen

    def error(self) -> float | None:
        """Estimate the share of wrong classes among pictures without a label; None with
        fewer than five labels, or a single class."""
        estimate = self.estimate()
        return None if estimate is None else estimate.share

    def estimate(self) -> ErrorEstimate | None:
        """Estimate the same with its range, and the classes that are confused most."""
        shares = Spread(self.spread.classes, self.spread.probabilities[self.at])
        said = self._described_of(self.said)
        unprompted = {int(self._place[row]) for row in self.labels.unprompted}
        estimate = estimate_error(self.graph, shares, said, unprompted)
        if estimate is not None:
            count = len(self.labelled)
            earlier = [point for point in self.curve if point[0] < count]
            self.curve = [*earlier, (count, estimate.share)]
        return estimate

    def missing_for_estimate(self) -> str:
        """Return what an estimate of the error still needs, in words; '' if it needs nothing."""
        return missing_for_estimate(self._described_of(self.said))

    def error_words(self) -> str:
        """Return the estimate of the error as a sentence with its limits, or what it still
        needs."""
        estimate = self.estimate()
        if estimate is None:
            return self.missing_for_estimate()
        return f"{estimate.words} {estimate.advice()}".strip()

    def suspects(self) -> list[Suspect]:
        """Return the labels that look wrong: the other labels contradict them when they are held
        out, or a picture that is nearly the same has another one."""
        said = self._described_of(self.said)
        found = suspected_labels(self.graph, said) if len(self.classes) > 1 else []
        return [one._replace(row=int(self.at[one.row])) for one in found]

    def nearest_labelled(self, key: Key, count: int = 4) -> list[tuple[int, float]]:
        """Return the labelled pictures nearest to a picture: their rows, and the cosines of their
        descriptors."""
        row = int(self._place[self.labels.row(key)])
        among = [int(place) for place in self._place[self.labelled] if place >= 0]
        if row < 0:
            return []
        return [(int(self.at[one]), near) for one, near in self.graph.nearest(row, among, count)]

    def similar(self, key: Key, count: int = 10) -> list[int]:
        """Return the rows without a label that are most like a picture, the nearest first. They
        count as suggested: whoever confirms them did not choose them at random."""
        row = int(self._place[self.labels.row(key)])
        if row < 0:
            return []
        open_ = np.flatnonzero([int(one) not in self.said for one in self.at]).tolist()
        near = self.graph.nearest(row, open_, count)
        found = [int(self.at[one]) for one, _ in near]
        self.labels.prompted |= set(found)
        return found

    def weigh(self, said: Mapping[int, str], pause: Callable[[], object]) -> None:
        """Weigh the views by labels, and prepare for labels to come.

        Parameters
        ----------
        pause
            called often; it may call `follow` for newer labels
        """
        labels = self._described_of(said)
        self.graph.weigh(labels, pause)
        self.graph.prepare(labels, pause)

    def _described_of(self, said: Mapping[int, str]) -> dict[int, str]:
        """Labels of described pictures, by their places among these."""
        return {int(self._place[row]): name for row, name in said.items() if self._place[row] >= 0}

    # Files ----------------------------------------------------------------------------------------

    def classifier(self) -> PictureClassifier:
        """Return the classifier of new pictures."""
        if len(self.classes) < 2:
            raise ImageError(
                f"The labels have {plural(len(self.classes), 'class', 'classes')}; expected at"
                " least two. Label pictures of two classes first."
            )
        shares = torch.from_numpy(self.probabilities[self.at]).float()
        return PictureClassifier(
            tuple(self.classes),
            self.rows,
            shares,
            self.graph.n_neighbors,
            self.describe,
            self.graph.classifier.join_,
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Save a classifier for new pictures, which `ww.load_classifier` and `whatwhere classify`
        read.

        Parameters
        ----------
        overwrite
            replace a file that exists
        """
        classifier = self.classifier()
        claim([Path(path)], self._own_files, overwrite=overwrite)
        classifier.save(path, overwrite=overwrite)

    def export(
        self, path: str | os.PathLike[str], *, links: bool = False, overwrite: bool = False
    ) -> Path:
        """Write the class of every picture for other programs; returns what was written.

        Parameters
        ----------
        path
            ends with .csv: a table; with .json: tasks for Label Studio; otherwise a new folder with
            a sub-folder of pictures for each class
        links
            write symbolic links instead of copies to such a folder
        overwrite
            replace a file that exists; the tables of this session are never replaced
        """
        return export(
            self.table(), self.images, path, links=links, overwrite=overwrite, own=self._own_files
        )

    def to_pandas(self) -> pandas.DataFrame:
        """Return the class of every picture as a pandas DataFrame, by the names of the pictures."""
        return to_pandas(self.table())

    def import_labels(
        self, path: str | os.PathLike[str], content: bytes | None = None
    ) -> list[str]:
        """Import labels that were made elsewhere, in one action that `undo` takes back.

        Parameters
        ----------
        path
            a table (.csv) with a column of names and one of classes, or the JSON of Label Studio
        content
            content of the file, if it was read already

        Returns the names for which there is no picture here, and warns about them.
        """
        file = Path(path)
        if content is None:
            with readable(file, "table of labels", "give a .csv or .json file", ImageError):
                content = read_regular(file, LONGEST_TABLE)
        foreign = read_foreign_labels(content, file.name, self.names)
        self.label(foreign.labels)
        if foreign.unknown:
            warn(foreign.words)
        return list(foreign.unknown)

    def table(self) -> ClassTable:
        """Return the class of every picture as a value that other programs get."""
        said = frozenset(self.labelled)
        return ClassTable(self.names, self.classes, self.probabilities, said)

    @property
    def _own_files(self) -> list[Path]:
        file = self.labels.file
        return [] if file is None else [file.path, file.predictions]


def _names(images: Images | None, count: int) -> tuple[list[Key], dict[str, str]]:
    """Return what pictures are called, names or numbers, and their names in earlier versions."""
    if images is None:
        return list(range(count)), {}
    named = picture_names(images.pixels)
    return list(named or range(count)), earlier_names(images.pixels)


def recorded_of(run: str | os.PathLike[str] | TrainedRun | None, labels: Path | None) -> Recorded:
    """Return what the model of a session recorded about its pictures: `run`'s, or the one
    that an earlier session learned."""
    folder = run.folder if isinstance(run, TrainedRun) else run
    if run is None and labels is not None:
        folder = labels.with_suffix(".run")
    return NOT_RECORDED if folder is None else recorded_by(Path(folder))
