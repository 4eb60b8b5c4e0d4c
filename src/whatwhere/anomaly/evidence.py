"""How unlike normal surfaces a picture is: kinds of evidence, each measured in units of normal
pictures.

    spots       a response that is larger than those anywhere in normal pictures
    curves      the same for responses that add up along a dark curve
    texture     energies of a place that are far from the nearest ones of normal places
    neighbours  energies of a place that those around it do not predict, as they do in normal
                pictures
    rows        a band of rows whose energies differ from those of the next band, by more than in
                normal pictures
    columns     the same for columns
    whole       mean energies of the picture
    colour      a colour that is far from the nearest ones of normal places, for pictures in colour

A surface may be normal everywhere but change at some place, so rows and columns compare a picture
with itself. Rough surfaces have more evidence of some kinds than smooth ones, so a picture's
evidence is compared with that of normal pictures with a similar surface (`ExpectedEvidence`). Each
kind of evidence is 0 for the median of normal pictures and 1 at a high quantile of theirs;
together they are a soft maximum, T log mean exp (e / T), in which kinds of one sort count once.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.filters import QUIET, Cells, around

Each = Callable[..., Iterable[Any]]  # a map, perhaps in several threads


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of evidence.

    Parameters
    ----------
    quantile
        of the cells of a picture that is its evidence
    weight
        how much a unit counts, in a map too. The more all kinds count, the more the largest alone
        decides
    in_score
        how much the evidence counts in the score of a picture
    usual
        evidence that does not count there
    sort
        of kinds of one sort, only the larger counts in a score, because each further kind makes
        normal pictures odder by chance; empty for a sort of its own
    """

    quantile: float = 1.0
    weight: float = 1.0
    in_score: float = 1.0
    usual: float = 0.0
    sort: str = ""


Kinds = dict[str, Kind]
SURFACE = {
    "spots": Kind(sort="marks"),
    "curves": Kind(sort="marks", in_score=1.25, usual=0.5),
    "texture": Kind(quantile=0.99, in_score=0.75),
    "neighbours": Kind(quantile=0.9, in_score=1.25),
    "rows": Kind(sort="bands"),
    "columns": Kind(sort="bands"),
    "whole": Kind(in_score=0.75),
}
"""The kinds of evidence of surfaces. What they count in a score was chosen on tiles and roads, and
confirmed on cracks, solar cells and ball screws (`docs/results/trials.md`)."""
SMALL_SURFACE = {  # there is no room for bands
    "spots": Kind(weight=0.5),
    "texture": Kind(quantile=0.9, weight=0.5),
}
# next to the others, for pictures in colour
COLOUR = {"colour": Kind(quantile=0.99, weight=0.5)}
RECORDING = {"spots": Kind(weight=0.5), "texture": Kind(weight=0.5)}
# for features of a user
FEATURES = {"texture": Kind(quantile=0.99), "neighbours": Kind(quantile=0.99)}

_LOCAL = {
    "spots": 2.0,
    "curves": 0.5,
    "texture": 1.0,
    "neighbours": 1.0,
    "places": 1.0,
    "colour": 0.5,
}
"""The kinds that tell places apart, and how much each counts in a map. The others are the same in a
band or everywhere. Spots count more, because they are found where they are, and not in a square
around it.
"""


@dataclass(frozen=True, kw_only=True)
class MapSpec:
    """Settings of maps, in units of evidence. They were chosen on five folds of magnetic tiles, and
    looked at on ball screws.

    Parameters
    ----------
    wide_limit
        most that rows, columns and the whole picture count next to local evidence: they never mark
        a place alone
    relative
        share of a map that compares places with their own picture, not with all normal ones
    wide
        weight of the evidence of rows, columns and the whole picture there
    most_wide
        largest size of that evidence
    score
        weight of the score of the picture, so that a place counts more in a picture that is odd
    most_score
        largest size of that score: an odd picture is not odd everywhere
    """

    wide_limit: float = 1.0
    relative: float = 0.3
    wide: float = 1.0
    most_wide: float = 1.2
    score: float = 0.2
    most_score: float = 3.0


