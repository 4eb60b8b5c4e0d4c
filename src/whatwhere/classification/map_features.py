"""Rows for a classifier from the maps of any network, in the interface of scikit-learn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.data import Images, Source, load
from whatwhere.errors import MissingExtra, SpecError
from whatwhere.nn.feature_maps import FeatureMaps, check_features, feature_maps

if TYPE_CHECKING:
    from sklearn.utils import Tags

try:
    from sklearn.base import BaseEstimator, TransformerMixin
except ImportError:
    raise MissingExtra("scikit-learn", "MapFeatures") from None


class MapFeatures(TransformerMixin, BaseEstimator):
    """Rows of numbers for pictures, from the maps of a callable such as a pretrained network.

    A map is averaged in `cells` × `cells` parts of the picture; the averages of each map have unit
    length. The same callable serves `AnomalyDetector(features=…)` and `Labelling(features=…)`.

    Parameters
    ----------
    features
        a callable from pictures [n, C, h, w] to a map [n, D, h', w'] or several
    cells
        parts of the height and of the width

    Examples
    --------
    >>> import whatwhere as ww
    >>> def edges(pictures):
    ...     return pictures.diff(dim=3).abs()
    >>> digits = ww.data.load("digits")[:5]
    >>> ww.MapFeatures(edges, cells=4).fit_transform(digits).shape
    (5, 16)
    """

    def __init__(self, features: FeatureMaps, cells: int = 2) -> None:
        self.features = features
        self.cells = cells

    def fit(self, X: Source, y: object = None) -> MapFeatures:
        """Check the settings; nothing is learned."""
        check_features(self.features)
        if self.cells < 1:
            raise SpecError(f"Got cells = {self.cells!r}; expected 1 or more.")
        return self

    def transform(self, X: Source) -> np.ndarray:
        """Rows (n, D) of pictures of one size, as `ww.data.load` takes them."""
        self.fit(X)
        images = X if isinstance(X, Images) else load(X)
        rows = []
        batch = 32  # pictures that the callable gets at a time
        for start in range(0, len(images), batch):
            maps = feature_maps(self.features, images[start : start + batch])
            means = [F.adaptive_avg_pool2d(one, self.cells).flatten(1) for one in maps]
            rows.append(torch.cat([F.normalize(values, dim=1) for values in means], 1))
        return torch.cat(rows).numpy()

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags
