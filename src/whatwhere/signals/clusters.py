"""Clusters of pieces of a recording: how many kinds of events there are, and which piece shows
which.

The pieces keep their amplitudes, in deviations of the noise, so that the size of an event and its
pattern over the channels tell kinds apart as much as its shape does.

    start      many small clusters, by k-means of the pieces' principal components
    merge      two clusters next to each other stay apart only if a valley separates their pieces:
               along the direction that tells them apart best, there are fewer pieces between them
               than in the smaller of the two. Otherwise they are one cluster, long or bent as it
               may be: amplitudes vary, and samples fall at any place of a peak
    shifts     two clusters that are alike at another shift are compared at that shift
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


@dataclass(frozen=True)
class ClusterSettings:
    """How pieces are clustered.

    Parameters
    ----------
    start
        clusters that k-means begins with: half as many again as a recording may have waveforms
    rounds
        rounds of k-means; the merging corrects what is left
    starts
        random starts of the search for two halves of a cluster
    turns
        times that halves of a cluster and the direction between them are found in turn
    components
        principal components of the pieces, at most: ten units of a tetrode have 10 to 12 above the
        noise
    fewest
        pieces that a cluster needs to be compared: fewer show no valley
    bins
        places along the direction between two clusters where pieces are counted
    valley
        share of the pieces of the smaller side that a valley has at most; noise and bent clusters
        reach 0.8
    certain
        deviations of a count by which a valley is deeper than the sides: with 1.5, one kind is
        parted; with 3, kinds of 120, 90 and 70 pieces in much noise become two
    distance
        deviations of the noise between the medians of two sides of a valley, at least: the sum of
        two normal distributions nearer than that has no valley
    apart
        clusters too small to show a valley are one if their means are nearer than this, in
        deviations of the noise
    still
        share of the pieces of two clusters that move over a border that is found
    moves
        times that the borders of two clusters may move before they are left as they are
    alike
        correlation from which a shift between two clusters is tried
    """

    start: int = 96
    rounds: int = 15
    starts: int = 4
    turns: int = 20
    components: int = 12
    fewest: int = 8
    bins: int = 9
    valley: float = 0.7
    certain: float = 2.2
    distance: float = 2.0
    apart: float = 8.0
    still: float = 0.02
    moves: int = 40
    alike: float = 0.8


class Clusters(NamedTuple):
    """The cluster of each piece, [n], and how many samples later it is to be cut, [n]."""

    number: np.ndarray
    shift: np.ndarray


def cluster_pieces(
    pieces: np.ndarray, margin: int, seed: int = 0, settings: ClusterSettings | None = None
) -> Clusters:
    """Cluster pieces of a recording.

    Parameters
    ----------
    pieces
        in deviations of the noise, [n, C, margin + K + margin]
    margin
        samples to each side by which a piece may be shifted
    """
    merging = _Merging(pieces, margin, seed, settings or ClusterSettings())
    merging.run()
    return Clusters(merging.number, merging.shift)


class _Merging:
    """Clusters that are merged until valleys separate all that are left."""

    def __init__(
        self, pieces: np.ndarray, margin: int, seed: int, settings: ClusterSettings
    ) -> None:
        self.pieces = pieces
        self.margin = margin
        self.seed = seed
        self.settings = settings
        self.shift = np.zeros(len(pieces), int)
        rows = self._cut(np.arange(len(pieces)))
        self.centre = rows.mean(0)
        self.basis = _principal_components(rows - self.centre, settings.components)
        self.rows = (rows - self.centre) @ self.basis
        start = min(settings.start, max(1, len(pieces) // settings.fewest))
        self.number = k_means(self.rows, start, settings.rounds, seed)
        self.kinds = [int(k) for k in np.unique(self.number)]
        self.means: dict[int, np.ndarray] = {}  # of the rows of clusters
        self.moves = dict.fromkeys(self.kinds, 0)  # times that the border of a cluster has moved
        self.compared = np.zeros((max(self.kinds) + 1, max(self.kinds) + 1), bool)

    def run(self) -> None:
        """Compare the nearest clusters, merge them or correct their border, until none is left to
        compare."""
        self._merge_nearest()
        if self._split():
            self._merge_nearest()
        while self._merge_shifted():
            pass

    def _merge_nearest(self) -> None:
        while (pair := self._nearest()) is not None:
            self.compared[pair] = True
            self._compare(*pair)

    def _split(self) -> bool:
        """Split clusters that a deep valley divides: small ones were merged before they showed it;
        return whether any were split."""
        waiting = list(self.kinds)
        count = len(self.kinds)
        while waiting:
            kind = waiting.pop()
            own = self._own(kind)
            if len(own) < 2 * self.settings.fewest:
                continue
            half = self._halves(self.rows[own])
            if half is None:
                continue
            new = int(self.number.max()) + 1
            self.number[own[half]] = new
            self.compared = np.pad(self.compared, (0, 1))
            self._changed(kind)
            self.moves[new] = 0
            self.kinds.append(new)
            waiting += [kind, new]
        return len(self.kinds) > count

    def _halves(self, rows: np.ndarray) -> np.ndarray | None:
        """Tell which rows lie beyond a valley; None if there is none.

        Two means are parted across the longest direction, which need not be the one that tells the
        rows apart, so the halves and their direction are found in turn.
        """
        for start in range(self.settings.starts):
            half = k_means(rows, 2, self.settings.rounds, self.seed + start) == 1
            for _ in range(self.settings.turns):
                if min(half.sum(), (~half).sum()) < self.settings.fewest:
                    break
                cut = self._cut_between(rows[~half], rows[half])
                if cut is not None:
                    moved = rows @ cut.direction > cut.place
                else:
                    along = rows @ _separating_direction(rows[~half], rows[half])
                    moved = k_means(along[:, None], 2, self.settings.rounds, self.seed) == 1
                if (moved == half).all() or (moved != half).all():
                    if cut is not None:
                        return moved
                    break
                half = moved
        return None

    def _cut(self, chosen: np.ndarray, later: int = 0) -> np.ndarray:
        """Return some pieces without their margins, at their shifts, as rows [n, C K]."""
        length = self.pieces.shape[2] - 2 * self.margin
        first = (self.margin + self.shift[chosen] + later).clip(0, 2 * self.margin)
        place = first[:, None] + np.arange(length)
        cut = np.take_along_axis(self.pieces[chosen], place[:, None], 2)
        return cut.reshape(len(chosen), -1)

    def _own(self, kind: int) -> np.ndarray:
        return np.flatnonzero(self.number == kind)

    def _nearest(self) -> tuple[int, int] | None:
        """Return the nearest two clusters that were not compared as they are; the older first."""
        if len(self.kinds) < 2:
            return None
        for kind in self.kinds:
            if kind not in self.means:
                self.means[kind] = self.rows[self.number == kind].mean(0)
        means = np.stack([self.means[kind] for kind in self.kinds])
        squares = (means**2).sum(1)
        distance = squares[:, None] + squares - 2 * means @ means.T
        distance[self.compared[np.ix_(self.kinds, self.kinds)]] = np.inf
        distance[np.tril_indices(len(means))] = np.inf
        a, b = divmod(int(distance.argmin()), len(means))
        return None if np.isinf(distance[a, b]) else (self.kinds[a], self.kinds[b])

    def _changed(self, kind: int) -> None:
        """Compare a cluster again, since it has other pieces than before."""
        self.means.pop(kind, None)
        self.compared[kind] = False
        self.compared[:, kind] = False

    def _compare(self, a: int, b: int) -> None:
        one = self._own(a)
        other = self._own(b)
        cut = self._cut_between(self.rows[one], self.rows[other])
        if cut is None:
            self._merge(a, b)
            return
        both = np.concatenate([one, other])
        moved = np.where(self.rows[both] @ cut.direction < cut.place, a, b)
        changed = moved != self.number[both]
        self.number[both] = moved
        # a border that hardly moves is a border
        moves = self.moves[a] + self.moves[b]
        if changed.mean() > self.settings.still and moves < self.settings.moves:
            for kind in (a, b):
                self.moves[kind] += 1
                self._changed(kind)
        for kind in (a, b):
            if not (self.number == kind).any():
                self.kinds.remove(kind)

    def _cut_between(self, one: np.ndarray, other: np.ndarray) -> "_Cut | None":
        """Return the valley between the rows of two clusters; None if there is none."""
        direction = _separating_direction(one, other)
        if min(len(one), len(other)) >= self.settings.fewest:
            return _valley(one @ direction, other @ direction, direction, self.settings)
        distance = other.mean(0) - one.mean(0)
        if distance @ distance < self.settings.apart**2:
            return None
        middle = (one.mean(0) + other.mean(0)) @ direction / 2
        return _Cut(direction, float(middle))

    def _merge(self, a: int, b: int) -> None:
        self.number[self.number == b] = a
        self.kinds.remove(b)
        self._changed(a)

    def _merge_shifted(self) -> bool:
        """Merge clusters that nothing separates at another shift, into the larger ones; return
        whether any were merged."""
        settings = self.settings
        sizes = np.bincount(self.number)
        kinds = [kind for kind in self.kinds if sizes[kind] >= settings.fewest]
        kinds.sort(key=lambda kind: -sizes[kind])
        means = {kind: self._mean(kind) for kind in kinds}
        pairs = []
        for n, a in enumerate(kinds):
            for b in kinds[n + 1 :]:
                likeness, shift = _likeness(means[a], means[b], self.margin)
                if likeness > settings.alike:
                    pairs.append((likeness, a, b, shift))
        merged: set[int] = set()
        for _, a, b, shift in sorted(pairs, reverse=True):
            if a in merged or b in merged:
                continue
            own = self._own(b)
            moved = self._cut(own, shift)
            if not self._are_apart(self._cut(self._own(a)), moved):
                self.rows[own] = (moved - self.centre) @ self.basis
                self.shift[own] += shift
                self._merge(a, b)
                merged.add(b)
        return bool(merged)

    def _are_apart(self, one: np.ndarray, other: np.ndarray) -> bool:
        """Tell whether a valley separates two clusters of whole pieces [n, C K], by the principal
        components of these alone."""
        both = np.concatenate([one, other])
        basis = _principal_components(both - both.mean(0), self.settings.components)
        return self._cut_between(one @ basis, other @ basis) is not None

    def _mean(self, kind: int) -> np.ndarray:
        """Return the mean of a cluster's pieces at their shifts, with their margins, [C, L]."""
        own = self._own(kind)
        total = np.zeros(self.pieces.shape[1:])
        for shift in np.unique(self.shift[own]):
            total += np.roll(self.pieces[own[self.shift[own] == shift]].sum(0), -shift, 1)
        return total / len(own)


