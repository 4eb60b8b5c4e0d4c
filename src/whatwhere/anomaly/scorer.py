"""Scores and maps of pictures by one source of features, and what normal pictures are like in it.

A normal picture is scored by what was learned from the others, so that its score is like that of a
new normal picture: thresholds and joined scores depend on that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor

from whatwhere.anomaly.aligned import OBJECT, NormalObject, learn_object
from whatwhere.anomaly.evidence import (
    COLOUR,
    FEATURES,
    RECORDING,
    SMALL_SURFACE,
    SURFACE,
    Each,
    ExpectedEvidence,
    Kinds,
    NormalSurface,
    evidence_of_places,
    in_units,
    learn_surface,
    neighbour_moments,
    soft_maximum,
    summarise,
    surface_of,
    units_of,
    what_counts,
)
from whatwhere.anomaly.features import GivenFeatures
from whatwhere.anomaly.filters import LARGE, SIGNAL, SMALL, Cells, Filters
from whatwhere.errors import ImageError, plural
from whatwhere.progress import Stage, no_stage


@dataclass(frozen=True, kw_only=True)
class ScorerSpec:
    """Settings of scorers.

    Parameters
    ----------
    folds
        a normal picture is judged by what was learned from the others
    pixels
        of the maps of all normal pictures, that tell which values are rare
    most_pixels
        of the map of a picture
    """

    folds: int = 4
    pixels: int = 2_000_000
    most_pixels: int = 4096


_SCORER = ScorerSpec()


class _Scored(NamedTuple):
    """The evidence of a source of features on a picture.

    Parameters
    ----------
    score
        the higher, the less normal
    evidence
        evidence of each kind, in units of normal pictures
    by_pixel
        [H, W]
    side
        of the square that shows a place, in pixels
    """

    score: float
    evidence: dict[str, float]
    by_pixel: Tensor
    side: int


@dataclass(frozen=True)
class Scorer:
    """A source of features, what normal pictures are like in it, and the units of its evidence.

    Parameters
    ----------
    extract
        function from a picture to its cells
    normal
        what normal cells are like
    usual
        the evidence that is usual for a picture's surface
    units
        [2, k], of the evidence of pictures
    map_units
        [2, k], of the evidence of cells
    aligned
        whether a place is compared with the same place
    """

    extract: Filters | GivenFeatures
    normal: NormalSurface | NormalObject
    usual: ExpectedEvidence
    units: Tensor
    map_units: Tensor
    aligned: bool

    def on(self, device: torch.device) -> "Scorer":
        """Return the same scorer, which compares places on a device."""
        return replace(self, normal=self.normal.on(device))

    @property
    def kinds(self) -> Kinds:
        """The kinds of evidence, as in `evidence.SURFACE`."""
        return _kinds_of(self.extract, self.aligned)

    def side(self, cells: Cells, picture: Tensor) -> int:
        """Return the side of the square that shows what a place of a picture [C, H, W] is like, in
        pixels."""
        cell_height, _ = self.extract.cell_size(cells, picture)
        return round((cells.search.around + 1) * cell_height)

    def by_pixel(self, maps: Tensor, cells: Cells, size: Sequence[int], score: float) -> Tensor:
        """Return the evidence of cells [k, rows, columns], not yet in units, as one map [H, W] of a
        picture with this score."""
        by_kind = in_units(maps, self.map_units[..., None, None])
        by_cell = evidence_of_places(by_kind, self.kinds, cells.known, score)
        detail = self.extract.detail_to_pixels(cells, size)
        return self.extract.to_pixels(by_cell, size) + detail

    def __call__(self, picture: Tensor, name: str, each: Each = map) -> _Scored:
        """Return the evidence on a picture [C, H, W]; its name is for errors, `each` a map of parts
        of it."""
        cells = self.extract(picture)
        if not cells.known.any():
            raise ImageError(f"Picture {name} has no place with known pixels. Remove it.")
        evidence, maps = _evidence_of(self.normal, cells, self.kinds, each)
        evidence = in_units(evidence - self.usual(surface_of(cells)), self.units)
        score = float(soft_maximum(what_counts(evidence, self.kinds)))
        pixels = self.by_pixel(maps, cells, picture.shape[1:], score)
        by_kind = dict(zip(self.kinds, evidence.tolist(), strict=True))
        return _Scored(score, by_kind, pixels, self.side(cells, picture))


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How a scorer is learned.

    Parameters
    ----------
    aligned
        whether a place is compared with the same place
    seed
        of the sample of normal places
    versions
        number of pictures one after the other that are versions of one picture
    device
        that compares places
    """

    aligned: bool
    seed: int
    versions: int
    device: torch.device


