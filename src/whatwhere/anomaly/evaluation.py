"""How well a detector finds known defects and their places, from masks or from folders of good and
bad pictures; and a comparison of two detectors by the places that they find.

Maps are not kept: each becomes counts of its values in fine bins, from which all measures of
places follow. AUPIMO is the mean recall of the pixels of a defect at rates of false alarms, on
normal pictures, between 1e-5 and 1e-4 (Bertoldo and others, 2024). PRO is the mean share of a
region that is found at rates up to 0.3 (Bergmann and others, 2020).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.pictures import PictureList, open_pictures
from whatwhere.anomaly.threshold import Threshold, interval_in_percent, rate_interval
from whatwhere.errors import ImageError, plural, printable
from whatwhere.spec.checks import Checked, Count, Within

_GOOD = "good"
_MASKS = "masks"
_MASK_ENDINGS = ("_mask", ".mask", "-mask")

_Share = Annotated[float, Within(0, 1, above=True)]


@dataclass(frozen=True, kw_only=True)
class EvaluationSpec(Checked):
    """Settings of evaluations.

    Parameters
    ----------
    bins
        of the values of maps
    found
        share of a region inside an outline from which on it counts as found: a single pixel of a
        large region may be a false alarm
    white
        brightness above which a pixel of a mask is part of a defect
    most_false
        rate of false alarms of pixels up to which PRO is measured, as its authors do
    rarest_false, rare_false
        rates between which AUPIMO is measured, as its authors do
    resamples
        of the pictures, for intervals of areas under curves
    """

    bins: Count = 8192
    found: _Share = 0.1
    white: _Share = 0.5
    most_false: _Share = 0.3
    rarest_false: _Share = 1e-5
    rare_false: _Share = 1e-4
    resamples: Count = 500


@dataclass(frozen=True)
class _Truth:
    """Which pictures have a defect, and where.

    Parameters
    ----------
    odd
        [n]
    masks
        masks of the pictures, as a picture each; None where a picture has none
    """

    odd: np.ndarray
    masks: Sequence[PictureList | None] | None

    def mask(self, number: int, size: Sequence[int], white: float) -> Tensor | None:
        """Return the mask of a picture of a size [H, W]; None without masks of this set."""
        if self.masks is None:
            return None
        one = self.masks[number]
        if one is None:
            return torch.zeros(size[0], size[1], dtype=torch.bool)
        values = one.read(0)
        return _of_size(values.mean(0) > white, size, one.names[0])


def read_truth(pictures: PictureList, folder: str | Path, spec: EvaluationSpec) -> _Truth:
    """Read which pictures have a defect: from a folder with `good` and other folders, in which the
    pictures, or files of the same names, are; or from a folder of masks that have the names of the
    pictures, white where a defect is. A picture without a mask is good."""
    root = Path(folder)
    if not root.is_dir():
        raise ImageError(
            f"Cannot find the folder {printable(root)}. Give a folder of masks, or one with the"
            f" folders {_GOOD!r} and others, such as 'bad'."
        )
    if (root / _GOOD).is_dir():
        odd = np.array([_is_odd(name, root) for name in pictures.names])
        masks = _masks_of(pictures, root / _MASKS) if (root / _MASKS).is_dir() else None
        return _Truth(odd, masks)
    masks = _masks_of(pictures, root)
    if not any(masks):
        raise ImageError(
            f"{printable(root)} has no mask of {printable(pictures.names[0])} or any other picture."
            " Give each mask the name of its picture, or a folder with the folders"
            f" {_GOOD!r} and others."
        )
    odd = np.array(
        [one is not None and bool((one.read(0).mean(0) > spec.white).any()) for one in masks]
    )
    return _Truth(odd, masks)


def _is_odd(name: str, root: Path) -> bool:
    """Tell whether a picture is in another folder than `good`."""
    for depth in (PurePath(name).parts[:-1], ()):
        for part in depth:
            if (root / part).is_dir():
                return part != _GOOD
    inside = [one for one in root.iterdir() if one.is_dir() and one.name != _MASKS]
    holders = {one.name for one in inside if (one / PurePath(name).name).is_file()}
    if len(holders) != 1:
        raise ImageError(
            f"{printable(name)} is in {len(holders)} of the folders of {printable(root)}; expected"
            f" one of {_GOOD!r} and others."
        )
    return holders != {_GOOD}


def _masks_of(pictures: PictureList, root: Path) -> list[PictureList | None]:
    """Return the masks of pictures by their names without endings; the folder of a picture may be
    left out."""
    by_name: dict[str, Path] = {}
    for file in sorted(root.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            by_name[_stem(file.relative_to(root))] = file
    found: list[PictureList | None] = []
    for name in pictures.names:
        path = PurePath(name)
        mask = by_name.get(_stem(path)) or by_name.get(_stem(PurePath(path.name)))
        found.append(None if mask is None else open_pictures(mask))
    return found


def _stem(path: PurePath) -> str:
    stem = path.with_suffix("").as_posix()
    for ending in _MASK_ENDINGS:
        stem = stem.removesuffix(ending)
    return stem


def _of_size(mask: Tensor, size: Sequence[int], name: str) -> Tensor:
    """Return a mask at the size of its picture; one of another shape raises an error."""
    if tuple(mask.shape) == tuple(size):
        return mask
    if abs(mask.shape[0] * size[1] - mask.shape[1] * size[0]) > 0.02 * size[0] * size[1]:
        raise ImageError(
            f"The mask {printable(name)} has {mask.shape[0]} × {mask.shape[1]} pixels, but its"
            f" picture has {size[0]} × {size[1]}."
        )
    return F.interpolate(mask[None, None].float(), list(size))[0, 0] > 0


@dataclass(frozen=True)
class _Region:
    """A region of a defect: one connected part of a mask.

    Parameters
    ----------
    picture
        its number
    counts
        [bins] of the values of the map inside
    inside
        share of it that is inside outlines
    """

    picture: int
    counts: np.ndarray
    inside: float


@dataclass
class Evaluation:
    """The maps and scores of a detector, next to the truth; add one picture after the other."""

    truth: _Truth
    outline: float
    spec: EvaluationSpec = field(default_factory=EvaluationSpec)
    scores: list[float] = field(default_factory=list)
    regions: list[_Region] = field(default_factory=list)
    clean: list[np.ndarray] = field(default_factory=list)  # [bins], of each normal picture
    defect: list[np.ndarray] = field(default_factory=list)  # of the defects of each odd one
    rest: np.ndarray = field(default_factory=lambda: np.zeros(0))  # of the rest of odd pictures

    def add(self, score: float, anomaly_map: Tensor) -> None:
        """Count the next picture: its score, and its map [H, W]."""
        number = len(self.scores)
        self.scores.append(score)
        mask = self.truth.mask(number, anomaly_map.shape, self.spec.white)
        if mask is None:
            return
        known = anomaly_map.isfinite()
        if not self.truth.odd[number]:
            self.clean.append(self._counts(anomaly_map[known]))
            return
        from scipy.ndimage import label

        inside = mask & known
        self.defect.append(self._counts(anomaly_map[inside]))
        rest = self._counts(anomaly_map[known & ~mask])
        self.rest = rest if not len(self.rest) else self.rest + rest
        numbers, count = label(inside.numpy(), np.ones((3, 3)))
        regions = torch.from_numpy(numbers)
        for one in range(1, count + 1):
            values = anomaly_map[regions == one]
            share = float((values > self.outline).float().mean())
            self.regions.append(_Region(number, self._counts(values), share))

    def _counts(self, values: Tensor) -> np.ndarray:
        """Count values in bins, fine near 0 and coarse far from it, the largest value first."""
        squashed = values.double().sign() * values.double().abs().log1p()
        at = ((squashed + 2) / 16 * self.spec.bins).long().clamp(0, self.spec.bins - 1)
        return torch.bincount(at, minlength=self.spec.bins).flip(0).numpy().astype(float)

    # Measures

    def pictures(self, threshold: Threshold) -> dict[str, object]:
        """Measure how well scores tell pictures with a defect apart, and the alarms."""
        scores = np.array(self.scores)
        odd = self.truth.odd
        alarms = scores > threshold.value
        measured: dict[str, object] = {
            "pictures with a defect": int(odd.sum()),
            "normal pictures": int((~odd).sum()),
            "recall": _rate(alarms[odd]),
            "false alarms": _rate(alarms[~odd])
            | {"promised": [threshold.interval[0], threshold.interval[1]]},
        }
        if odd.any() and not odd.all():
            groups = [scores[~odd], scores[odd]]
            measured["AUROC"] = {
                "value": _auroc(*groups),
                "interval": _interval([_auroc(*some) for some in self._resampled(groups)]),
            }
        return measured

    def places(self) -> dict[str, object]:
        """Measure how well maps and outlines lie on defects; empty without masks."""
        if not self.regions:
            return {}
        found = np.array([region.inside >= self.spec.found for region in self.regions])
        return {
            "pixel AUROC": self._pixel_auroc(),
            "PRO": self._region_overlap(),
            "AUPIMO": self._aupimo(),
            "regions": len(self.regions),
            "regions found": _rate(found),
            "share of a region inside outlines": float(np.mean([r.inside for r in self.regions])),
        }

    def _resampled(self, groups: Sequence[np.ndarray]) -> Iterator[list[np.ndarray]]:
        generator = np.random.default_rng(0)
        for _ in range(self.spec.resamples):
            yield [group[generator.integers(0, len(group), len(group))] for group in groups]

    def _pixel_auroc(self) -> float:
        odd = np.sum(self.defect, 0)
        normal = np.sum([*self.clean, self.rest], 0)
        above = np.concatenate([[0.0], normal.cumsum()])
        misplaced = odd @ ((above[:-1] + above[1:]) / 2)
        return float(1 - misplaced / (odd.sum() * normal.sum()))

    def _region_overlap(self) -> float:
        normal = np.sum([*self.clean, self.rest], 0).cumsum()
        rates = np.concatenate([[0.0], normal / normal[-1]])
        shares = np.mean([r.counts.cumsum() / r.counts.sum() for r in self.regions], 0)
        curve = np.concatenate([[0.0], shares])
        limit = self.spec.most_false
        grid = np.union1d(rates[rates < limit], [0.0, limit])
        # the last value at a rate: values that tie are found together
        return float(np.trapezoid(np.interp(grid, rates, curve), grid) / limit)

    def _aupimo(self) -> dict[str, object] | None:
        """None if the normal pictures have too few pixels for such rare false alarms."""
        if not self.clean or sum(c.sum() for c in self.clean) * self.spec.rarest_false < 1:
            return None
        rates = np.mean([c.cumsum() / c.sum() for c in self.clean], 0)
        limits = np.geomspace(self.spec.rarest_false, self.spec.rare_false, 101)
        at = np.searchsorted(rates, limits, side="right") - 1
        values = []
        for counts in self.defect:
            recall = np.concatenate([counts.cumsum() / counts.sum(), [0.0]])  # -1: none
            values.append(recall[at].mean())
        each = np.array(values)
        means = [some[0].mean() for some in self._resampled([each])]
        return {"value": float(each.mean()), "interval": _interval(means)}


def _rate(hits: np.ndarray) -> dict[str, object]:
    count, of = int(hits.sum()), len(hits)
    if not of:
        return {"count": 0, "of": 0, "value": None, "interval": [0.0, 1.0]}
    return {
        "count": count,
        "of": of,
        "value": count / of,
        "interval": list(rate_interval(count, of)),
    }


def _auroc(normal: np.ndarray, odd: np.ndarray) -> float:
    from scipy.stats import rankdata

    ranks = rankdata(np.concatenate([normal, odd]))[len(normal) :]
    return float((ranks.sum() - len(odd) * (len(odd) + 1) / 2) / (len(odd) * len(normal)))


def _interval(values: Sequence[float]) -> list[float]:
    return [float(v) for v in np.quantile(values, [0.025, 0.975])]


def compared_places(one: Evaluation, other: Evaluation) -> dict[str, object]:
    """Compare two detectors by the regions of defects that they find, on the same pictures: each
    region counts once, and the p-value is that of the exact test of McNemar."""
    from scipy.stats import binomtest

    first = np.array([region.inside >= one.spec.found for region in one.regions])
    second = np.array([region.inside >= other.spec.found for region in other.regions])
    only_first = int((first & ~second).sum())
    only_second = int((second & ~first).sum())
    differ = only_first + only_second
    share = np.array([r.inside for r in one.regions]) - [r.inside for r in other.regions]
    pictures = np.array([r.picture for r in one.regions])
    generator = np.random.default_rng(0)
    by_picture = [share[pictures == n] for n in np.unique(pictures)]
    means = []
    for _ in range(one.spec.resamples if by_picture else 0):
        drawn = generator.integers(0, len(by_picture), len(by_picture))
        means.append(float(np.concatenate([by_picture[n] for n in drawn]).mean()))
    return {
        "regions": len(first),
        "found by both": int((first & second).sum()),
        "found by the first only": only_first,
        "found by the second only": only_second,
        "found by none": int((~first & ~second).sum()),
        "p": float(binomtest(only_first, differ).pvalue) if differ else 1.0,
        "share inside outlines, first minus second": float(share.mean()) if len(share) else 0.0,
        "interval": _interval(means) if means else [0.0, 0.0],
    }


def in_words(pictures: dict[str, object], places: dict[str, object]) -> str:
    """Say what an evaluation measured."""
    parts = []
    if isinstance(area := pictures.get("AUROC"), dict):
        low, high = area["interval"]
        parts.append(f"AUROC of pictures {area['value']:.3f} ({low:.3f} to {high:.3f})")
    for name, words in (("recall", "defects found"), ("false alarms", "false alarms")):
        rate = pictures[name]
        assert isinstance(rate, dict)
        if rate["of"]:
            interval = interval_in_percent(rate["interval"])
            parts.append(f"{words} {rate['count']} of {rate['of']} ({interval})")
    if places:
        parts.append(f"pixel AUROC {places['pixel AUROC']:.3f}, PRO {places['PRO']:.3f}")
        if isinstance(rare := places["AUPIMO"], dict):
            parts.append(f"AUPIMO {rare['value']:.3f}")
        regions = places["regions found"]
        assert isinstance(regions, dict)
        parts.append(f"outlines lie on {regions['count']} of {plural(regions['of'], 'region')}")
    return f"Against the truth: {'; '.join(parts)}."
