"""A labelling session: a person says what a few pictures are, and all others get a class.

What to label next is chosen on the graph of the pictures. A picture is *known* as far as walks over
the graph that start there meet a labelled one before they end; *trust* in its class is how far it
is known times the lead of its class over the next. The picture with the least trust around it is
suggested; those that follow are chosen as if it had a label, so that they differ from it. Every
other suggestion is the picture with the smallest lead around it, known or not: the former find
classes, the latter errors. The tenth of the pictures that are farthest from all others come last:
their labels say little about others.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import eigsh

from whatwhere.classification.graph import UNLABELLED, GraphClassifier
from whatwhere.classification.map_features import MapFeatures
from whatwhere.classification.neighbour_graph import scipy_matrix
from whatwhere.classification.picture_classifier import (
    Describer,
    PictureClassifier,
    describe_pictures,
)
from whatwhere.classification.settings import Distortions
from whatwhere.data import Images, load
from whatwhere.data.mixed import NOT_RECORDED, Recorded
from whatwhere.data.pictures import earlier_names, picture_names
from whatwhere.errors import ImageError, SpecError, plural, printable, warn
from whatwhere.files import read_regular, readable
from whatwhere.labelling.exchange import (
    ClassTable,
    export,
    read_foreign_labels,
    to_pandas,
)
from whatwhere.labelling.label_tables import (
    LONGEST,
    NOT_SURE,
    change,
    change_labels,
    check_class,
    check_predictions,
    read_labels,
    write_predictions,
)
from whatwhere.labelling.name_matching import bare_names
from whatwhere.learning import TrainedRun
from whatwhere.learning.run_folder import recorded_by
from whatwhere.nn.feature_maps import FeatureMaps
from whatwhere.progress import Stage, no_stage
from whatwhere.spec.execution import Execution

LIFE = 0.98  # share of walks that go on after a step
STEPS = 60  # of a walk that are followed
AROUND = 2  # steps over which trust is averaged
LONELY = 0.1  # share of the pictures, those farthest from others, that are suggested last
FEWEST = 5  # labels for an estimate of the error
SEARCHED = 0.1  # what a class with a single, suggested label counts in the share that is missing
LARGEST = 1e15  # value of a row: squares of differences are within the range of float32

Key = int | str


@dataclass(frozen=True)
class Predictions:
    """The class of every picture: its name, its probability, and whether a person said it; arrays
    [N]."""

    classes: np.ndarray
    probabilities: np.ndarray
    said: np.ndarray


def checked_rows(rows: np.ndarray | torch.Tensor) -> torch.Tensor:
    """Descriptors [N, D] as float32 on the host; raises an ImageError for those out of range."""
    checked = torch.as_tensor(rows).float().cpu()
    largest = float(checked.abs().max()) if checked.numel() else 0.0
    if not largest <= LARGEST:  # NaN is not, either
        raise ImageError(
            f"Rows have values up to {largest:g}; expected finite values up to {LARGEST:g}. Remove"
            " the others, or scale them."
        )
    return checked


class Labelling:
    """Label a few pictures, and classify all others.

    images        a folder of pictures, or images as `data.load` takes them; or descriptors, an
                  array [N, D]
    features      instead of a run, a callable from pictures [n, C, h, w] to maps, such as a
                  pretrained network: its maps describe the images, as in `MapFeatures`
    run           a run, a model file or the name of a model that describes the images; None learns
                  one from them
    labels        a CSV file of labels. The session starts with its labels, changes it after every
                  label, and writes `predictions.csv` next to it. Other processes may change it as
                  well; their labels are read with the next one
    invariant_to  distortions that do not change what a picture shows
    options       engine and device
    stage         shows the progress of a slow part: a context, called with its title and the number
                  of its pieces

    Pictures are called by their names, or by their numbers if they have none. Classes are text;
    `not sure` leaves a picture out, `none of these` is a class for all that belongs to no other.

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
        images: Any,
        *,
        run: str | os.PathLike[str] | TrainedRun | None = None,
        features: FeatureMaps | None = None,
        labels: str | os.PathLike[str] | None = None,
        invariant_to: Distortions | None = None,
        options: Execution | None = None,
        stage: Stage = no_stage,
    ) -> None:
        self.file = None if labels is None else Path(labels)
        self.predictions = None if self.file is None else self.file.with_name("predictions.csv")
        if self.file is not None and self.predictions is not None:
            check_files(self.file, self.predictions)
        self.images: Images | None = None
        self.describe: Describer | None = None
        if isinstance(images, np.ndarray | torch.Tensor) and images.ndim == 2:
            self.rows = checked_rows(images)
        elif features is not None:
            self.images = load(images)
            self.rows = torch.from_numpy(MapFeatures(features).fit_transform(self.images))
        else:
            self.images = load(images, recorded=recorded_of(run, self.file))
            how = invariant_to or Distortions()
            options = options or Execution(device="cpu")
            self.describe, self.rows = describe_pictures(
                self.images, run, how, options, self.file, stage
            )
        if len(self.rows) < 2:
            raise ImageError(f"Got {plural(len(self.rows), 'picture')}; expected at least two.")
        self._name_rows()
        self.said: dict[int, str] = {}
        self.elsewhere: dict[str, str] = {}  # labels of pictures that are not here now
        self.before: list[dict[int, str | None]] = []  # what each action replaced
        self.prompted: set[int] = set()  # rows that were suggested
        self.unprompted: set[int] = set()  # rows that a person chose to label
        # numbers of labels, and the error that was estimated with them
        self.curve: list[tuple[int, float]] = []
        self._connect_neighbours()
        self._read()
        self._solve()

    def _name_rows(self) -> None:
        """Pictures are called by their names, other rows by their numbers."""
        named = None
        earlier: dict[str, str] = {}
        if self.images is not None:
            named = picture_names(self.images.pixels)
            earlier = earlier_names(self.images.pixels)
        self.keys: list[Key] = list(named or range(len(self.rows)))
        self.names = [str(key) for key in self.keys]
        self.index = {name: row for row, name in enumerate(self.names)}
        self.other_names = bare_names(self.names) | earlier
        """Pictures by what a table may call them besides their names."""

    def _connect_neighbours(self) -> None:
        """The graph that labels spread along, and the rows that lie far from all others."""
        self.graph = GraphClassifier()
        self.graph.fit(self.rows.numpy(), np.zeros(len(self.rows)))
        assert self.graph.graph_ is not None
        self.matrix = scipy_matrix(self.graph.graph_)
        self.degrees = np.asarray(self.matrix.sum(1)).ravel()
        distances = self.graph.distances_.cpu().numpy()
        self.lonely = distances > np.quantile(distances, 1 - LONELY)

    # What a person says ---------------------------------------------------------------------------

    def label(self, labels: Mapping[Any, str | None]) -> None:
        """Give pictures their classes, by name or number; None takes a label away."""
        rows = {
            self._row(key): None if name is None else check_class(str(name))
            for key, name in labels.items()
        }
        self.before.append({row: self.said.get(row) for row in rows})
        self.unprompted |= set(rows) - self.prompted
        self._say(rows)

    def undo(self) -> bool:
        """Take the last `label` back; False if there is none."""
        if not self.before:
            return False
        self._say(self.before.pop())
        return True

    def _say(self, rows: Mapping[int, str | None]) -> None:
        labels = {self.names[row]: name for row, name in self.said.items()} | self.elsewhere
        changes = {self.names[row]: name for row, name in rows.items()}
        # a picture is not in the table under two names
        changes |= {
            other: None
            for other, name in self.other_names.items()
            if name in changes and other not in self.elsewhere
        }
        if self.file is None:
            self._take(change(labels, changes))
        else:
            self._take(change_labels(self.file, changes, labels))
        self._solve()
        if self.predictions is not None:
            check_predictions(self.predictions)
            said = set(self.labelled)
            write_predictions(self.predictions, self.names, self.classes, self.probabilities, said)

    def _take(self, labels: Mapping[str, str]) -> None:
        self.said = {}
        self.elsewhere = {}
        for given, label in labels.items():
            name = self.other_names.get(given, given)
            if name != given and name in labels:  # `given` was another picture of this name
                self.elsewhere[given] = label
            elif name in self.index:
                self.said[self.index[name]] = label
            else:
                self.elsewhere[given] = label

    def _row(self, key: Any) -> int:
        if isinstance(key, str) and key in self.index:
            return self.index[key]
        is_number = isinstance(key, int | np.integer) and not isinstance(key, bool)
        if is_number and 0 <= key < len(self.keys):
            return int(key)
        raise ImageError(
            f"Unknown picture {key!r}. Expected the name or the number of a picture, such as"
            f" {self.keys[0]!r}."
        )

    # What follows ---------------------------------------------------------------------------------

    @property
    def classes(self) -> list[str]:
        """The names of the classes, sorted."""
        return sorted(set(self.said.values()) - {NOT_SURE})

    @property
    def labelled(self) -> list[int]:
        """The rows that have a class from a person."""
        return [row for row, name in self.said.items() if name != NOT_SURE]

    def predict(self) -> Predictions:
        """The class of every picture; until two classes have labels, '' for pictures without
        one."""
        said = np.zeros(len(self.rows), bool)
        said[self.labelled] = True
        if not self.classes:
            return Predictions(np.full(len(said), ""), np.zeros(len(said)), said)
        best = np.array(self.classes)[self.probabilities.argmax(1)]
        probabilities = self.probabilities.max(1)
        return Predictions(np.where(probabilities > 0, best, ""), probabilities, said)

    def _solve(self) -> None:
        self.probabilities = self._spread(self.labelled)

    def _spread(self, rows: Sequence[int]) -> np.ndarray:
        """The probabilities [N, K] of all classes from the labels of these rows.

        A single class says nothing about other pictures: their probabilities are 0.
        """
        if len(self.classes) == 1:
            alone = np.zeros((len(self.rows), 1))
            alone[rows] = 1
            return alone
        y = np.full(len(self.rows), UNLABELLED, dtype=object)
        for row in rows:
            y[row] = self.said[row]
        result = np.zeros((len(y), len(self.classes)))
        if len(rows):
            # parts of the graph without a label are what `suggest` looks for
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                self.graph.refit(y)
            result[:, np.searchsorted(self.classes, self.graph.classes_)] = (
                self.graph.label_distributions_
            )
        return result

    def suggest(self, count: int = 12) -> list[Key]:
        """The pictures that are worth labelling next, the first most of all."""
        return [self.keys[row] for row in self.suggested_rows(count)]

    def suggested_rows(self, count: int = 12) -> list[int]:
        """The same by their numbers."""
        lead = self._lead()
        chosen: list[int] = []
        while len(chosen) < min(count, len(self.rows) - len(self.said)):
            taken = [*self.said, *chosen]
            if len(taken) % 2 and len(self.classes) > 1:
                # doubt alone; what was chosen just now counts as known, so that the next differs
                trust = 1 - (1 - lead) * (1 - self._known(chosen)) if chosen else lead
            else:
                trust = self._known(taken) * lead
            for _ in range(AROUND):
                trust = self._mean(trust)
            trust[taken] = np.inf
            others = np.where(self.lonely, np.inf, trust)
            # Lonely pictures are suggested once no others are left.
            order = others if np.isfinite(others).any() else trust
            chosen.append(int(order.argmin()))
        self.prompted |= set(chosen)
        return chosen

    def _lead(self) -> np.ndarray:
        """The lead of every picture's class over the next, [N]; 1 with less than two classes."""
        if len(self.classes) < 2:
            return np.ones(len(self.rows))
        two = np.sort(self.probabilities, axis=1)[:, -2:]
        return np.asarray(two[:, 1] - two[:, 0])

    def _known(self, rows: Sequence[int]) -> np.ndarray:
        """The share of walks from every picture that meet one of these rows before they
        end, [N]."""
        known = np.zeros(len(self.rows))
        if not rows:  # all alike: the picture with the closest neighbours comes first
            return np.asarray(-self.degrees)
        for _ in range(STEPS):
            known[rows] = 1
            known = LIFE * self._mean(known)
        known[rows] = 1
        return known

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """The weighted mean of the neighbours of every picture."""
        return np.asarray(self.matrix @ values / np.maximum(self.degrees, 1e-300))

    def error(self) -> float | None:
        """An estimate of the share of wrong classes among pictures without a label; None with
        fewer than five labels, or a single class.

        Pictures of classes that have no label yet are wrong (`_missing_share`). For the others, the
        estimate is the mean doubt, which is 1 minus the probability of the class. Probabilities are
        calibrated on labels that are held out in turn. The errors among these labels are not
        counted: they are not a fair sample, because uncertain pictures are suggested.
        """
        if self.missing_for_estimate():
            return None
        rows = self.labelled
        others = np.setdiff1d(np.arange(len(self.rows)), rows)
        doubt = 1 - self.probabilities[others].max(1)
        estimate = float(doubt.mean()) if len(others) else 0.0
        parts = self.graph.parts_.cpu().numpy()
        reached = np.isin(parts[others], parts[rows])
        if reached.any():
            # Parts without a label may belong to the missing classes: their doubt counts once.
            right = float(1 - doubt[reached].mean()) * (1 - self._missing_share())
            estimate = max(estimate, 1 - right)
        earlier = [point for point in self.curve if point[0] < len(rows)]
        self.curve = [*earlier, (len(rows), estimate)]
        return estimate

    def missing_for_estimate(self) -> str:
        """What an estimate of the error still needs, in words; '' if it needs nothing."""
        if len(self.labelled) < FEWEST:
            return f"An estimate of the error needs {FEWEST} labels (so far: {len(self.labelled)})."
        if len(self.classes) < 2:
            return "An estimate of the error needs labels of two classes."
        return ""

    def error_words(self) -> str:
        """The estimate of the error as a sentence with its limits, or what it still needs."""
        error = self.error()
        if error is None:
            return self.missing_for_estimate()
        return (
            f"About {100 * error:.1f} % of the predicted classes are wrong (an estimate; it is"
            " rough with fewer than ten labels of each class)."
        )

    def _missing_share(self) -> float:
        """The share of the pictures whose class has no label yet, by Good and Turing.

        For labels drawn at random, it is the share of labels that are the only one of their class:
        if such a picture had come next and not before, its class would have been new. Suggested
        pictures are not a random sample, because they are chosen where labels are far.
        """
        rows = self.labelled
        names, counts = np.unique([self.said[row] for row in rows], return_counts=True)
        single = set(names[counts == 1])
        alone = [row for row in rows if self.said[row] in single]
        weights = [1.0 if row in self.unprompted else SEARCHED for row in alone]
        return sum(weights) / len(rows)

    def nearest_labelled(self, key: Any, count: int = 4) -> list[tuple[int, float]]:
        """The labelled pictures nearest to a picture: their rows, and the cosines of their
        descriptors."""
        row = self._row(key)
        rows = np.array(self.labelled, dtype=int)
        rows = rows[rows != row]
        unit = torch.nn.functional.normalize(self.rows, dim=1)
        cosines = (unit[torch.from_numpy(rows)] @ unit[row]).numpy()
        order = np.argsort(-cosines, kind="stable")[:count]
        return [(int(rows[i]), float(cosines[i])) for i in order]

    # Files ----------------------------------------------------------------------------------------

    def classifier(self) -> PictureClassifier:
        """The classifier of new pictures."""
        if len(self.classes) < 2:
            raise ImageError(
                f"The labels have {plural(len(self.classes), 'class', 'classes')}; expected at"
                " least two. Label pictures of two classes first."
            )
        shares = torch.from_numpy(self.probabilities).float()
        return PictureClassifier(
            tuple(self.classes), self.rows, shares, self.graph.n_neighbors, self.describe
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save a classifier for new pictures, which `ww.load_classifier` and `whatwhere classify`
        read."""
        self.classifier().save(path)

    def export(self, path: str | os.PathLike[str], *, links: bool = False) -> Path:
        """Write the class of every picture for other programs; returns what was written.

        path   ends with .csv: a table; with .json: tasks for Label Studio; otherwise a new folder
               with a sub-folder of pictures for each class
        links  write symbolic links instead of copies to such a folder
        """
        return export(self._table(), self.images, path, links=links)

    def to_pandas(self) -> Any:
        """The class of every picture as a pandas DataFrame, by the names of the pictures."""
        return to_pandas(self._table())

    def import_labels(
        self, path: str | os.PathLike[str], content: bytes | None = None
    ) -> list[str]:
        """Import labels that were made elsewhere, in one action that `undo` takes back.

        path     a table (.csv) with a column of names and one of classes, or the JSON of Label
                 Studio
        content  content of the file, if it was read already

        Returns the names for which there is no picture here, and warns about them.
        """
        file = Path(path)
        if content is None:
            with readable(file, "table of labels", "give a .csv or .json file", ImageError):
                content = read_regular(file, LONGEST)
        foreign = read_foreign_labels(content, file.name, self.names)
        self.label(foreign.labels)
        if foreign.unknown:
            warn(foreign.words)
        return list(foreign.unknown)

    def _table(self) -> ClassTable:
        return ClassTable(self.names, self.classes, self.probabilities, frozenset(self.labelled))

    def _read(self) -> None:
        if self.file is None or not self.file.exists():
            return
        self._take(read_labels(self.file))
        if self.elsewhere:
            warn(
                f"{self.file} also has {plural(len(self.elsewhere), 'label')} of pictures that are"
                f" not here, such as {next(iter(self.elsewhere))!r}. The file keeps these labels."
            )


def recorded_of(run: str | os.PathLike[str] | TrainedRun | None, labels: Path | None) -> Recorded:
    """What the model of a session recorded about its pictures: that of `run`, or the one that an
    earlier session learned."""
    folder: Any = run.folder if isinstance(run, TrainedRun) else run
    if run is None and labels is not None:
        folder = labels.with_suffix(".run")
    return NOT_RECORDED if folder is None else recorded_by(Path(folder))


def check_files(labels: Path, predictions: Path) -> None:
    """Raise an error unless a session may write the files next to its table of labels."""
    for other in (predictions, labels.with_suffix(".run")):
        if labels.name.casefold() == other.name.casefold():
            raise SpecError(
                f"Cannot write the labels to {printable(labels)}: labelling writes another file of"
                " this name. Choose another name, such as labels.csv."
            )
    check_predictions(predictions)


DENSE = 400  # rows up to which all eigenvectors are computed
RANK = 0.7  # share of a place that is a rank, so that crowded regions get room


def map_places(matrix: Any) -> np.ndarray:
    """Places of the rows of a graph, [N, 2], from 0 to 1.

    They are the second and third eigenvector of D^-½ W D^-½, divided by the roots of the degrees:
    functions that change least between neighbours.

    matrix  the weights W, [N, N], sparse and symmetric
    """
    count = matrix.shape[0]
    degrees = np.maximum(np.asarray(matrix.sum(1)).ravel(), 1e-12)
    root = sparse.diags_array(degrees**-0.5)
    scaled = root @ matrix @ root
    if count <= DENSE:
        _, vectors = np.linalg.eigh(scaled.toarray())
    else:
        start = np.random.default_rng(0).normal(size=count)  # an eigenvector would find no others
        values, vectors = eigsh(scaled, k=3, which="LA", v0=start, tol=1e-5)
        vectors = vectors[:, np.argsort(values)]
    places = np.zeros((count, 2))
    chosen = vectors[:, -2:-4:-1] / degrees[:, None] ** 0.5
    places[:, : chosen.shape[1]] = chosen
    ranks = places.argsort(0, kind="stable").argsort(0, kind="stable") / max(count - 1, 1)
    low = places.min(0)
    high = places.max(0)
    return np.asarray((1 - RANK) * (places - low) / np.maximum(high - low, 1e-12) + RANK * ranks)