class Learned(NamedTuple):
    """A scorer, and what it says of the normal pictures, each by what was learned from others.

    Parameters
    ----------
    normal_scores
        [N]
    normal_evidence
        [N, k]
    normal_pixels
        [N, n], of their maps at n places drawn at random
    normal_peaks
        [N], the largest values of their maps
    judge
        a scorer that learned from all pictures but some
    judged
        the numbers of those
    """

    scorer: Scorer
    normal_scores: Tensor
    normal_evidence: Tensor
    normal_pixels: Tensor
    normal_peaks: Tensor
    judge: Scorer
    judged: list[int]


def learn_scorer(
    extract: Filters | GivenFeatures,
    pictures: Sequence[Tensor],
    how: Learning,
    each: Each,
    stage: Stage = no_stage,
) -> Learned:
    """Return what normal pictures [C, H, W] are like in these features."""
    all_pictures = plural(len(pictures), "picture")
    cells: list[Cells] = []
    with stage(f"computing features of {all_pictures}", len(pictures)) as advance:
        for found in each(extract, pictures):
            cells.append(found)
            advance(1)
    if not all(found.known.any() for found in cells):
        raise ImageError("A normal picture has no place with known pixels. Remove it.")
    kinds = _kinds_of(extract, how.aligned)
    different = len(cells) // how.versions
    fold = torch.arange(len(cells)) // how.versions * min(_SCORER.folds, different) // different
    # Every picture is used for learning for all pictures and for each other fold, and compared
    # once.
    rounds = max(len(fold.unique()) + 1, 3)
    comparisons = rounds * len(cells)
    title = f"comparing {all_pictures} in {rounds} rounds ({plural(comparisons, 'comparison')})"
    with stage(title, comparisons) as advance:
        learn = _learner(cells, fold, how, each, advance)
        normal = learn(None)
        found, without_last = _cross_evidence(cells, fold, kinds, learn, each, advance)
        evidence = torch.stack([one for one, _ in found])
    surfaces = torch.stack([surface_of(found) for found in cells])
    excess = _cross_excess(surfaces, evidence, fold)
    units = units_of(excess, kinds)
    scorer = Scorer(
        extract=extract,
        normal=normal,
        usual=ExpectedEvidence.of(surfaces, evidence),
        units=units,
        map_units=units_of(evidence, kinds),
        aligned=how.aligned,
    )
    by_kind = in_units(excess, units)
    scores = soft_maximum(what_counts(by_kind.mT, kinds))
    if all(torch.equal(found.energy, cells[0].energy) for found in cells[1:]):
        # Identical pictures: folds with fewer copies do not represent all of them.
        one = _evidence_of(normal, cells[0], kinds)[0] - scorer.usual(surfaces[0])
        scores = scores.clamp_min(float(soft_maximum(what_counts(in_units(one, units), kinds))))
    pixels = []
    peaks = []
    parts = zip(found, cells, pictures, scores.tolist(), strict=True)
    for (_, maps), shown, picture, score in parts:
        values = scorer.by_pixel(maps, shown, picture.shape[1:], score)
        pixels.append(drawn(values, picture, _SCORER.pixels // len(pictures)))
        peaks.append(values[picture.isfinite().all(0)].amax())
    return Learned(
        scorer=scorer,
        normal_scores=scores,
        normal_evidence=by_kind,
        normal_pixels=torch.stack(pixels),
        normal_peaks=torch.stack(peaks),
        judge=replace(scorer, normal=without_last),
        judged=(fold == fold[-1]).nonzero()[:, 0].tolist(),
    )


def drawn(values: Tensor, picture: Tensor, count: int) -> Tensor:
    """Return values [H, W] at `count` known pixels of a picture, within limits; the same
    pixels for all sources of features."""
    known = picture.isfinite().all(0).flatten().nonzero()[:, 0]
    generator = torch.Generator().manual_seed(0)
    count = min(max(count, 1), _SCORER.most_pixels)
    some = known[torch.randint(len(known), (count,), generator=generator)]
    return values.flatten()[some]


def _kinds_of(extract: Filters | GivenFeatures, aligned: bool) -> Kinds:
    if aligned:
        return OBJECT
    if isinstance(extract, GivenFeatures):
        return FEATURES
    by_search = {
        LARGE: SURFACE,
        SMALL: SMALL_SURFACE,
        SIGNAL: RECORDING,
    }
    kinds = by_search[extract.search]
    return kinds | COLOUR if extract.sees_colour else kinds


_Learner = Callable[[int | None], NormalSurface | NormalObject]
"""What pictures are like without a fold (None: all of them)."""


def without(fold: Tensor, left_out: int | None) -> list[int]:
    """Return the numbers of the pictures outside of a fold; all if no other is left."""
    kept = [] if left_out is None else (fold != left_out).nonzero()[:, 0].tolist()
    return kept or list(range(len(fold)))


def _learner(
    cells: Sequence[Cells],
    fold: Tensor,
    how: Learning,
    each: Each,
    advance: Callable[[int], None],
) -> _Learner:
    """Make a learner that calls `advance` with the number of pictures that it has learned from."""
    if how.aligned:
        plain = _object_learner(cells, fold, each)
    else:
        plain = _surface_learner(cells, fold, how, each)

    def learn(left_out: int | None) -> NormalSurface | NormalObject:
        normal = plain(left_out)
        advance(len(without(fold, left_out)))
        return normal

    return learn


def _object_learner(cells: Sequence[Cells], fold: Tensor, each: Each) -> _Learner:
    def learn(left_out: int | None) -> NormalObject:
        return learn_object([cells[n] for n in without(fold, left_out)], each=each)

    return learn


def _surface_learner(cells: Sequence[Cells], fold: Tensor, how: Learning, each: Each) -> _Learner:
    folds = fold.unique().tolist()
    # Moments of a fold serve every choice of pictures that has it.
    moments = {
        k: neighbour_moments([found for found, f in zip(cells, fold, strict=True) if f == k], each)
        for k in folds
    }

    def learn(left_out: int | None) -> NormalSurface:
        chosen = without(fold, left_out)
        used = [moments[k] for k in fold[chosen].unique().tolist()]
        known = [part for part in used if part is not None]
        total = reduce(add, known) if known else None
        return learn_surface([cells[n] for n in chosen], how.seed, each, total, how.device)

    return learn


def _cross_evidence(
    cells: Sequence[Cells],
    fold: Tensor,
    kinds: Kinds,
    learn: _Learner,
    each: Each,
    advance: Callable[[int], None],
) -> tuple[list[tuple[Tensor, Tensor]], NormalSurface | NormalObject]:
    """Return the evidence of normal pictures and of their cells, by what was learned without their
    fold, and what was learned without the last fold; neighbours, often of one object, are in
    one."""
    normal = None
    evidence: list[tuple[Tensor, Tensor]] = []
    for k in fold.unique().tolist():
        inside = [found for found, f in zip(cells, fold, strict=True) if f == k]
        normal = learn(k)
        for one in each(lambda c, normal=normal: _evidence_of(normal, c, kinds), inside):
            evidence.append(one)
            advance(1)
    assert normal is not None
    return evidence, normal


def _evidence_of(
    normal: NormalSurface | NormalObject, cells: Cells, kinds: Kinds, each: Each = map
) -> tuple[Tensor, Tensor]:
    """Return the evidence of a picture [k] and of its cells [k, rows, columns], not yet in
    units."""
    found = normal.maps(cells, each)
    maps = torch.stack([found[kind] for kind in kinds])
    return summarise(maps, cells, [kind.quantile for kind in kinds.values()]), maps


def _cross_excess(surfaces: Tensor, evidence: Tensor, fold: Tensor) -> Tensor:
    """Return how much evidence [N, k] exceeds what is usual for surfaces [N, D], by the pictures of
    other folds."""
    usual = torch.empty_like(evidence)
    for k in fold.unique():
        others = (fold != k) if len(fold) > 1 else fold == k
        learned = ExpectedEvidence.of(surfaces[others], evidence[others])
        usual[fold == k] = torch.stack([learned(surface) for surface in surfaces[fold == k]])
    return evidence - usual