_USUAL_MAP = MapSpec()
_CPU = torch.device("cpu")
LEAST = 0.1  # the smallest spread of evidence and of energies that is used


@dataclass(frozen=True, kw_only=True)
class EvidenceSpec:
    """Settings of evidence.

    Parameters
    ----------
    temperature
        units: T of the soft maximum
    upper_quantile
        of normal pictures, whose evidence is 1: a tenth of them is enough to measure it
    shrinkage
        of correlations towards 0, since pictures are few
    band
        cells: how many rows or columns are compared with the next ones
    bank
        normal places that others are compared with
    edge_pictures
        pictures whose places tell what is usual near a border
    edge_places
        places of these pictures, at each distance from the border
    queries
        places that are compared at a time, so that their distances fit into a cache
    parts
        of as many places that a thread compares
    groups
        groups in which the smallest of many values are searched
    directions
        directions in which the surfaces of normal pictures differ most
    """

    temperature: float = 1.0
    upper_quantile: float = 0.9
    shrinkage: float = 0.1
    band: int = 4
    bank: int = 6000
    edge_pictures: int = 64
    edge_places: int = 1000
    queries: int = 64
    parts: int = 32
    groups: int = 400
    directions: int = 4


_EVIDENCE = EvidenceSpec()


@dataclass(frozen=True)
class Gaussian:
    """The distribution of normal vectors: mean [D], and whitening [D, D], which makes them
    uncorrelated."""

    mean: Tensor
    whitening: Tensor

    @classmethod
    def of(cls, vectors: Sequence[Tensor]) -> "Gaussian":
        """Return the distribution of vectors [D, n] of each picture; correlations are shrunk, and
        deviations are at least `LEAST`."""
        count = sum(x.shape[1] for x in vectors)
        mean = torch.stack([x.double().sum(1, keepdim=True) for x in vectors]).sum(0) / count
        covariance = torch.zeros(len(mean), len(mean), dtype=torch.float64)
        for x in vectors:
            centred = x - mean.to(x.dtype)
            covariance += (centred @ centred.mT).double() / count
        deviation = covariance.diagonal().sqrt().clamp_min(LEAST)
        correlation = (1 - _EVIDENCE.shrinkage) * covariance / torch.outer(deviation, deviation)
        correlation.diagonal().fill_(1.0)
        whitening = torch.linalg.cholesky(torch.linalg.inv(correlation)).mT / deviation
        return cls(mean[:, 0].float(), whitening.float())

    def whiten(self, x: Tensor) -> Tensor:
        """Vectors [D, n] as uncorrelated ones, whose squared length is 1 on average."""
        return self.whitening @ (x - self.mean[:, None]) / math.sqrt(len(x))

    def log_mahalanobis(self, x: Tensor) -> Tensor:
        """Return the logarithm of the squared distance of vectors [D, n] from the mean, [n]."""
        return _log_distance(self.whiten(x).square().sum(0))


@dataclass(frozen=True)
class _Regression:
    """The energies of a place as its neighbours predict them, linearly, from normal pictures.

    Parameters
    ----------
    mean, deviation
        [D], of the energies
    weights
        [4 D, D]: the share of each neighbour's energies
    residual
        the distribution of what is not predicted
    edge
        as in `NormalSurface`
    """

    mean: Tensor
    deviation: Tensor
    weights: Tensor
    residual: Gaussian
    edge: Tensor

    def unpredicted(self, cells: Cells) -> Tensor:
        """Return what the neighbours of every place do not predict, [D, n], in deviations."""
        standard = (_local_energy(cells) - self.mean) / self.deviation
        return (standard - self.predict(standard, cells.search.gap)).flatten(1)

    def predict(self, standard: Tensor, gap: int) -> Tensor:
        predicted = self.weights.mT @ neighbours(standard, gap).flatten(1)
        return predicted.view(standard.shape)

    def log_mahalanobis(self, cells: Cells) -> Tensor:
        """Return the logarithm of the squared distance of what is not predicted, [n]."""
        return self.residual.log_mahalanobis(self.unpredicted(cells))