class _Cut(NamedTuple):
    """A direction, and the place along it that separates two clusters."""

    direction: np.ndarray
    place: float


def _separating_direction(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the direction that tells two clusters of rows apart best: Fisher's. Few rows say
    little about their spread, so white noise counts as much as twice as many rows as there are
    columns."""
    distance = other.mean(0) - one.mean(0)
    columns = one.shape[1]
    spread = 2 * columns * np.eye(columns)
    for rows in (one, other):
        centred = rows - rows.mean(0)
        spread += centred.T @ centred
    direction = np.linalg.solve(spread, distance)
    unit: np.ndarray = direction / max(float(np.linalg.norm(direction)), 1e-30)
    return unit


def _valley(
    one: np.ndarray, other: np.ndarray, direction: np.ndarray, settings: ClusterSettings
) -> _Cut | None:
    """Return the deepest place between two clusters along a direction, if it is a valley."""
    low = np.median(one)
    high = np.median(other)
    if high - low < settings.distance:
        return None
    step = (high - low) / settings.bins
    edges = np.linspace(low - 2 * step, high + 2 * step, settings.bins + 5)
    counts = np.histogram(np.concatenate([one, other]), edges)[0].astype(float)
    smooth = np.convolve(counts, np.ones(3), "same")
    deepest = settings.certain
    found = None
    for place in range(1, len(smooth) - 1):
        side = min(smooth[:place].max(), smooth[place + 1 :].max())
        depth = (side - smooth[place]) / np.sqrt(side + smooth[place] + 1)
        if smooth[place] < settings.valley * side and depth > deepest:
            deepest = depth
            found = _Cut(direction, float(edges[place] + edges[place + 1]) / 2)
    return found


def _likeness(a: np.ndarray, b: np.ndarray, margin: int) -> tuple[float, int]:
    """Return the largest correlation of the middle of a mean [C, L] with another one at a shift,
    and the shift; 0 where it is largest without one."""
    length = a.shape[1] - 2 * margin
    middle = a[:, margin : margin + length]
    windows = np.lib.stride_tricks.sliding_window_view(b, length, 1)  # [C, shifts, length]
    products = np.einsum("ct,cst->s", middle, windows)
    energy = (windows**2).sum((0, 2)) * (middle**2).sum()
    correlation = products / np.sqrt(energy.clip(1e-30))
    best = int(correlation.argmax())
    return (0.0, 0) if best == margin else (float(correlation[best]), best - margin)


def _principal_components(rows: np.ndarray, most: int) -> np.ndarray:
    """Return the directions in which centred rows [n, D] vary more than white noise of deviation 1
    may, at least one and at most this many, [D, components]."""
    count, columns = rows.shape
    variance, directions = np.linalg.eigh(rows.T @ rows / count)
    largest_of_noise = (1 + (columns / count) ** 0.5) ** 2  # Marchenko and Pastur
    chosen = min(most, max(1, int((variance > largest_of_noise).sum())))
    return np.ascontiguousarray(directions[:, ::-1][:, :chosen])


def k_means(rows: np.ndarray, clusters: int, rounds: int, seed: int) -> np.ndarray:
    """Return the number of the cluster of each row, begun by k-means++."""
    rng = np.random.default_rng(seed)
    centres = rows[[rng.integers(len(rows))]]
    distance = ((rows - centres[0]) ** 2).sum(1)
    while len(centres) < min(clusters, len(rows)) and distance.any():
        chosen = rows[rng.choice(len(rows), p=distance / distance.sum())]
        centres = np.concatenate([centres, chosen[None]])
        distance = np.minimum(distance, ((rows - chosen) ** 2).sum(1))
    for _ in range(rounds):
        number = _nearest_centre(rows, centres)
        for k in np.unique(number):
            centres[k] = rows[number == k].mean(0)
    return _nearest_centre(rows, centres)


def _nearest_centre(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    nearest: np.ndarray = ((centres**2).sum(1) - 2 * rows @ centres.T).argmin(1)
    return nearest
