"""A classifier for few labels: they spread over the graph that joins every row to its nearest
neighbours."""

import warnings
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.engines.devices import choose_device
from whatwhere.errors import ImageError, MissingExtra, SpecError
from whatwhere.spec.checks import require_count
from whatwhere.tasks.classification.poisson import (
    Neighbours,
    NewRows,
    connected_parts,
    grow_regions,
    neighbour_weights,
    poisson_learning,
    symmetric_graph,
)

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "GraphClassifier") from None

UNLABELLED = -1


class GraphClassifier(ClassifierMixin, BaseEstimator):
    """Semi-supervised classification: a few labelled rows, and many without a label, which show
    where classes end.

    Every row is joined to its nearest neighbours, by Euclidean distance; rows of unit length, as
    descriptors are, have the same neighbours by their cosine. Labels spread over this graph by
    Poisson learning, then the regions of the classes settle so that few neighbours are in different
    ones. New rows get theirs from their neighbours and from a ridge regression on the classes of
    all rows. As in scikit-learn's `semi_supervised`, -1 in y marks rows without a label.

    Parameters
    ----------
    n_neighbors : neighbours that a row is joined to
    class_prior : shares that the classes have of all rows, if they are known roughly: 'uniform', or
        a number for each class in the order of `classes_`. Shares of the result then differ from
        them by a factor of at most about 1.3. Helps most with one or two labels of each class.
        None: not known
    device : 'cpu', 'cuda', or 'auto', which selects a GPU if there is one

    Attributes
    ----------
    classes_ : the labels, (n_classes,)
    transduction_ : the class of every row of `fit`, (n,); labelled rows keep theirs
    label_distributions_ : probabilities of the classes for every row of `fit`, (n, n_classes)

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
        class_prior: Literal["uniform"] | Any | None = None,
        device: str = "cpu",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.class_prior = class_prior
        self.device = device

    def fit(self, X: Any, y: Any) -> "GraphClassifier":
        """Spread the labels.

        X : rows (n, d)
        y : their labels (n,), -1 for rows without one
        """
        require_count("n_neighbors", self.n_neighbors)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        self.neighbours_ = Neighbours(torch.tensor(X), choose_device(self.device))
        self.graph_ = self._join() if len(X) > 1 else None
        return self.refit(y)

    def refit(self, y: Any) -> "GraphClassifier":
        """Spread other labels (n,) over the graph that `fit` made, which is the longer part of its
        work."""
        y = np.asarray(y)
        labelled = ~is_unlabelled(y)
        if not labelled.any():
            raise ImageError(
                "every label is -1, which marks rows without a label; expected at least one other"
            )
        # text that stood next to -1 in an array of objects becomes text
        known = np.array(y[labelled].tolist())
        check_classification_targets(known)
        self.classes_, labels = np.unique(known, return_inverse=True)
        shares = self._shares()
        spread = self._spread(
            torch.from_numpy(np.flatnonzero(labelled)), torch.from_numpy(labels), shares
        )
        self.label_distributions_ = spread.cpu().numpy()
        self.transduction_ = self.classes_[self.label_distributions_.argmax(1)]
        self.new_rows_ = NewRows(self.neighbours_, spread, self.n_neighbors)
        return self

    def _join(self) -> Tensor:
        squares, found = self.neighbours_.others(
            min(self.n_neighbors, len(self.neighbours_.rows) - 1)
        )
        graph = symmetric_graph(neighbour_weights(squares), found)
        self.parts_ = connected_parts(graph)
        return graph

    def _spread(self, rows: Tensor, labels: Tensor, shares: Tensor | None) -> Tensor:
        """Probabilities [N, K] of all rows; a labelled row has its own class."""
        count, classes = len(self.neighbours_.rows), len(self.classes_)
        device = self.neighbours_.device
        rows, labels = rows.to(device), labels.to(device)
        seen = labels.bincount(minlength=classes) / len(labels)
        prior = (seen.double() if shares is None else shares).to(device)
        result = prior.expand(count, classes).clone()
        if classes > 1 and self.graph_ is not None:
            # Without shares all classes are equally strong: how many labels a class has may say
            # nothing of its size.
            even = torch.full_like(prior, 1 / classes)
            u = poisson_learning(self.graph_, rows, labels, even if shares is None else prior)
            walks = grow_regions(
                self.graph_, self.parts_, u, rows, labels, None if shares is None else prior
            )
            reached = walks.sum(1) > 0
            result[reached] = (walks / walks.sum(1, keepdim=True))[reached]
            if not bool(reached.all()):
                warnings.warn(
                    f"{int((~reached).sum()):,} of {count:,} rows are in parts of the graph without"
                    " a label, so their probabilities are the shares of the classes; label one of"
                    " them, or raise n_neighbors",
                    stacklevel=3,
                )
        result[rows] = F.one_hot(labels, classes).to(result)
        return result

    def _shares(self) -> Tensor | None:
        """The shares of the classes, [K], adding up to 1; None if they are not known."""
        classes, prior = len(self.classes_), self.class_prior
        if prior is None:
            return None
        shares = (
            np.ones(classes) if isinstance(prior, str) and prior == "uniform" else np.asarray(prior)
        )
        if shares.shape != (classes,) or not np.isfinite(shares).all() or not (shares > 0).all():
            raise SpecError(
                f"class_prior = {prior!r} was given; expected None, 'uniform' or {classes} numbers"
                " above 0"
            )
        return torch.from_numpy(shares / shares.sum())

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probabilities of the classes for new rows, (n, n_classes)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return np.asarray(self.new_rows_(torch.tensor(X)).cpu().numpy())

    def predict(self, X: Any) -> np.ndarray:
        """The classes of new rows, (n,)."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])


def is_unlabelled(y: np.ndarray) -> np.ndarray:
    """Which labels are -1; text never is."""
    return np.array([label == UNLABELLED for label in y.tolist()], dtype=bool)