def _no_regression() -> _Regression:
    nothing = torch.empty(0)
    return _Regression(nothing, nothing, nothing, Gaussian(nothing, nothing), nothing)


def neighbours(grid: Tensor, gap: int) -> Tensor:
    """Return the places left, right, above and below every place [D, rows, columns], `gap` cells
    away: [4 D, rows, columns]; what is at the border continues beyond it."""
    rows, columns = grid.shape[1:]
    padded = F.pad(grid[None], [gap] * 4, mode="replicate")[0]
    left = padded[:, gap : gap + rows, :columns]
    right = padded[:, gap : gap + rows, 2 * gap :]
    above = padded[:, :rows, gap : gap + columns]
    below = padded[:, 2 * gap :, gap : gap + columns]
    return torch.cat([left, right, above, below])


@dataclass(frozen=True)
class _NeighbourMoments:
    """Sums over the places of a picture, from which any choice of pictures gets its regression.

    count    places
    sums     [D], of energies
    squares  [D], of the squares of energies
    near     [4 D], of the neighbours' energies
    products [4 D, 4 D], of the neighbours' energies with one another
    targets  [4 D, D], of the neighbours' energies with the place's own
    """

    count: int
    sums: Tensor
    squares: Tensor
    near: Tensor
    products: Tensor
    targets: Tensor

    @classmethod
    def of(cls, cells: Cells) -> "_NeighbourMoments":
        energy = _local_energy(cells).double()
        near = neighbours(energy, cells.search.gap)[:, cells.known]
        own = energy[:, cells.known]
        return cls(
            count=own.shape[1],
            sums=own.sum(1),
            squares=own.square().sum(1),
            near=near.sum(1),
            products=near @ near.mT,
            targets=near @ own.mT,
        )

    def __add__(self, other: "_NeighbourMoments") -> "_NeighbourMoments":
        return _NeighbourMoments(
            count=self.count + other.count,
            sums=self.sums + other.sums,
            squares=self.squares + other.squares,
            near=self.near + other.near,
            products=self.products + other.products,
            targets=self.targets + other.targets,
        )


def neighbour_moments(pictures: Sequence[Cells], each: Each = map) -> _NeighbourMoments | None:
    """Return the moments of all places of these pictures; empty if their search does not ask for
    neighbours."""
    if not pictures[0].search.gap:
        return None
    return reduce(add, each(_NeighbourMoments.of, pictures))


def _learn_regression(pictures: Sequence[Cells], total: _NeighbourMoments) -> _Regression:
    """Ridge regression of places on their neighbours, from normal pictures and their moments."""
    mean = total.sums / total.count
    deviation = (total.squares / total.count - mean.square()).clamp_min(0).sqrt().clamp_min(LEAST)
    # The moments of standardised energies follow from those of the energies themselves.
    near_mean = mean.repeat(4)
    near_deviation = deviation.repeat(4)
    between = torch.outer(total.near, near_mean)
    products = total.products - between - between.mT
    products += total.count * torch.outer(near_mean, near_mean)
    products /= total.count * torch.outer(near_deviation, near_deviation)
    targets = total.targets - torch.outer(total.near, mean) - torch.outer(near_mean, total.sums)
    targets += total.count * torch.outer(near_mean, mean)
    targets /= total.count * torch.outer(near_deviation, deviation)
    products.diagonal().add_(_EVIDENCE.shrinkage)
    weights = torch.linalg.solve(products, targets)
    plain = _Regression(
        mean[:, None, None].float(),
        deviation[:, None, None].float(),
        weights.float(),
        _no_regression().residual,
        torch.empty(0),
    )
    rest = [plain.unpredicted(cells)[:, cells.known.flatten()] for cells in pictures]
    learned = replace(plain, residual=Gaussian.of(rest))
    some = _edge_sample(pictures)
    distances = [learned.log_mahalanobis(pictures[n])[at] for n, at in some.items()]
    return replace(learned, edge=_edge_statistics(distances, pictures, some))


