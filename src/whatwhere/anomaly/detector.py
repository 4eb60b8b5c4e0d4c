"""The anomaly detector, in the interface of scikit-learn's outlier detectors."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import numpy as np
import torch
from torch import Tensor

from whatwhere.anomaly.aligned import ONE_SIZE, NormalObject
from whatwhere.anomaly.contrast import Contrast
from whatwhere.anomaly.evidence import (
    Each,
    ExpectedEvidence,
    NormalSurface,
)
from whatwhere.anomaly.features import GivenFeatures, are_known, features_of
from whatwhere.anomaly.filters import (
    LARGE,
    SIGNAL,
    SMALL,
    SMALL_OBJECT,
    Filters,
    cosines,
    learn_filters,
)
from whatwhere.anomaly.joined import Ranks, join
from whatwhere.anomaly.likeness import USUAL as LIKENESS
from whatwhere.anomaly.likeness import LearnedKind, TooAlike
from whatwhere.anomaly.pictures import (
    PictureList,
    Sample,
    Source,
    Unopened,
    fingerprint,
    is_large,
    open_pictures,
    with_channels,
)
from whatwhere.anomaly.scorer import Learning, Scorer, learn_scorer
from whatwhere.anomaly.settings import AnomalySpec
from whatwhere.anomaly.threshold import (
    OddPictures,
    Recall,
    Threshold,
    cheapest_false_alarms,
    choose_threshold,
    expected_recall,
    far_above,
    pictures_alike,
)
from whatwhere.anomaly.tolerance import TRIED, AlarmsAfter, Change, Tolerance
from whatwhere.engines.devices import choose_device
from whatwhere.engines.threads import workers
from whatwhere.errors import ImageError, MissingExtra, RunError, SpecError, plural, printable, warn
from whatwhere.files import FileFields, readable, untrusted
from whatwhere.learning import load as load_model
from whatwhere.model.files import read_checked, write_checked
from whatwhere.nn.feature_maps import FeatureMaps, check_features
from whatwhere.progress import Stage, no_stage
from whatwhere.views.choice import OWN

if TYPE_CHECKING:
    from sklearn.utils import Tags

try:
    from sklearn.base import BaseEstimator, OutlierMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("scikit-learn", "AnomalyDetector") from None

FORMAT = "whatwhere anomaly detector 11"
FEATURES = "photographs"  # the model whose first layer has the features
_MAKE_ONE = "make a detector with `whatwhere anomaly fit`."
Progress = Callable[[int], None]
Features = FeatureMaps | str | Sequence[FeatureMaps | str] | None


@dataclass(frozen=True, kw_only=True)
class DetectorSpec:
    """Settings of detectors that change no score.

    Parameters
    ----------
    compared
        normal patches that are shown
    feature_copies
        of the maps of a picture that `fit` holds at most
    value_bytes
        of a value of a map
    """

    compared: int = 4
    feature_copies: int = 6
    value_bytes: int = 4


_DETECTOR = DetectorSpec()


class Patch(NamedTuple):
    """A square of a picture, smaller where the picture is smaller.

    Parameters
    ----------
    top, left
        row and column of its first pixel, from 0
    height, width
        in pixels
    """

    top: int
    left: int
    height: int
    width: int

    @classmethod
    def around(cls, row: float, column: float, side: int, size: Sequence[int]) -> Patch:
        """Return the square around a place, moved into a picture of this size [H, W]."""
        top, left = (
            int(min(max(at - side / 2, 0), max(extent - side, 0)))
            for at, extent in zip((row, column), size, strict=True)
        )
        height, width = (min(side, extent) for extent in size)
        return cls(top, left, height, width)

    @property
    def centre(self) -> tuple[int, int]:
        """The column x and the row y of the pixel in the middle."""
        return self.left + self.width // 2, self.top + self.height // 2

    def cut(self, picture: Tensor) -> Tensor:
        """Return the square of a picture [C, H, W]."""
        rows = slice(self.top, self.top + self.height)
        columns = slice(self.left, self.left + self.width)
        return picture[:, rows, columns]


@dataclass(frozen=True)
class Detection:
    """The findings of a detector in a picture.

    Parameters
    ----------
    name
        the file, or the number of the picture in an array or a list
    score
        the higher, the less normal; a score above `threshold_.value` is an anomaly
    evidence
        evidence of each kind, in units of normal pictures with such a surface: 0 is their median,
        and a tenth of them exceed 1
    anomaly_map
        [H, W]: how rare such a place is among normal pictures, whatever the picture: a place with
        the value 2 is less normal than 99 % of their area, with 3 than 99.9 % (-log10 of the rest).
        Above `rarest_`, which no normal picture reaches, only the order means something. NaN where
        a pixel is unknown
    patch
        the least normal place: the `Patch` around the largest value of the map
    """

    name: str
    score: float
    evidence: dict[str, float]
    anomaly_map: Tensor
    patch: Patch

    def share_above(self, outline: float) -> float:
        """Return the share of the known pixels whose values in the map exceed `outline_`."""
        known = self.anomaly_map[self.anomaly_map.isfinite()]
        return float((known > outline).float().mean())


class AnomalyDetector(OutlierMixin, BaseEstimator):
    """Find pictures that differ from normal ones, and where they differ.

    `fit` learns statistics of the normal pictures: how features of photographs stand out from them,
    and which combinations of features are normal. Pictures are a folder, an array or tensor
    [N, H, W] or [N, C, H, W], or a list of arrays, PIL pictures or paths, of any sizes; or signals,
    `ww.data.load(…, signals=True)`. NaN marks unknown pixels. Pictures of other channels, or of a
    size far from those learned, raise an error.

    Memory is bounded for any number of normal pictures: if they need more than `memory` MB, `fit`
    keeps a random sample.

    Parameters
    ----------
    features
        the features for comparing pictures. None or "own" uses the detector's own features,
        "colour", "edges" and "network" those of `whatwhere.views`. A callable from pictures [n, C,
        h, w] to a map [n, D, h', w'] or several maps, such as a pretrained network, replaces them.
        A list, such as ["own", network], uses all of them, joined by ranks
    aligned
        compare each place with the same place of normal pictures, for objects in a fixed position
        in pictures of one size (digits, parts). False compares with all places, for surfaces
    false_alarms
        share of normal pictures that may count as anomalies; sets the threshold
    false_area
        share of the area of normal pictures that may lie inside outlines; sets `outline_`
    contamination
        share of the pictures given to `fit` that may be anomalies. `fit` leaves out the least
        normal ones and learns again from the rest
    trusted
        every picture given to `fit` is normal. By default, those that score far above the others
        (`odd_pictures_`) do not count in the threshold
    tolerate
        a `Tolerance`: how far pictures may be rotated, shifted and blurred without an alarm. `fit`
        learns from changed copies of the normal pictures, too, and takes as many times longer
    memory
        MB that `fit` may use beyond the program itself and the given features, for pictures of up
        to a million pixels. A sixteenth of it holds the normal pictures that are kept
    random_state
        seed of the sample, an integer
    device
        "cpu", "cuda" or "auto": where `fit` and scoring compare places with normal ones, which
        takes about half of the time. Aligned objects are compared on the CPU

    Attributes
    ----------
    threshold_
        a `Threshold`: its value, the expected rate of false alarms, and the interval of that rate
    outline_
        values of `anomaly_map` above it are inside the outline of an anomaly: -log10 of
        `false_area`
    rarest_
        values of `anomaly_map` above it are larger than any in the normal pictures. Of them, only
        the order means something
    normal_scores_
        scores of the normal pictures, each by what was learned from the others, (n,)
    normal_evidence_
        evidence of each kind that `normal_scores_` come from, a list of n dictionaries; `load` does
        not restore it
    odd_pictures_
        an `OddPictures`: pictures given as normal that score far above the others; None without
        such pictures
    recall_
        a `Recall`, the share of defects that `choose_threshold_by_defects` expects to find; None
        without defects
    fitted_
        numbers of the pictures that `normal_scores_` belong to, in the order they were given, (n,)
    far_
        which of `normal_scores_` are those of `odd_pictures_`, as numbers from 0
    offset_
        `score_samples` minus `decision_function`

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

    recall_: Recall | None

    def __init__(
        self,
        *,
        features: Features = None,
        aligned: bool = False,
        false_alarms: float = 0.05,
        false_area: float = 0.002,
        contamination: float = 0.0,
        trusted: bool = False,
        tolerate: Tolerance | None = None,
        memory: int = 1000,
        random_state: int = 0,
        device: str = "cpu",
    ) -> None:
        self.features = features
        self.aligned = aligned
        self.false_alarms = false_alarms
        self.false_area = false_area
        self.contamination = contamination
        self.trusted = trusted
        self.tolerate = tolerate
        self.memory = memory
        self.random_state = random_state
        self.device = device

    def fit(
        self,
        X: Source,
        y: object = None,
        *,
        mask: Unopened | None = None,
        progress: Progress | None = None,
        stage: Stage = no_stage,
    ) -> AnomalyDetector:
        """Learn what normal pictures are like.

        Parameters
        ----------
        mask
            the region of interest, as in `open_pictures`
        progress
            called with the number of pictures just read
        stage
            shows the progress of each part of the work
        """
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        return self.partial_fit(X, mask=mask, progress=progress, stage=stage)

    def partial_fit(
        self,
        X: Source,
        y: object = None,
        *,
        mask: Unopened | None = None,
        progress: Progress | None = None,
        stage: Stage = no_stage,
    ) -> AnomalyDetector:
        """Learn from more normal pictures, together with the earlier ones that were kept."""
        spec = self._spec()
        limit = spec.memory * 1_000_000 // self._versions
        sample = getattr(self, "sample_", None) or Sample(limit, spec.seed)
        pictures = open_pictures(X, mask=mask)
        sizes = {tuple(picture.shape[1:]) for picture in sample.pictures}
        before = sample.seen
        with stage("reading pictures", len(pictures)) as advance:
            for picture in pictures:
                if not picture.isfinite().any():
                    raise ImageError(f"Normal picture {sample.seen} has no known pixel. Remove it.")
                if not sample.seen:
                    sample.feature_bytes = self._feature_bytes(picture)
                name = pictures.names[sample.seen - before]
                sample.add(with_channels(picture, sample.channels or len(picture)), name)
                sizes.add(tuple(picture.shape[1:]))
                advance(1)
                if progress:
                    progress(1)
        if not sample.seen:
            raise ImageError("Got no normal pictures; expected at least one.")
        if spec.aligned and len(sizes) > 1:
            raise ImageError(f"Aligned pictures need one size; got {len(sizes)}. {ONE_SIZE}")
        self.sample_ = sample
        with workers() as each:
            self._learn(spec, each, stage)
        return self

    def alarms_after(
        self, changes: Iterable[Change] = TRIED, most: int = 20, stage: Stage = no_stage
    ) -> list[AlarmsAfter]:
        """Count the false alarms that changes of the normal pictures raise, right after `fit`. The
        pictures are judged by what the detector learned from the others, about three quarters.

        Parameters
        ----------
        most
            number of pictures that are tried
        """
        check_is_fitted(self, "threshold_")
        if not hasattr(self, "judges_"):
            raise SpecError("A detector that was loaded cannot count alarms after changes.")
        tried = list(changes)
        normal = self._normal_pictures()
        step = max(1, len(self.judged_) // most)
        pictures = [normal[number] for number in self.judged_[::step][:most]]

        def is_alarm(whole: Tensor) -> bool:
            picture = self._seen(whole)
            found = [torch.tensor(judge(picture, "normal").score) for judge in self.judges_]
            above = float(join(self.ranks_, found)) > self.threshold_.value
            return above or self.contrast_.dead(picture) > 0

        counted = []
        title = f"changing {plural(len(pictures), 'normal picture')}"
        with stage(title, len(tried)) as advance, workers() as each:
            for change in tried:
                changed = [change(picture) for picture in pictures]
                counted.append(AlarmsAfter(change, sum(each(is_alarm, changed)), len(pictures)))
                advance(1)
        return counted

    def choose_threshold(self, false_alarms: float) -> AnomalyDetector:
        """Change the threshold, without a new fit: choose it again from `normal_scores_`.

        Parameters
        ----------
        false_alarms
            share of normal pictures that may count as anomalies
        """
        check_is_fitted(self, "threshold_")
        AnomalySpec(false_alarms=false_alarms)  # raises an error if it is no such share
        self.false_alarms = false_alarms
        self.threshold_ = self._threshold()
        self.recall_ = None
        return self

    def choose_threshold_by_defects(
        self, X: Source, cost: float = 100.0, expected: float = 0.01
    ) -> AnomalyDetector:
        """Choose the threshold that costs least, from a few pictures with defects that the detector
        has not learned from; `recall_` is what it expects to find.

        Parameters
        ----------
        cost
            of a missed defect, in false alarms
        expected
            share of pictures that have a defect
        """
        check_is_fitted(self, "threshold_")
        defects = -self.score_samples(X)
        if not len(defects):
            raise ImageError("Got no pictures with defects; expected at least one.")
        normal = self._counted_scores()
        self.choose_threshold(cheapest_false_alarms(normal, defects, cost, expected))
        self.recall_ = expected_recall(normal, defects, cost, expected)
        return self

    def score_samples(self, X: Source) -> np.ndarray:
        """Return how normal pictures are, (n,): the higher, the more normal."""
        return -np.array([found.score for found in self.detect(open_pictures(X))])

    def decision_function(self, X: Source) -> np.ndarray:
        """`score_samples` minus `offset_`: negative for anomalies."""
        return self.score_samples(X) - self.offset_

    def predict(self, X: Source) -> np.ndarray:
        """-1 for anomalies, 1 for normal pictures."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def anomaly_map(self, X: Source) -> list[np.ndarray]:
        """Return how unlike normal pictures each pixel is, (H, W) for each picture, as in
        `Detection.anomaly_map`; `outline_` is the threshold.

        For signals, (T,) for each.
        """
        maps = [found.anomaly_map.numpy() for found in self.detect(open_pictures(X))]
        if self.scorers_[0].extract.for_signals:
            return [values[0] for values in maps]
        return maps

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        return tags

    @property
    def offset_(self) -> float:
        """`score_samples` minus `decision_function`."""
        check_is_fitted(self, "threshold_")
        return -self.threshold_.value

    @property
    def outline_(self) -> float:
        """The threshold of maps."""
        return -math.log10(self.false_area)

    @property
    def odd_pictures_(self) -> OddPictures | None:
        """Pictures that `fit` got as normal ones but that score far above the others; None if there
        are none."""
        check_is_fitted(self, "threshold_")
        far = self.far_
        if not len(far):
            return None
        numbers = tuple(self.fitted_[far].tolist())
        names = tuple(self.sample_.names[number] for number in numbers)
        others = len(self.normal_scores_) - len(far)
        with_them = self._threshold_of(self.normal_scores_)
        return OddPictures(numbers, names, others, with_them)

    @property
    def feature_names(self) -> list[str]:
        """The names of the features that pictures are compared by: "own" for the detector's."""
        check_is_fitted(self, "threshold_")
        extracts = [scorer.extract for scorer in self.scorers_]
        return [one.name if isinstance(one, GivenFeatures) else OWN for one in extracts]

    def detect(self, pictures: PictureList) -> Iterator[Detection]:
        """Yield the findings in each picture; they depend neither on the other pictures nor on the
        number of threads."""
        check_is_fitted(self, "threshold_")
        with workers() as each:
            if len(pictures) == 1:  # the threads share its places
                yield self._detect(pictures.read(0), pictures.names[0], each)
            else:
                yield from each(self._detect, pictures, pictures.names)

    def compared(self, picture: Tensor, anomaly_map: Tensor) -> list[Tensor]:
        """Return the least normal patch of a picture [C, H, W], and the normal patches that are
        most like it by the first features.

        They come from different normal pictures, if there are several, and never from the same
        picture, which the detector may have learned from.
        """
        whole = with_channels(picture, self.sample_.channels)
        picture = self._seen(whole)
        top, left = ((a - b) // 2 for a, b in zip(whole.shape[1:], picture.shape[1:], strict=True))
        scorer = self.scorers_[0]
        cells = scorer.extract(picture)
        cell_height, cell_width = scorer.extract.cell_size(cells, picture)
        side = scorer.side(cells, picture)
        row, column = _largest_pixel(anomaly_map)
        place = int((row - top) / cell_height), int((column - left) / cell_width)
        pictures = self._normal_pictures()
        own = fingerprint(whole)
        nearest = dict[int, list[int]]()
        for version, *at in scorer.normal.nearest_places(cells, *place).mT.tolist():
            number = version // self._versions
            if number in nearest or fingerprint(pictures[number]) == own:
                continue
            nearest[number] = at
            if len(nearest) == _DETECTOR.compared:
                break
        normal = [
            _cut(pictures[n], top + (r + 0.5) * cell_height, left + (c + 0.5) * cell_width, side)
            for n, (r, c) in nearest.items()
        ]
        return [_cut(whole, row, column, side), *normal]

    def different_pictures(self) -> int:
        """Count the different pictures among those that the detector was fitted to."""
        return len(self.fingerprints())

    def fingerprints(self) -> set[bytes]:
        """Return the fingerprints of the pictures that the detector was fitted to."""
        return {fingerprint(picture) for picture in self._normal_pictures()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detector to a safetensors file, which appears complete or not at all; nothing
        is pickled.

        Given features are not in it: `load` needs them again, and checks that they are the same.
        """
        check_is_fitted(self, "threshold_")
        sample = self.sample_
        tensors = dict[str, Tensor]()
        parameters = self.get_params()
        # given again by whoever loads it
        del parameters["features"], parameters["device"]
        if self.tolerate is not None:
            parameters["tolerate"] = asdict(self.tolerate)
        settings = {
            "parameters": parameters,
            "scorers": [
                _scorer_settings(scorer, f"{n}.", sample.channels, tensors)
                for n, scorer in enumerate(self.scorers_)
            ],
            "sample": {
                "limit": sample.limit,
                "seed": sample.seed,
                "seen": sample.seen,
                "feature_bytes": sample.feature_bytes,
            },
            "numbers": sample.numbers,
            "names": [sample.names[number] for number in sample.numbers],
            "recall": None if self.recall_ is None else asdict(self.recall_),
            "fitted": self.fitted_.tolist(),
            "contrast": asdict(self.contrast_),
            "kind": asdict(self.kind_),
            "rarest": self.rarest_,
            "far": self.far_.tolist(),
        }
        curves = zip(self.ranks_, self.map_ranks_, strict=True)
        for n, (ranks, map_ranks) in enumerate(curves):
            _take_tensors(f"{n}.ranks", ranks, tensors)
            _take_tensors(f"{n}.map_ranks", map_ranks, tensors)
        _take_tensors("area", self.area_, tensors)
        tensors["scores"] = torch.from_numpy(self.normal_scores_)
        tensors |= {f"picture.{n}": _as_bytes(picture) for n, picture in enumerate(sample.pictures)}
        contiguous = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
        write_checked(Path(path), FORMAT, settings, contiguous)

    @staticmethod
    def load(
        path: str | os.PathLike[str], *, features: Features = None, device: str = "cpu"
    ) -> AnomalyDetector:
        """Read a detector that `save` wrote; a damaged file, or one of another format, raises a
        RunError.

        Parameters
        ----------
        features
            the features that the detector was fitted with, unless they are its own; other features
            raise a RunError
        device
            where places are compared, as in `AnomalyDetector`
        """
        file = Path(path)
        chosen = choose_device(device)
        if file.is_dir():
            raise RunError(
                f"{printable(file)} is a folder, not a detector. Give a file, or {_MAKE_ONE}"
            )
        if not file.exists():
            raise RunError(f"Cannot find {printable(file)}. Check the path, or {_MAKE_ONE}")
        # forged settings have any types, and parts that do not match each other
        with readable(file, "anomaly detector", "copy it again, or fit again"), untrusted():
            settings, tensors = read_checked(file, FORMAT)
            detector = AnomalyDetector(features=features, device=device, **settings["parameters"])
            if detector.tolerate is not None:
                detector.tolerate = Tolerance(**settings["parameters"]["tolerate"])
            detector.sample_ = Sample(**settings["sample"])
            kept = zip(settings["numbers"], settings["names"], strict=True)
            for n, (number, name) in enumerate(kept):
                detector.sample_.keep(number, from_bytes(tensors[f"picture.{n}"]), name)
            detector.fitted_ = np.array(settings["fitted"])
            detector.normal_scores_ = tensors["scores"].numpy()
            detector.far_ = np.array(settings["far"], dtype=np.int64)
            scorers = detector._read_scorers(settings["scorers"], tensors)
            detector.scorers_ = [scorer.on(chosen) for scorer in scorers]
            sources = range(len(detector.scorers_))
            detector.ranks_ = [_ranks_from(f"{n}.ranks", tensors) for n in sources]
            detector.map_ranks_ = [_ranks_from(f"{n}.map_ranks", tensors) for n in sources]
            detector.area_ = _ranks_from("area", tensors)
            detector.rarest_ = float(settings["rarest"])
            detector.contrast_ = Contrast(**settings["contrast"])
            detector.kind_ = LearnedKind(**settings["kind"])
            detector.threshold_ = detector._threshold()
            detector.recall_ = _recall_from(settings["recall"])
            # parts that do not match each other raise here
            detector.score_samples(detector.sample_.pictures[:1])
        return detector

    # Inside ---------------------------------------------------------------------------------------

    def _spec(self) -> AnomalySpec:
        parameters = self.get_params()
        del parameters["features"], parameters["tolerate"], parameters["device"]
        return AnomalySpec(seed=parameters.pop("random_state"), **parameters)

    def _sources(self) -> list[Any]:
        """Return the features as a list of callables, with a word in place of the detector's
        own."""
        given = self.features
        if given is None:
            return [OWN]
        words = list(given) if isinstance(given, list | tuple) else [given]
        listed = [features_of(one) if isinstance(one, str) and one != OWN else one for one in words]
        for function in listed:
            if not isinstance(function, str):
                check_features(function)
        if not listed:
            raise SpecError(f"Got features = []; expected {OWN!r}, a callable, or a list of them.")
        return listed

    def _learn(self, spec: AnomalySpec, each: Each, stage: Stage) -> None:
        """Scorers and the threshold, from the pictures that are kept."""
        numbers = np.array(self.sample_.numbers)
        self.fitted_ = numbers
        self._learn_scorers(spec, each, stage)
        trimmed = math.floor(spec.contamination * len(numbers))
        if trimmed:
            order = np.argsort(self.normal_scores_, kind="stable")
            self.fitted_ = np.sort(numbers[order[: len(numbers) - trimmed]])
            self._learn_scorers(spec, each, stage)
        normal = self._normal_pictures()
        self.contrast_ = Contrast.of(self._normal_versions())
        self.kind_ = LearnedKind.of(normal)
        self.threshold_ = self._threshold()
        self.recall_ = None
        if not self.kind_.signals and (different := self.different_pictures()) < LIKENESS.few:
            warn(TooAlike(len(normal), different))

    def _learn_scorers(self, spec: AnomalySpec, each: Each, stage: Stage) -> None:
        pictures = self._normal_versions()
        versions = self._versions
        how = Learning(
            aligned=spec.aligned,
            seed=spec.seed,
            versions=versions,
            device=choose_device(self.device),
        )
        learned = []
        for source in self._sources():
            extract = self._extractor(source, pictures, stage)
            learned.append(learn_scorer(extract, pictures, how, each, stage))
        self.scorers_ = [one.scorer for one in learned]
        # The last version, with the largest changes, stands for its picture.
        shown = slice(versions - 1, None, versions)
        by_source = zip(*(one.normal_evidence[shown].tolist() for one in learned), strict=True)
        self.normal_evidence_ = [self._by_kind(values) for values in by_source]
        self.ranks_ = [Ranks.of(one.normal_scores[shown]) for one in learned]
        scores = join(self.ranks_, [one.normal_scores[shown] for one in learned])
        self.judges_ = [one.judge for one in learned]
        self.judged_ = sorted({number // versions for number in learned[0].judged})
        self.normal_scores_ = scores.double().numpy()
        unchanged = join(self.ranks_, [one.normal_scores[::versions] for one in learned])
        self.far_ = far_above(unchanged.double().numpy())
        self.map_ranks_ = [Ranks.of_area(one.normal_pixels.flatten()) for one in learned]
        pixels = join(self.map_ranks_, [one.normal_pixels.flatten() for one in learned])
        self.area_ = Ranks.of_area(pixels)
        peaks = join(self.map_ranks_, [one.normal_peaks for one in learned])
        self.rarest_ = float(self.area_(peaks.amax())) / math.log(10)

    def _feature_bytes(self, picture: Tensor) -> int:
        """Return bytes that `fit` needs for each value of a picture, by the features that are
        given."""
        cells = [GivenFeatures(source)(picture) for source in self._sources() if source != OWN]
        values = sum(found.energy.numel() for found in cells)
        return math.ceil(
            _DETECTOR.feature_copies * values * _DETECTOR.value_bytes / picture.numel()
        )

    @property
    def _versions(self) -> int:
        """Number of versions of each normal picture that the detector learns from."""
        return 1 if self.tolerate is None else 1 + self.tolerate.copies

    def _normal_versions(self) -> list[Tensor]:
        """Return each normal picture, followed by its changed copies."""
        pictures = self._normal_pictures()
        if self.tolerate is None:
            return pictures
        copies = [self.tolerate.copies_of(picture, n) for n, picture in enumerate(pictures)]
        pairs = zip(map(self.tolerate.window, pictures), copies, strict=True)
        return [one for picture, changed in pairs for one in (picture, *changed)]

    def _seen(self, picture: Tensor) -> Tensor:
        """Return the part of a picture [C, H, W] that the detector looks at."""
        return picture if self.tolerate is None else self.tolerate.window(picture)

    def _normal_pictures(self) -> list[Tensor]:
        """Return the pictures that the detector was fitted to, in the order they were given."""
        chosen = set(self.fitted_.tolist())
        pictures = zip(self.sample_.numbers, self.sample_.pictures, strict=True)
        return [picture for number, picture in pictures if number in chosen]

    def _extractor(
        self, source: Any, pictures: Sequence[Tensor], stage: Stage
    ) -> Filters | GivenFeatures:
        if source != OWN:
            return GivenFeatures(source)
        if all(picture.shape[1] == 1 for picture in pictures):
            features = cosines()
            search = SIGNAL
        else:
            features = load_model(FEATURES).filters[0][0]
            small = SMALL_OBJECT if self.aligned else SMALL
            search = LARGE if any(map(is_large, pictures)) else small
        title = f"learning filters from {plural(len(pictures), 'picture')}"
        with stage(title, len(pictures)) as advance:
            return learn_filters(pictures, features, search, self.aligned, advance)

    def _threshold(self) -> Threshold:
        return self._threshold_of(self._counted_scores())

    def _threshold_of(self, counted: np.ndarray) -> Threshold:
        """Return the threshold that these of the scores of the normal pictures give."""
        trimmed = self._trimmed() + len(self.normal_scores_) - len(counted)
        alike = pictures_alike(self.normal_scores_)
        return choose_threshold(counted, self._spec().false_alarms, trimmed, alike)

    def _trimmed(self) -> int:
        """Count the pictures that were left out of the fit."""
        return len(self.sample_.kept) - len(self.fitted_)

    def _counted_scores(self) -> np.ndarray:
        """Return the scores of normal pictures that count in the threshold."""
        if self.trusted:
            return self.normal_scores_
        return np.delete(self.normal_scores_, self.far_)

    def _read_scorers(
        self, scorers: Sequence[FileFields], tensors: Mapping[str, Tensor]
    ) -> list[Scorer]:
        """Return the scorers of a file, with the features that were given."""
        needed = [entry["source"] for entry in scorers]
        if self.features is None and needed != [OWN] and are_known(needed):
            self.features = needed
        sources = self._sources()
        given = [source if source == OWN else GivenFeatures(source).name for source in sources]
        if self.features is None and needed != [OWN]:
            raise RunError(
                f"The detector learned from the features {', '.join(needed)[:200]}. Its file does"
                " not contain features that were given to it, so the command line cannot load it."
                " In Python, give the same features in the same order:"
                " AnomalyDetector.load(file, features=…)."
            )
        if [name == OWN for name in needed] != [name == OWN for name in given]:
            raise RunError(
                f"The detector learned from the features {', '.join(needed)[:200]}, but got"
                f" {', '.join(given)[:200]}. Give the same features in the same order:"
                " AnomalyDetector.load(file, features=…)."
            )
        return [
            self._read_scorer(entry, source, f"{n}.", tensors)
            for n, (entry, source) in enumerate(zip(scorers, sources, strict=True))
        ]

    def _read_scorer(
        self,
        entry: FileFields,
        source: Any,
        prefix: str,
        tensors: Mapping[str, Tensor],
    ) -> Scorer:
        kind = NormalObject if self.aligned else NormalSurface
        extract: Filters | GivenFeatures
        if source == OWN:
            extract = _with_tensors(f"{prefix}filters", Filters, entry["filters"], tensors)
        else:
            extract = GivenFeatures(source)
            extract.check(tensors[f"{prefix}fingerprint"], self.sample_.channels)
        return Scorer(
            extract=extract,
            normal=_with_tensors(f"{prefix}normal", kind, entry["normal"], tensors),
            usual=_with_tensors(f"{prefix}usual", ExpectedEvidence, entry["usual"], tensors),
            units=tensors[f"{prefix}units"],
            map_units=tensors[f"{prefix}map_units"],
            aligned=self.aligned,
        )

    def _detect(self, whole: Tensor, name: str, each: Each = map) -> Detection:
        self.kind_.check(whole, name)
        picture = self._seen(whole)
        found = [scorer(picture, name, each) for scorer in self.scorers_]
        evidence = self._by_kind([list(one.evidence.values()) for one in found])
        score = float(join(self.ranks_, [torch.tensor(one.score) for one in found]))
        joined = join(self.map_ranks_, [one.by_pixel for one in found])
        pixels = self.area_(joined) / math.log(10)
        if dead := self.contrast_.dead(picture):
            score = max(score, self.threshold_.value + dead)
            pixels = pixels.clamp_min(self.outline_ + dead)
        known = picture.isfinite().all(0)
        anomaly_map = torch.where(known, pixels, torch.nan)
        if self.tolerate is not None:
            anomaly_map = self.tolerate.at_border(anomaly_map, whole.shape[1:])
        patch = Patch.around(*_largest_pixel(anomaly_map), found[0].side, anomaly_map.shape)
        return Detection(name, score, evidence, anomaly_map, patch)

    def _by_kind(self, evidence: Iterable[Sequence[float]]) -> dict[str, float]:
        """Return the evidence of each source by its kinds, with the names of features that were
        given."""
        found = dict[str, float]()
        for scorer, values in zip(self.scorers_, evidence, strict=True):
            before = ""
            if isinstance(scorer.extract, GivenFeatures):
                before = f"{scorer.extract.name}: "
            for kind, value in zip(scorer.kinds, values, strict=True):
                found[before + kind] = value
        return found


def _scorer_settings(
    scorer: Scorer, prefix: str, channels: int, tensors: dict[str, Tensor]
) -> dict[str, object]:
    """Return what a file records about a scorer; its tensors are added to `tensors`."""
    extract = scorer.extract
    entry: dict[str, object] = {"source": OWN}
    if isinstance(extract, GivenFeatures):
        entry["source"] = extract.name
        tensors[f"{prefix}fingerprint"] = extract.fingerprint(channels)
    else:
        entry["filters"] = _take_tensors(f"{prefix}filters", extract, tensors)
    entry["normal"] = _take_tensors(f"{prefix}normal", scorer.normal, tensors)
    entry["usual"] = _take_tensors(f"{prefix}usual", scorer.usual, tensors)
    tensors |= {f"{prefix}units": scorer.units, f"{prefix}map_units": scorer.map_units}
    return entry


def _recall_from(settings: FileFields | None) -> Recall | None:
    """Return what a file records of the share of defects found."""
    if settings is None:
        return None
    low, high = settings["interval"]
    return Recall(settings["found"], settings["of"], (low, high))


def _ranks_from(name: str, tensors: Mapping[str, Tensor]) -> Ranks:
    """Read a curve that `_take_tensors` took apart."""
    return Ranks(tensors[f"{name}.bends"], tensors[f"{name}.shares"])


def _take_tensors(name: str, value: object, tensors: dict[str, Tensor]) -> object:
    """Return a value without its tensors, which are added to `tensors` by their names."""
    if isinstance(value, Tensor):
        tensors[name] = value
        return None
    if not is_dataclass(value):
        return value
    return {
        f.name: _take_tensors(f"{name}.{f.name}", getattr(value, f.name), tensors)
        for f in fields(value)
    }


def _with_tensors(name: str, kind: Any, value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the inverse of `_take_tensors`."""
    if kind is Tensor:
        return tensors[name]
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    kinds = get_type_hints(kind)
    return kind(
        **{
            part: _with_tensors(f"{name}.{part}", kinds[part], value[part], tensors)
            for part in value
        }
    )


def _as_bytes(picture: Tensor) -> Tensor:
    """Return a picture as bytes, if nothing is lost."""
    values = torch.from_numpy(np.rint(255 * picture.nan_to_num(-1.0).numpy()).clip(0, 255)).to(
        torch.uint8
    )
    return values if torch.equal(values.float() / 255, picture) else picture


def _cut(picture: Tensor, row: float, column: float, side: int) -> Tensor:
    """Return the square around a place, made smaller if necessary and moved into the picture [C, H,
    W]."""
    return Patch.around(row, column, side, picture.shape[1:]).cut(picture)


def _largest_pixel(anomaly_map: Tensor) -> tuple[int, int]:
    """Return the row and the column of the largest known value of a map [H, W]."""
    return divmod(int(anomaly_map.nan_to_num(-torch.inf).argmax()), anomaly_map.shape[1])


def from_bytes(picture: Tensor) -> Tensor:
    return picture.float() / 255 if picture.dtype == torch.uint8 else picture
