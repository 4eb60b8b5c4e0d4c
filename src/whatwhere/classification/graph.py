"""A classifier for few labels: they spread over the graph that connects every row to its nearest
neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from whatwhere.classification import calibration
from whatwhere.classification.cell_index import CellSettings
from whatwhere.classification.even_classes import even_regions
from whatwhere.classification.label_scores import label_scores
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.new_rows import NewRows
from whatwhere.classification.poisson import grow_regions, poisson_learning
from whatwhere.classification.row_graph import RowGraph
from whatwhere.classification.stability import expected_accuracy, stability
from whatwhere.classification.view_graphs import Joined, ViewGraphs
from whatwhere.classification.view_join import ViewJoin
from whatwhere.classification.view_weights import ViewWeighting, ViewWeights
from whatwhere.engines.devices import choose_device
from whatwhere.errors import EvenClassesWarning, ImageError, MissingExtra, SpecError, warn
from whatwhere.progress import Stage, no_op, no_stage
from whatwhere.spec.checks import require_count

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra("scikit-learn", "GraphClassifier") from None

UNLABELLED = -1

_EVEN_CLASSES = (
    "The borders of the classes cut through rows that are alike: one of the labels may lie among"
    " the rows of another class. The classes were therefore taken to be about equally large. Label"
    " one more row of each class, or give their shares as class_prior."
)


class HeldOut(NamedTuple):
    """Labelled rows [n] that were held out in turn: their classes [n], and the probabilities [n, K]
    that they got from the other labels."""

    rows: Tensor
    labels: Tensor
    probabilities: Tensor

    @classmethod
    def none(cls, classes: int) -> HeldOut:
        empty = torch.zeros(0, dtype=torch.long)
        return cls(empty, empty, torch.zeros(0, classes))


ClassPrior = Literal["uniform"] | ArrayLike | None
"""The shares of the classes among all rows: the same, a number for each class, or not known."""


class _Predicts(Protocol):
    """A fitted classifier, or a pipeline that ends with one."""

    def predict(self, X: np.ndarray, /) -> np.ndarray: ...


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """Classify many rows with a few labels: rows without a label show where classes end.

    The classifier connects every row to its nearest neighbours, by Euclidean distance. For rows of
    unit length, such as descriptors, the cosine gives the same neighbours. Labels spread over this
    graph by Poisson learning, in which all classes are equally strong. The classifier adds a ridge
    regression on the labels, whose weight grows with the number of labels. If the shares of the
    classes are known, the borders of the classes instead move to where few neighbours lie on
    different sides. Without shares nothing would bound a class, and one could take all rows. With
    one label a class, the classifier takes classes of about even sizes where these have far fewer
    borders, and warns.
    Probabilities are calibrated on held-out labels. New rows get theirs from their neighbours and
    from a ridge regression on the classes of all rows.

    As in scikit-learn's `semi_supervised`, -1 in y marks rows without a label. Scores of
    scikit-learn count such rows as wrong, because -1 is not a class. In a search over settings, use
    `scoring=labelled_score`, which leaves them out.

    Parameters
    ----------
    n_neighbors
        number of neighbours that each row is connected to
    class_prior
        the shares of the classes among all rows, if they are roughly known: 'uniform', or a number
        for each class in the order of `classes_`. The shares of the result then differ from them by
        a factor of at most about 1.3. This helps most with one or two labels of each class. None
        means that the shares are not known
    views
        the views that stand side by side in X: the number of columns of each, by its name. Each
        view gets its own graph, and the graphs are added with weights that follow from the labels.
        None means that X is one description
    weighting
        how the views are weighed, a `ViewWeighting`
    device
        'cpu', 'cuda', or 'auto', which selects a GPU if there is one
    stage
        shows the progress of finding neighbours among many rows, a `Stage`

    Attributes
    ----------
    classes_
        the labels, (n_classes,)
    transduction_
        the class of every row of `fit`, (n,); labelled rows keep theirs
    label_distributions_
        probabilities of the classes for every row of `fit`, (n, n_classes)
    held_out_
        labelled rows, their classes, and what the other labels say of them
    weights_
        the weights of the views, as text 'colour 0.7, own 0.3'; None for one description
    join_
        how rows of several views are joined, a `ViewJoin`; None for one description

    Examples
    --------
    >>> import whatwhere as ww
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 0.3, (50, 2)) for c in (0, 2)])
    >>> y = np.full(100, -1)
    >>> y[[0, 50]] = 3, 7                                  # one label of each class
    >>> classifier = ww.GraphClassifier().fit(X, y)
    >>> np.unique(classifier.transduction_, return_counts=True)
    (array([3, 7]), array([50, 50]))
    >>> classifier.predict([[0.1, 0.2], [1.9, 2.1]])
    array([3, 7])
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        *,
        class_prior: ClassPrior = None,
        views: Mapping[str, int] | None = None,
        weighting: ViewWeighting | None = None,
        device: str = "cpu",
        stage: Stage = no_stage,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.class_prior = class_prior
        self.views = views
        self.weighting = weighting
        self.device = device
        self.stage = stage

    def fit(self, X: ArrayLike, y: ArrayLike) -> GraphClassifier:
        """Spread the labels.

        Parameters
        ----------
        X
            rows (n, d)
        y
            their labels (n,), -1 for rows without one
        """
        require_count("n_neighbors", self.n_neighbors)
        values, labels = validate_data(self, X, y, dtype=[np.float64, np.float32])
        device = choose_device(self.device)
        rows = torch.from_numpy(np.require(values, requirements="W"))
        self.view_graphs_: ViewGraphs | None = None
        self.weights_: ViewWeights | None = None
        self.join_: ViewJoin | None = None
        self.row_graph_: RowGraph | None = None
        self._stable: float | None = None
        self.graph_: Tensor | None = None
        is_long = len(rows) >= CellSettings().fewest
        stage = self.stage if is_long else no_stage
        with stage("finding neighbours", len(rows) * len(self.views or [rows])) as advance:
            self._connect(rows, device, advance)
        return self.refit(labels)

    def _connect(self, rows: Tensor, device: torch.device, advance: Callable[[int], None]) -> None:
        """Connect each row [N, d] to its nearest neighbours."""
        if self.views is not None and len(rows) > 1:
            join = ViewJoin.of(self.views, rows)
            how = self.weighting or ViewWeighting()
            self.view_graphs_ = ViewGraphs.of(join, rows, device, self.n_neighbors, how, advance)
            self._use(self.view_graphs_.start)
        else:
            self.neighbours_ = Neighbours(rows, device)
            if len(rows) > 1:
                self._use_graph(RowGraph.of(self.neighbours_, self.n_neighbors, advance))

    def refit(self, y: ArrayLike) -> GraphClassifier:
        """Spread other labels (n,) over the graph that `fit` made. Making the graph takes most of
        the time of `fit`."""
        return self.weigh(y).follow(y)

    def weigh(self, y: ArrayLike, pause: Callable[[], object] = no_op) -> GraphClassifier:
        """Weigh the views by labels (n,), which takes most of the time of `refit`. The classes do
        not follow yet.

        Parameters
        ----------
        pause
            called between views; it may call `follow`
        """
        classes, rows, labels = self._labelled(y)
        if self.view_graphs_ is not None and len(classes) > 1:
            self._use(self.view_graphs_.weighed(rows, labels, len(classes), pause))
        return self

    def follow(self, y: ArrayLike, *, quick: bool = False) -> GraphClassifier:
        """Spread other labels (n,) over the graph with the weights that its views have.

        Parameters
        ----------
        quick
            leave out what takes most of the time and seldom changes a class: the stability of the
            classes stays as it was measured last, and even classes are not tried
        """
        self.classes_, rows, labels = self._labelled(y)
        spread = self._spread(rows, labels, quick)
        self.label_distributions_ = spread.cpu().numpy()
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]
        self.new_rows_ = NewRows(self.neighbours_, spread, self.n_neighbors)
        return self

    def _labelled(self, y: ArrayLike) -> tuple[np.ndarray, Tensor, Tensor]:
        """Return the classes, the labelled rows [m], and the numbers of their classes [m]."""
        y = np.asarray(y)
        labelled = ~_is_unlabelled(y)
        if not labelled.any():
            raise ImageError(
                "Every label is -1, which marks rows without a label; expected at least one row"
                " with a label."
            )
        # text that stood next to -1 in an array of objects becomes text
        known = np.array(y[labelled].tolist())
        with warnings.catch_warnings():  # one label a class is no sign of a regression
            warnings.simplefilter("ignore", UserWarning)
            check_classification_targets(known)
        classes, labels = np.unique(known, return_inverse=True)
        device = self.neighbours_.device
        rows = torch.from_numpy(np.flatnonzero(labelled)).to(device)
        return classes, rows, torch.from_numpy(labels).to(device)

    def _use(self, joined: Joined) -> None:
        """Spread labels over the joined graph of several views."""
        self.weights_ = joined.weights
        self.join_ = joined.join
        self._use_graph(joined.graph)

    def _use_graph(self, graph: RowGraph) -> None:
        self.row_graph_ = graph
        self.neighbours_ = graph.neighbours
        self.graph_ = graph.graph
        self.parts_ = graph.parts
        self.distances_ = graph.distances

    def _spread(self, rows: Tensor, labels: Tensor, quick: bool) -> Tensor:
        """Probabilities [N, K] of all rows; a labelled row has its own class."""
        count = len(self.neighbours_)
        classes = len(self.classes_)
        shares = self._shares()
        seen = labels.bincount(minlength=classes).double() / len(labels)
        prior = seen if shares is None else shares.to(seen)
        result = prior.expand(count, classes).clone()
        self.held_out_ = HeldOut.none(classes)
        if classes > 1 and self.row_graph_ is not None:
            reached = torch.isin(self.parts_, self.parts_[rows])
            if shares is None:
                found = self._calibrated(self.row_graph_, rows, labels, quick)
            else:
                found = self._regions(rows, labels, prior)
            result[reached] = found[reached]
            if not bool(reached.all()):
                _warn_of_parts(int((~reached).sum()), count)
        result[rows] = F.one_hot(labels, classes).to(result)
        return result

    def _calibrated(self, graph: RowGraph, rows: Tensor, labels: Tensor, quick: bool) -> Tensor:
        """Probabilities [N, K] from scores, calibrated on labels that are held out in turn; while
        these are few, also on the accuracy that the stability of the classes lets expect."""
        classes = len(self.classes_)
        scores = label_scores(graph, rows, labels, classes)
        if len(labels) == classes and not quick:
            regions = even_regions(graph, rows, labels, scores.all_rows.argmax(1))
            if regions is not None:
                length = calibration.usual_length(regions)
                scores = scores._replace(all_rows=calibration.scaled(regions, length))
                warn(_EVEN_CLASSES, EvenClassesWarning)
        how = (self.weighting or ViewWeighting()).stability
        usual = None
        if how.is_measured(len(scores.all_rows), classes, len(scores.held_out)):
            if self._stable is None or not quick:
                of_rows = scores.all_rows.argmax(1)
                self._stable = stability(graph, of_rows, classes, len(labels), how)
            others = torch.ones(len(scores.all_rows), dtype=torch.bool, device=rows.device)
            others[rows] = False
            accuracy = expected_accuracy(self._stable, classes, how)
            usual = calibration.usual_sharpness(scores.all_rows[others], accuracy)
        found = calibration.calibrate(scores.held_out_scores, scores.held_out_labels, usual)
        known = found.probabilities(scores.held_out_scores)
        self.held_out_ = HeldOut(scores.held_out, scores.held_out_labels, known)
        probabilities = found.probabilities(scores.all_rows)
        distance = calibration.usual_distance(graph.distances)
        return calibration.mix_isolated(probabilities, graph.distances, distance)

    def _regions(self, rows: Tensor, labels: Tensor, shares: Tensor) -> Tensor:
        """Shares [N, K] of walks that end in the regions of the classes, whose sizes are known."""
        assert self.graph_ is not None
        u = poisson_learning(self.graph_, rows, labels, shares)
        walks = grow_regions(self.graph_, self.parts_, u, rows, labels, shares)
        return walks / walks.sum(1, keepdim=True).clamp(min=1e-300)

    def _shares(self) -> Tensor | None:
        """Return the shares of the classes, [K], adding up to 1; None if they are not known."""
        classes = len(self.classes_)
        prior = self.class_prior
        if prior is None:
            return None
        uniform = isinstance(prior, str) and prior == "uniform"
        shares = np.ones(classes) if uniform else np.asarray(prior)
        if shares.shape != (classes,) or not np.isfinite(shares).all() or not (shares > 0).all():
            raise SpecError(
                f"Got class_prior = {prior!r}; expected None, 'uniform' or {classes} numbers above"
                " 0."
            )
        return torch.from_numpy(shares / shares.sum())

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the probabilities of the classes for new rows, (n, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        rows = torch.from_numpy(np.require(X, requirements="W"))
        if self.join_ is not None:
            rows = self.join_(rows)
        return np.asarray(self.new_rows_(rows).cpu().numpy())

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the classes of new rows, (n,)."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])


def _is_unlabelled(y: np.ndarray) -> np.ndarray:
    """Return which labels are -1; text never is."""
    return np.array([label == UNLABELLED for label in y.tolist()], dtype=bool)


def labelled_score(classifier: _Predicts, X: ArrayLike, y: ArrayLike) -> float:
    """Return the accuracy on rows that have a label, for scikit-learn's searches; NaN without any.

    Parameters
    ----------
    classifier
        a fitted `GraphClassifier`, or a pipeline that ends with one
    X
        rows
    y
        their labels, -1 for rows without one

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> X = np.concatenate([np.random.default_rng(0).normal(c, 0.3, (50, 2)) for c in (0, 2)])
    >>> y = np.where(np.arange(100) % 5 == 0, np.arange(100) // 50, -1)
    >>> search = GridSearchCV(
    ...     ww.GraphClassifier(), {"n_neighbors": [5, 10]}, scoring=ww.labelled_score
    ... )
    >>> float(search.fit(X, y).best_score_)
    1.0
    """
    y = np.asarray(y)
    labelled = ~_is_unlabelled(y)
    if not labelled.any():
        return float("nan")
    right = classifier.predict(np.asarray(X)[labelled]) == y[labelled]
    return float(np.mean(right))


def _warn_of_parts(rows: int, count: int) -> None:
    are = "is" if rows == 1 else "are"
    warn(
        f"{rows:,} of {count:,} rows {are} not connected to any label. The probabilities there are"
        " the shares of the classes. Label one of these rows, or raise n_neighbors."
    )