@dataclass(frozen=True)
class _NormalPlaces:
    """Descriptions of normal places: their distribution, and a bank of whitened ones.

    Parameters
    ----------
    bank
        [D, M], on the device that compares places with it
    nearest
        number of them that a place is compared with
    """

    distribution: Gaussian
    bank: Tensor
    nearest: int

    @classmethod
    def of(
        cls,
        descriptions: Sequence[Tensor],
        known: Sequence[Tensor],
        chosen: Tensor,
        nearest: int,
    ) -> "_NormalPlaces":
        """Learn from the descriptions [D, n] of each picture's places and which of them are known
        [n]; the bank has the chosen ones of all."""
        parts = zip(descriptions, known, strict=True)
        inside = [x if k.all() else x[:, k] for x, k in parts]
        distribution = Gaussian.of(inside)
        bank = distribution.whiten(torch.cat(list(descriptions), 1)[:, chosen])
        return cls(distribution, bank, nearest)

    def on(self, device: torch.device) -> "_NormalPlaces":
        """Return the same places, with their bank on a device."""
        return replace(self, bank=self.bank.to(device))

    def log_nearest_distance(
        self, descriptions: Tensor, others: Tensor | None = None, each: Each = map
    ) -> Tensor:
        """Return the logarithm of the squared distance from the nearest normal places, of
        descriptions [D, n]: [n].

        Parameters
        ----------
        others
            [M]: the places of the bank that count, if there are any
        """
        device = self.bank.device
        lengths = self.bank.square().sum(0)
        count = len(lengths)
        if others is not None and others.any():
            # a place that is infinitely far is never among the nearest ones
            lengths = lengths.where(others.to(device), torch.inf)
            count = int(others.sum())
        nearest = min(self.nearest, count)

        def squares(some: Tensor) -> Tensor:
            # One buffer for all: to allocate one for each part takes longer than to compute it.
            buffer = lengths.new_empty(_EVIDENCE.queries, len(lengths))
            found = []
            for x in some.split(_EVIDENCE.queries, 1):
                # the squared distances less |x|²
                without_x = buffer[: x.shape[1]]
                torch.addmm(lengths, x.mT, self.bank, alpha=-2, out=without_x)
                found.append(x.square().sum(0) + _smallest(without_x, nearest).mean(1))
            return torch.cat(found)

        whitened = self.distribution.whiten(descriptions).to(device)
        parts = whitened.split(_EVIDENCE.queries * _EVIDENCE.parts, 1)
        return _log_distance(torch.cat(list(each(squares, parts))).to(descriptions.device))


@dataclass(frozen=True)
class NormalSurface:
    """What normal surfaces are like; it gives the kinds of evidence of `SURFACE`.

    Parameters
    ----------
    peaks
        [2, 2 R]: the median over pictures of the logarithm of the largest response, and what is 1
        above it
    texture
        energies of places
    places
        [3, M]: the picture, the row and the column of each in the bank
    edge
        [2, around + 1]: mean and deviation of the texture's evidence, by the distance from the
        border
    rows, columns
        distributions of the differences of bands
    whole
        distribution of the mean energies
    curves
        [2, around + 1]: mean and deviation of the sums along curves, by the distance from the
        border
    colour
        colours of places; of 0 planes unless pictures are in colour
    neighbours
        how places depend on those around them, if `Search.gap` asks for it
    """

    peaks: Tensor
    texture: _NormalPlaces
    places: Tensor
    edge: Tensor
    rows: Gaussian
    columns: Gaussian
    whole: Gaussian
    colour: _NormalPlaces
    curves: Tensor
    neighbours: _Regression = field(default_factory=_no_regression)

    def on(self, device: torch.device) -> "NormalSurface":
        """Return the same surfaces, which compare places on a device."""
        return replace(self, texture=self.texture.on(device), colour=self.colour.on(device))

    def maps(self, cells: Cells, each: Each = map) -> dict[str, Tensor]:
        """Return the evidence of each kind at every cell, [rows, columns]; `each` is a map of parts
        of the cells, perhaps in several threads."""
        size = cells.known.shape
        middle, spread = self.peaks[..., None, None]
        spots = (_log_peaks(cells) - middle) / spread
        rows = self.rows.log_mahalanobis(_band_differences(_profile(cells, 2)))
        columns = self.columns.log_mahalanobis(_band_differences(_profile(cells, 1)))
        found = {
            "spots": spots.amax(0) if len(spots) else torch.zeros(size),
            "texture": _by_border(
                self.texture.log_nearest_distance(_texture_of(cells), each=each), self.edge, cells
            ),
            "rows": _largest_difference(rows, size[0])[:, None].expand(size),
            "columns": _largest_difference(columns, size[1])[None].expand(size),
            "whole": self.whole.log_mahalanobis(_mean_energy(cells)).expand(size),
        }
        if cells.curves.numel():
            mean, deviation = self.curves[:, _border_distance(size, cells.search.around)]
            found["curves"] = (cells.curves - mean) / deviation
        if len(cells.colour):
            far = self.colour.log_nearest_distance(_colour_of(cells), each=each)
            found["colour"] = far.view(size)
        if self.neighbours.edge.numel():
            distance = self.neighbours.log_mahalanobis(cells)
            found["neighbours"] = _by_border(distance, self.neighbours.edge, cells)
        return found

    def nearest_places(self, cells: Cells, row: int, column: int) -> Tensor:
        """Return the picture, the row and the column [3, M] of normal places, the most alike to a
        place first."""
        number = row * cells.known.shape[1] + column
        texture = self.texture
        whitened = texture.distribution.whiten(_texture_of(cells)[:, number, None])
        squares = (texture.bank - whitened.to(texture.bank.device)).square().sum(0)
        return self.places[:, squares.argsort().cpu()]


