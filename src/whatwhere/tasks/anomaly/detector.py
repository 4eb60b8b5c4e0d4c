"""The anomaly detector, in the interface of scikit-learn's outlier detectors."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.engines.threads import workers
from whatwhere.errors import ImageError, MissingExtra
from whatwhere.files import readable
from whatwhere.learning import load as load_model
from whatwhere.model.files import read_checked, write_checked
from whatwhere.spec.tasks import AnomalySpec
from whatwhere.tasks.anomaly.aligned import OBJECT, NormalObject, learn_object
from whatwhere.tasks.anomaly.evidence import (
    LEAST,
    RECORDING,
    SMALL_SURFACE,
    SURFACE,
    Each,
    Kinds,
    NormalSurface,
    Usual,
    choose_threshold,
    in_units,
    learn_surface,
    summarise,
    surface_of,
    together,
    units_of,
)
from whatwhere.tasks.anomaly.filters import (
    LARGE,
    SIGNAL,
    SMALL,
    SMALL_OBJECT,
    Cells,
    Filters,
    cosines,
    learn_filters,
)
from whatwhere.tasks.anomaly.pictures import (
    PictureList,
    Sample,
    Source,
    is_large,
    open_pictures,
    with_channels,
)

try:
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("scikit-learn", "sklearn", "AnomalyDetector") from None

FORMAT = "whatwhere anomaly detector 4"
FEATURES = "photographs"  # the model whose first layer is looked for
FOLDS = 4  # a normal picture is judged by what was learned from the others
COMPARED = 4  # normal patches that are shown
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Detection:
    """What a detector finds in a picture.

    score        the higher, the less normal
    evidence     of each kind, in units of normal pictures with such a surface: 0 is their median, a
                 tenth exceeds 1
    anomaly_map  [H, W]: in units of all normal pictures, all kinds together; NaN where a pixel is
                 unknown
    """

    name: str
    score: float
    evidence: dict[str, float]
    anomaly_map: Tensor


class AnomalyDetector(OutlierMixin, BaseEstimator):
    """Finds pictures unlike the normal ones that it was fitted to, and the places that make them
    so.

    Nothing is trained but statistics of the normal pictures: how features of photographs stand out
    from them, and which combinations of features are normal. Pictures are a folder, an array or
    tensor [N, H, W] or [N, C, H, W], or a list of pictures [H, W], [C, H, W] or [H, W, C] of any
    sizes; or signals, `ww.data.load(…, signals=True)`. NaN marks unknown pixels.

    Memory is bounded whatever the number of normal pictures: of more than `fit` can handle in
    `memory` MB, a random sample is kept.

    Parameters
    ----------
    aligned : objects in a fixed position, in pictures of one size: a place is compared with the
        same place of normal pictures (digits, parts). False: surfaces, where it is compared with
        all places
    false_alarms : share of normal pictures that may be taken for anomalies: sets the threshold
    memory : MB that `fit` may use beyond the program itself, for pictures of up to a million
        pixels. A sixteenth of it holds the normal pictures that are kept
    random_state : seed of the sample, an integer

    Attributes
    ----------
    threshold_ : a `Threshold`: its value, the rate of false alarms that is expected, and the
        interval of that rate
    normal_scores_ : scores of the normal pictures, each judged by what was learned from the others,
        (n,)
    offset_ : `score_samples` minus `decision_function`

    Examples
    --------
    >>> import whatwhere as ww
    >>> digits = ww.data.load("digits")
    >>> X, y = digits[:50], digits.labels[:50]
    >>> detector = ww.AnomalyDetector(aligned=True).fit(X[y != 7])
    >>> detector.predict(X[:3]).shape         # -1 for anomalies, 1 for normal pictures
    (3,)
    >>> detector.anomaly_map(X[:2])[0].shape
    (28, 28)
    """

    def __init__(
        self,
        *,
        aligned: bool = False,
        false_alarms: float = 0.05,
        memory: int = 1000,
        random_state: int = 0,
    ) -> None:
        self.aligned = aligned
        self.false_alarms = false_alarms
        self.memory = memory
        self.random_state = random_state

    def fit(
        self, X: Source, y: Any = None, *, progress: Progress | None = None
    ) -> "AnomalyDetector":
        """Learn what normal pictures are like; `progress` is called with the number of pictures
        just read."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        return self.partial_fit(X, progress=progress)

    def partial_fit(
        self, X: Source, y: Any = None, *, progress: Progress | None = None
    ) -> "AnomalyDetector":
        """Learn from more normal pictures, together with those that are kept of the ones before."""
        spec = self._spec()
        sample = getattr(self, "sample_", None) or Sample(spec.memory * 1_000_000, spec.seed)
        for picture in open_pictures(X):
            if not picture.isfinite().any():
                raise ImageError(f"normal picture {sample.seen} has no known pixel; remove it")
            sample.add(with_channels(picture, sample.channels or len(picture)))
            if progress:
                progress(1)
        if not sample.seen:
            raise ImageError("no normal pictures were given; expected at least one")
        self.sample_ = sample
        with workers() as each:
            self._learn(spec, each)
        return self

    def score_samples(self, X: Source) -> np.ndarray:
        """How normal pictures are, (n,): the higher, the more normal."""
        return -np.array([found.score for found in self.detect(open_pictures(X))])

    def decision_function(self, X: Source) -> np.ndarray:
        """The same with the threshold at 0: negative for anomalies."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Source) -> np.ndarray:
        """-1 for anomalies, 1 for normal pictures."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def anomaly_map(self, X: Source) -> list[np.ndarray]:
        """How unlike normal pictures each pixel is, (H, W) for each picture, in the units of the
        threshold.

        Of signals, (T,) for each.
        """
        maps = [found.anomaly_map.numpy() for found in self.detect(open_pictures(X))]
        return [values[0] for values in maps] if self.filters_.for_signals else maps

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array, tags.input_tags.allow_nan = (
            False,
            True,
            True,
        )
        return tags

    @property
    def offset_(self) -> float:
        """`score_samples` minus `decision_function`."""
        check_is_fitted(self, "threshold_")
        return -self.threshold_.value

    def detect(self, pictures: PictureList) -> Iterator[Detection]:
        """What is found in each picture; one does not depend on the others, nor on the number of
        threads."""
        check_is_fitted(self, "threshold_")
        with workers() as each:
            yield from each(self._detect, pictures, pictures.names)

    def compared(self, picture: Tensor, anomaly_map: Tensor) -> list[Tensor]:
        """The least normal patch of a picture [C, H, W], and the normal patches that are most like
        it.

        They are of several normal pictures, if there are several.
        """
        picture, search = with_channels(picture, self.sample_.channels), self.filters_.search
        cell, side = search.cell, (search.around + 1) * search.cell
        row, column = divmod(int(anomaly_map.nan_to_num(-torch.inf).argmax()), anomaly_map.shape[1])
        pictures, shown = self.sample_.pictures, dict[int, list[int]]()
        for number, *place in self.normal_.most_alike(
            self.filters_(picture), row // cell, column // cell
        ).mT.tolist():
            shown.setdefault(number, place)
            if len(shown) == COMPARED:
                break
        normal = [
            cut(pictures[n], (r + 0.5) * cell, (c + 0.5) * cell, side)
            for n, (r, c) in shown.items()
        ]
        return [cut(picture, row, column, side), *normal]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file, which appears complete or not at all; nothing
        is pickled."""
        check_is_fitted(self, "threshold_")
        sample, tensors = self.sample_, dict[str, Tensor]()
        settings = {
            "parameters": self.get_params(),
            "filters": take_tensors("filters", self.filters_, tensors),
            "normal": take_tensors("normal", self.normal_, tensors),
            "usual": take_tensors("usual", self.usual_, tensors),
            "sample": {"limit": sample.limit, "seed": sample.seed, "seen": sample.seen},
            "numbers": sample.numbers,
        }
        tensors |= {"units": self.units_, "map_units": self.map_units_}
        tensors["scores"] = torch.from_numpy(self.normal_scores_)
        tensors |= {f"picture.{n}": as_bytes(picture) for n, picture in enumerate(sample.pictures)}
        write_checked(
            Path(path),
            FORMAT,
            settings,
            {name: tensor.contiguous() for name, tensor in tensors.items()},
        )

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "AnomalyDetector":
        """Read a detector that `save` wrote; a damaged file, or one of another format, raises a
        RunError."""
        file = Path(path)
        with readable(file, "anomaly detector", "copy it again, or fit again"):
            settings, tensors = read_checked(file, FORMAT)
            detector = AnomalyDetector(**settings["parameters"])
            kind = NormalObject if detector.aligned else NormalSurface
            detector.filters_ = with_tensors("filters", Filters, settings["filters"], tensors)
            detector.normal_ = with_tensors("normal", kind, settings["normal"], tensors)
            detector.usual_ = with_tensors("usual", Usual, settings["usual"], tensors)
            detector.sample_ = Sample(**settings["sample"])
            pictures = [tensors[f"picture.{n}"] for n in range(len(settings["numbers"]))]
            for number, picture in zip(settings["numbers"], pictures, strict=True):
                detector.sample_.keep(
                    number, picture.float() / 255 if picture.dtype == torch.uint8 else picture
                )
            detector.units_, detector.map_units_ = tensors["units"], tensors["map_units"]
            detector.normal_scores_ = tensors["scores"].numpy()
            detector.threshold_ = choose_threshold(
                detector.normal_scores_, detector._spec().false_alarms
            )
            detector.score_samples(pictures[:1])  # parts that do not match each other raise here
        return detector

    # Inside ---------------------------------------------------------------------------------------

    def _spec(self) -> AnomalySpec:
        parameters = self.get_params()
        return AnomalySpec(seed=parameters.pop("random_state"), **parameters)

    @property
    def kinds(self) -> Kinds:
        """The kinds of evidence, as in `evidence.SURFACE`."""
        if self.aligned:
            return OBJECT
        return {LARGE: SURFACE, SMALL: SMALL_SURFACE, SIGNAL: RECORDING}[self.filters_.search]

    def _learn(self, spec: AnomalySpec, each: Each) -> None:
        """Filters, what is normal, the units of evidence, and the threshold, from the pictures
        that are kept."""
        pictures = self.sample_.pictures
        if all(picture.shape[1] == 1 for picture in pictures):
            features, search = cosines(), SIGNAL
        else:
            small = SMALL_OBJECT if spec.aligned else SMALL
            features, search = (
                load_model(FEATURES).filters[0][0],
                LARGE if any(map(is_large, pictures)) else small,
            )
        self.filters_ = learn_filters(pictures, features, search, spec.aligned)
        cells: list[Cells] = list(each(self.filters_, pictures))
        if not all(found.known.any() for found in cells):
            raise ImageError("a normal picture has no place of known pixels; remove it")
        learn: Any = learn_object if spec.aligned else partial(learn_surface, seed=spec.seed)
        self.normal_ = learn(cells, each=each)
        fold = torch.arange(len(cells)) * min(FOLDS, len(cells)) // len(cells)
        evidence = torch.stack(self._cross_evidence(cells, fold, learn, each))
        surfaces = torch.stack([surface_of(found) for found in cells])
        self.usual_, self.map_units_ = Usual.of(surfaces, evidence), units_of(evidence, self.kinds)
        excess = cross_excess(surfaces, evidence, fold)
        self.units_ = units_of(excess, self.kinds)
        self.normal_scores_ = together(in_units(excess, self.units_).mT).double().numpy()
        if all(torch.equal(found.energy, cells[0].energy) for found in cells[1:]):
            # Identical pictures: folds of fewer copies are no measure of all of them.
            evidence_of_one = self._evidence(self.normal_, cells[0])[0]
            excess_of_one = evidence_of_one - self.usual_(surfaces[0])
            score = float(together(in_units(excess_of_one, self.units_)))
            self.normal_scores_ = np.maximum(self.normal_scores_, score)
        self.threshold_ = choose_threshold(self.normal_scores_, spec.false_alarms)

    def _cross_evidence(
        self, cells: list[Cells], fold: Tensor, learn: Any, each: Each
    ) -> list[Tensor]:
        """Of normal pictures, by what was learned without their fold; neighbours, often of one
        object, are in one."""
        evidence: list[Tensor] = []
        for k in fold.unique().tolist():
            others = [found for found, f in zip(cells, fold, strict=True) if f != k]
            normal = learn(others, each=each) if others else self.normal_
            inside = [found for found, f in zip(cells, fold, strict=True) if f == k]
            evidence += each(lambda c, normal=normal: self._evidence(normal, c)[0], inside)
        return evidence

    def _evidence(self, normal: Any, cells: Cells) -> tuple[Tensor, Tensor]:
        """Of a picture [k] and of its cells [k, rows, columns], in no units yet."""
        found = normal.maps(cells)
        maps = torch.stack([found[kind] for kind in self.kinds])
        return summarise(maps, cells, [quantile for quantile, _ in self.kinds.values()]), maps

    def _detect(self, picture: Tensor, name: str) -> Detection:
        picture = with_channels(picture, self.sample_.channels)
        cells, (height, width) = self.filters_(picture), picture.shape[1:]
        if not cells.known.any():
            raise ImageError(f"picture {name} has no place of known pixels; remove it")
        evidence, maps = self._evidence(self.normal_, cells)
        evidence = in_units(evidence - self.usual_(surface_of(cells)), self.units_)
        by_kind_and_cell = in_units(maps, self.map_units_[..., None, None])
        # Of objects, the whole is the same everywhere, and would hide the places in a maximum.
        by_cell = by_kind_and_cell.sum(0) if self.aligned else together(by_kind_and_cell)
        whole = [side * self.filters_.search.cell for side in by_cell.shape]
        pixels = F.interpolate(by_cell[None, None], whole, mode="bilinear")[0, 0, :height, :width]
        score = float(together(evidence))
        missing = 0.0 if self.aligned else self.usual_.missing_contrast(surface_of(cells))
        if missing > 0:
            dead = self.threshold_.value + missing / LEAST
            score = max(score, dead)
            pixels = pixels.clamp_min(dead)
        pixels = torch.where(picture.isfinite().all(0), pixels, torch.nan)
        by_kind = dict(zip(self.kinds, evidence.tolist(), strict=True))
        return Detection(name, score, by_kind, pixels)


def cross_excess(surfaces: Tensor, evidence: Tensor, fold: Tensor) -> Tensor:
    """How much evidence [N, k] exceeds what is usual for surfaces [N, D], by the pictures of other
    folds."""
    usual = torch.empty_like(evidence)
    for k in fold.unique():
        others = (fold != k) if len(fold) > 1 else fold == k
        learned = Usual.of(surfaces[others], evidence[others])
        usual[fold == k] = torch.stack([learned(surface) for surface in surfaces[fold == k]])
    return evidence - usual


def take_tensors(name: str, value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value without its tensors, which are added to `tensors` by their names."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return None
    if not is_dataclass(value):
        return value
    return {
        f.name: take_tensors(f"{name}.{f.name}", getattr(value, f.name), tensors)
        for f in fields(value)
    }


def with_tensors(name: str, kind: Any, value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `take_tensors`."""
    if not isinstance(value, dict):
        return (
            tensors[name] if kind is Tensor else tuple(value) if isinstance(value, list) else value
        )
    kinds = get_type_hints(kind)
    return kind(
        **{
            part: with_tensors(f"{name}.{part}", kinds[part], value[part], tensors)
            for part in value
        }
    )


def as_bytes(picture: Tensor) -> Tensor:
    """A picture as bytes, if nothing is lost."""
    values = torch.from_numpy(np.rint(255 * picture.nan_to_num(-1.0).numpy()).clip(0, 255)).to(
        torch.uint8
    )
    return values if torch.equal(values.float() / 255, picture) else picture


def cut(picture: Tensor, row: float, column: float, side: int) -> Tensor:
    """The square around a place, or what there is of it, moved into the picture [C, H, W]."""
    top, left = (
        int(min(max(at - side / 2, 0), max(size - side, 0)))
        for at, size in zip((row, column), picture.shape[1:], strict=True)
    )
    return picture[:, top : top + side, left : left + side]
