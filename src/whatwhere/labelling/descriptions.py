"""What describes the pictures of a session: plain views at once, learned features later, or both
side by side."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.joined_describer import JoinedDescriber, PictureDescriber
from whatwhere.classification.picture_classifier import (
    DescribingSettings,
    describe_pictures,
    is_finished,
)
from whatwhere.classification.settings import Distortions
from whatwhere.data import Images
from whatwhere.errors import listed
from whatwhere.learning import TrainedRun
from whatwhere.progress import Stage, no_stage
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution
from whatwhere.views import Colour, Edges, MapView


class Description(NamedTuple):
    """Rows that describe pictures.

    Parameters
    ----------
    name
        a word for them
    rows
        descriptors [n, D]
    describe
        a function from new images to such rows; None if only the rows are known
    at
        the numbers of the described pictures [n]; None for all
    columns
        number of columns of each view that stands side by side; None for one description
    """

    name: str
    rows: Tensor
    describe: PictureDescriber | None = None
    at: np.ndarray | None = None
    columns: Mapping[str, int] | None = None


@dataclass(frozen=True)
class PlainSettings:
    """The views that describe pictures before a model is learned.

    Parameters
    ----------
    views
        colours of the whole and of quarters, of small pictures because a histogram needs few
        pixels; edges of the whole, of quarters and of sixteenths. On eight sets, this was best or
        near it (benchmarks/labels/plain_views.py)
    first
        pictures that are described before the page opens: as many small ones as take about a
        second. The others follow behind
    fewest
        of them, however large they are: fewer have no neighbours
    seconds
        that they may take to decode: a photograph of a camera takes 0.1 s
    tried
        pictures that are decoded to tell how long it takes
    """

    views: tuple[MapView, ...] = (Colour(side=24), Edges(cells=(1, 2, 4)))
    first: int = 300
    fewest: int = 30
    seconds: float = 1.0
    tried: int = 4

    def for_pictures(self, images: Images) -> "PlainSettings":
        """Return the same with as many first pictures as are decoded in time."""
        tried = min(self.tried, len(images))
        images[:1]  # loads the decoder
        start = time.perf_counter()
        images[:tried]
        each = (time.perf_counter() - start) / tried
        in_time = int(self.seconds / max(each, 1e-9))
        return replace(self, first=min(self.first, max(self.fewest, in_time)))


def plain_description(
    images: Images,
    views: Sequence[MapView],
    at: np.ndarray | None = None,
    stage: Stage = no_stage,
) -> Description:
    """Describe pictures by views side by side.

    Parameters
    ----------
    at
        the numbers of the pictures to describe; None for all
    stage
        shows the progress
    """
    described = images if at is None else images.subset(at)
    name = listed(view.name for view in views)
    batches: list[list[Tensor]] = [[] for _ in views]
    with stage(f"describing the pictures by {name}", len(described) * len(views)) as advance:
        for rows in described.batches(max(view.batch_size for view in views)):
            pixels = described[rows]  # decoded once for all views
            for view, of_view in zip(views, batches, strict=True):
                of_view.append(view.rows(pixels, advance))
    parts = [torch.cat(of_view) for of_view in batches]
    counts = tuple(part.shape[1] for part in parts)
    describer = JoinedDescriber(tuple(views), counts, images.shape)
    return Description(name, torch.cat(parts, 1), describer, at, describer.columns)


def joined_description(plain: Description, learned: Description) -> Description:
    """Views and learned features side by side."""
    describe = plain.describe
    assert isinstance(describe, JoinedDescriber)
    joined = replace(describe, own=learned.describe)
    own = learned.describe
    learned_columns = {"learned": learned.rows.shape[1]} if own is None else own.columns
    columns = dict(plain.columns or {}) | dict(learned_columns)
    names = [view.name for view in describe.views]
    rows = torch.cat([plain.rows, learned.rows], 1)
    return Description(listed([*names, learned.name]), rows, joined, None, columns)


def own_features(description: Description) -> PictureDescriber | None:
    """Return the describer of learned features in a description; None if it has none."""
    describe = description.describe
    return describe.own if isinstance(describe, JoinedDescriber) else describe


@dataclass(frozen=True)
class BehindSettings:
    """How long the stages behind the page usually take, relative to each other; measured on the
    sets of benchmarks/labels. It tells how long stages take that have not begun.

    Parameters
    ----------
    plain
        describe all pictures by views
    compare
        find the neighbours of all pictures by one description
    learn
        learn features
    metric
        learn which differences do not matter
    describe
        describe all pictures by learned features
    """

    plain: float = 1.0
    compare: float = 1.0
    learn: float = 20.0
    metric: float = 6.0
    describe: float = 4.0


@dataclass(frozen=True)
class Behind:
    """Better descriptions of the pictures of a session, which take longer.

    Parameters
    ----------
    images
        all pictures
    run
        a run, a model file or the name of a model; None learns one
    how
        distortions that do not change what a picture shows
    options
        engine and device
    labels
        the table of labels next to which the model is kept; None keeps nothing
    plain
        the views, and how many pictures they described at first
    settings
        how long stages usually take
    change
        changes the recipe, such as by settings that a person gave
    """

    images: Images
    run: str | os.PathLike[str] | TrainedRun | None
    how: Distortions
    options: Execution
    labels: Path | None
    plain: PlainSettings = field(default_factory=PlainSettings)
    settings: BehindSettings = field(default_factory=BehindSettings)
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe

    def weights(self) -> list[float]:
        """Return how long each stage to come usually takes."""
        usual = self.settings
        kept = None if self.labels is None else self.labels.with_suffix(".run")
        must_learn = self.run is None and (kept is None or not is_finished(kept))
        stages = [usual.plain, usual.compare] if self._has_share else []
        stages += [usual.learn] if must_learn else []
        return [*stages, usual.metric, usual.describe, 2 * usual.compare]

    def __call__(self, stage: Stage) -> Iterator[Description]:
        """Yield each description once it is made."""
        if self._has_share:
            yield plain_description(self.images, self.plain.views, None, stage)
        yield self.learned(stage)

    def learned(self, stage: Stage) -> Description:
        """Describe all pictures by learned features."""
        describing = DescribingSettings(beside_others=True, change=self.change)
        describe, rows = describe_pictures(
            self.images, self.run, self.how, self.options, self.labels, stage, describing
        )
        return Description("learned features", rows, describe)

    @property
    def _has_share(self) -> bool:
        return self.plain.first < len(self.images)