def _smallest(values: Tensor, count: int) -> Tensor:
    """Return the `count` smallest values of every row [n, m], in order: `topk`, but up to twice as
    fast.

    The values of a row are dealt out to groups. No more than `count` groups have one of the
    smallest values, and these groups have the smallest minima.
    """
    each = values.shape[1] // _EVIDENCE.groups
    if each < 2 or count >= _EVIDENCE.groups // 4:
        return values.topk(count, largest=False).values
    grouped = values[:, : each * _EVIDENCE.groups].unflatten(1, (each, _EVIDENCE.groups))
    groups = grouped.amin(1).topk(count, largest=False, sorted=False).indices
    near = grouped.gather(2, groups[:, None].expand(-1, each, -1)).flatten(1)
    left_over = values[:, each * _EVIDENCE.groups :]
    return torch.cat([near, left_over], 1).topk(count, largest=False).values


def learn_surface(
    pictures: Sequence[Cells],
    seed: int,
    each: Each = map,
    moments: _NeighbourMoments | None = None,
    device: torch.device = _CPU,
) -> NormalSurface:
    """Return what these pictures are like. `moments` are theirs, if the caller has them already;
    `device` is the one that compares places."""
    search = pictures[0].search
    known = [cells.known.flatten() for cells in pictures]
    textures = [_texture_of(cells) for cells in pictures]
    places = torch.cat([_places_of(cells, n) for n, cells in enumerate(pictures)], 1)
    chosen = torch.cat(known).nonzero()[:, 0]
    chosen = chosen[
        torch.randperm(len(chosen), generator=torch.Generator().manual_seed(seed))[: _EVIDENCE.bank]
    ]
    places = places[:, chosen]
    colours = [_colour_of(cells) for cells in pictures]
    peaks = [_log_peaks(cells)[:, cells.known].amax(1) for cells in pictures]
    normal = NormalSurface(
        peaks=_median_and_spread(torch.stack(peaks)),
        curves=_usual_curves(pictures),
        texture=_NormalPlaces.of(textures, known, chosen, search.nearest),
        places=places,
        edge=torch.empty(0),
        rows=Gaussian.of([_band_differences(_profile(cells, 2)) for cells in pictures]),
        columns=Gaussian.of([_band_differences(_profile(cells, 1)) for cells in pictures]),
        whole=Gaussian.of([_mean_energy(cells) for cells in pictures]),
        colour=_NormalPlaces.of(colours, known, chosen, search.nearest),
    ).on(device)
    some = _edge_sample(pictures)
    shown = [textures[number][:, at] for number, at in some.items()]
    of_others = [places[0] != number for number in some]
    far = list(each(normal.texture.log_nearest_distance, shown, of_others))
    normal = replace(normal, edge=_edge_statistics(far, pictures, some))
    moments = moments or neighbour_moments(pictures, each)
    if moments is None:
        return normal
    return replace(normal, neighbours=_learn_regression(pictures, moments))


def _edge_sample(pictures: Sequence[Cells]) -> dict[int, Tensor]:
    """Choose places that tell what is usual near a border: the numbers of some pictures, evenly
    spread, and the known places of each, the same number at each distance from the border."""
    used = min(len(pictures), _EVIDENCE.edge_pictures)
    each = max(_EVIDENCE.edge_places // used, 2)
    found = {}
    for number in (n * len(pictures) // used for n in range(used)):
        cells = pictures[number]
        distance = _border_distance(cells.known.shape, cells.search.around)
        classes = [(cells.known & (distance == d)).flatten() for d in distance.unique()]
        inside = [known.nonzero()[:, 0] for known in classes]
        found[number] = torch.cat([at[:: max(1, len(at) // each)][:each] for at in inside])
    return found


def _edge_statistics(
    values: Sequence[Tensor], pictures: Sequence[Cells], some: Mapping[int, Tensor]
) -> Tensor:
    """Mean and deviation of values [n] of some places of pictures, by the distance from the
    border, [2, around + 1]."""
    most = pictures[0].search.around
    inside = torch.cat(list(values))
    shapes = {number: pictures[number].known.shape for number in some}
    distances = [_border_distance(shapes[n], most).flatten()[at] for n, at in some.items()]
    return _by_distance(inside, torch.cat(distances), most)


def _by_distance(values: Tensor, distance: Tensor, most: int) -> Tensor:
    """Mean and deviation of values [n] of places at each distance [n] from the border, [2, most +
    1]."""
    statistics = []
    for d in range(most + 1):
        chosen = values[distance == d]
        if len(chosen) < 2:
            chosen = values
        statistics.append(torch.stack([chosen.mean(), chosen.std(correction=0).clamp_min(LEAST)]))
    return torch.stack(statistics, 1)


def _by_border(values: Tensor, edge: Tensor, cells: Cells) -> Tensor:
    """Return values [n] of cells in deviations of normal places as far from the border, smoothed,
    [rows, columns]."""
    size = cells.known.shape
    mean, deviation = edge[:, _border_distance(size, cells.search.around)]
    return around(((values.view(size) - mean) / deviation)[None], cells.search.around)[0]


@dataclass(frozen=True)
class ExpectedEvidence:
    """The evidence that is usual for a surface: that of normal pictures, above all of those with a
    similar surface.

    A surface is described by its mean energies, along the directions in which those of normal
    pictures differ most, in units of their deviations. A picture at a distance r counts exp(-r² /
    2), the mean of all pictures counts 1.

    Parameters
    ----------
    mean
        [D]: mean energies of all pictures
    directions
        [D, _EVIDENCE.directions]
    surfaces
        [N, _EVIDENCE.directions]
    evidence
        [N, k]
    """

    mean: Tensor
    directions: Tensor
    surfaces: Tensor
    evidence: Tensor

    @classmethod
    def of(cls, energies: Tensor, evidence: Tensor) -> "ExpectedEvidence":
        """Learn from the mean energies [N, D] and the evidence [N, k] of normal pictures."""
        mean = energies.mean(0)
        _, lengths, axes = torch.linalg.svd(energies - mean, full_matrices=False)
        deviations = (lengths / math.sqrt(len(energies))).clamp_min(LEAST)
        directions = (axes.mT / deviations)[:, : _EVIDENCE.directions]
        return cls(mean, directions, (energies - mean) @ directions, evidence)

    def __call__(self, energies: Tensor) -> Tensor:
        """Of a surface with these mean energies [D]:  [k]."""
        distances = (energies - self.mean) @ self.directions - self.surfaces
        weights = torch.exp(-distances.square().sum(1) / 2)
        return (weights @ self.evidence + self.evidence.mean(0)) / (weights.sum() + 1)


def summarise(maps: Tensor, cells: Cells, quantiles: Iterable[float]) -> Tensor:
    """Return the evidence of a picture [k], from that of its cells [k, rows, columns]: a quantile
    of each kind."""
    values = maps.flatten(1) if cells.known.all() else maps[:, cells.known]
    return torch.stack([v.quantile(q) for v, q in zip(values, quantiles, strict=True)])


def what_counts(evidence: Tensor, kinds: Kinds) -> Tensor:
    """Return what the evidence of all kinds [k, ...] counts in a score, by sort, [j, ...]."""
    by_sort = dict[str, Tensor]()
    for (name, kind), values in zip(kinds.items(), evidence, strict=True):
        sort = kind.sort or name
        counted = kind.in_score * values - kind.usual
        others = by_sort.get(sort)
        by_sort[sort] = counted if others is None else torch.maximum(others, counted)
    return torch.stack(list(by_sort.values()))


def soft_maximum(evidence: Tensor) -> Tensor:
    """Return all kinds of evidence [k, ...] as one, [...]."""
    return _EVIDENCE.temperature * (
        torch.logsumexp(evidence / _EVIDENCE.temperature, 0) - math.log(len(evidence))
    )


def evidence_of_places(
    by_kind: Tensor, kinds: Kinds, known: Tensor, score: float, spec: MapSpec = _USUAL_MAP
) -> Tensor:
    """Return all kinds of evidence [k, rows, columns] as one map, for a picture with this score.

    Places are marked by the local kinds: by how large they are among normal pictures and, for a
    share of the map, within this picture. The others, which fill bands or the whole picture, count
    up to a limit only, so that a place is marked by what is seen there.

    Parameters
    ----------
    known
        [rows, columns]: the places that count
    """
    weights = torch.tensor([_LOCAL.get(kind, 0.0) for kind in kinds])
    local = torch.einsum("k,khw->hw", weights / weights.sum(), by_kind)
    local = (local + around(local[None], 3)[0]) / 2
    wide = by_kind[weights == 0]
    among_normal = local
    within = local - local[known].median()
    if len(wide):
        limited = soft_maximum(wide).clamp(max=spec.wide_limit)
        among_normal = _EVIDENCE.temperature * torch.logsumexp(
            torch.stack([local, limited]) / _EVIDENCE.temperature, 0
        )
        within = within + spec.wide * wide.clamp(-spec.most_wide, spec.most_wide).mean(0)
    offset = spec.score * min(max(score, -spec.most_score), spec.most_score)
    return (1 - spec.relative) * among_normal + spec.relative * within + offset


def _texture_of(cells: Cells) -> Tensor:
    """Return the energies around every cell, less a share of their mean in the picture, [D, n]."""
    side = cells.search.texture or cells.search.around
    own = cells.search.own * _mean_energy(cells)[..., None]
    return (around(cells.energy, side) - own).flatten(1)


def _colour_of(cells: Cells) -> Tensor:
    """Return the colour of every cell, less a share of the picture's, [K, n]."""
    if not len(cells.colour):
        return cells.known.new_empty(0, cells.known.numel(), dtype=torch.float32)
    own = cells.search.own * cells.colour[:, cells.known].mean(1)[:, None]
    return cells.colour.flatten(1) - own


def _local_energy(cells: Cells) -> Tensor:
    """Return the energies around every cell, [D, rows, columns]; unknown cells are like the
    picture."""
    energy = cells.energy
    if not cells.known.all():
        energy = torch.where(cells.known, energy, _mean_energy(cells)[..., None])
    return around(energy, cells.search.around)


def _mean_energy(cells: Cells) -> Tensor:
    # Choosing all cells would copy them, which takes longer than their mean.
    energy = cells.energy.flatten(1) if cells.known.all() else cells.energy[:, cells.known]
    return energy.mean(1, keepdim=True)


def surface_of(cells: Cells) -> Tensor:
    """Return the mean energies of the responses, [R]; brightness is left out, since it says more
    about the exposure."""
    return _mean_energy(cells)[: len(cells.peaks) // 2, 0]


def _log_peaks(cells: Cells) -> Tensor:
    return cells.peaks.clamp_min(QUIET).log()


def _usual_curves(pictures: Sequence[Cells]) -> Tensor:
    """Return the mean and the deviation of the sums along curves of normal pictures, by the
    distance from the border, [2, around + 1]: a frame or the edge of a part is a curve, too. Empty
    where curves are not looked for."""
    if not pictures[0].curves.numel():
        return torch.empty(0)
    most = pictures[0].search.around
    known = torch.cat([cells.known.flatten() for cells in pictures])
    sums = torch.cat([cells.curves.flatten() for cells in pictures])[known]
    distances = [_border_distance(cells.known.shape, most).flatten() for cells in pictures]
    return _by_distance(sums, torch.cat(distances)[known], most)


def _profile(cells: Cells, axis: int) -> Tensor:
    """Return the mean energies of every row (axis 2) or column (axis 1), [D, n]; without the first
    and the last if there are enough others. Unknown cells do not count; a row of them is like the
    picture."""
    energy = cells.energy.mean(axis)
    if not cells.known.all():
        counts = cells.known.sum(axis - 1)
        sums = (cells.energy * cells.known).sum(axis)
        energy = torch.where(counts > 0, sums / counts.clamp_min(1), _mean_energy(cells))
    return energy[:, 1:-1] if energy.shape[1] > _EVIDENCE.band + 2 else energy


def _band_differences(values: Tensor) -> Tensor:
    """Return the differences of each band of rows and the next one, [D, n]; a band is half of the
    rows if there are few."""
    band = min(_EVIDENCE.band, values.shape[1] // 2)
    if not band:
        return torch.zeros_like(values)
    means = F.avg_pool1d(values[None], band, 1)[0]
    return means[:, band:] - means[:, :-band]


def _largest_difference(values: Tensor, size: int) -> Tensor:
    """For every row, the largest value of the steps that it is part of, [size]."""
    reach = size - len(values) + 1
    padded = F.pad(values[None], (reach - 1, reach - 1), value=-torch.inf)
    return F.max_pool1d(padded, reach, 1)[0]


def _border_distance(size: tuple[int, ...], most: int) -> Tensor:
    """Return how many cells every cell is away from the border, up to `most`, [rows, columns]."""
    far = torch.tensor([most])  # signals have no border above and below
    rows, columns = (
        torch.minimum(torch.arange(n), torch.arange(n).flip(0)) if n > 1 else far for n in size
    )
    return torch.minimum(rows[:, None], columns).clamp(max=most)


def _places_of(cells: Cells, picture: int) -> Tensor:
    """Return the number of the picture, the row and the column of every cell, [3, n]."""
    rows, columns = (torch.arange(n) for n in cells.known.shape)
    grid = torch.cartesian_prod(rows, columns).mT
    return torch.cat([torch.full_like(grid[:1], picture), grid])


def _log_distance(squares: Tensor) -> Tensor:
    return squares.clamp_min(LEAST**2).log()


def units_of(evidence: Tensor, kinds: Kinds) -> Tensor:
    """Return the units of evidence [N, k] of normal pictures: what is subtracted, and what it is
    divided by, [2, k]."""
    median, spread = _median_and_spread(evidence)
    return torch.stack([median, spread / torch.tensor([kind.weight for kind in kinds.values()])])


def in_units(evidence: Tensor, units: Tensor) -> Tensor:
    """Evidence [..., k], or [k, rows, columns] with units [2, k, 1, 1]."""
    return (evidence - units[0]) / units[1]


def _median_and_spread(values: Tensor) -> Tensor:
    """Return the median of pictures' evidence [N, k], and the distance from it to the quantile
    `EvidenceSpec.upper_quantile`, [2, k]."""
    if not values.shape[1]:
        return values.new_zeros(2, 0)
    median = values.median(0).values
    return torch.stack(
        [median, (values.quantile(_EVIDENCE.upper_quantile, 0) - median).clamp_min(LEAST)]
    )
