"""The report of a detector on some pictures: the table, the page, masks of the defects, and how
well they match the truth."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

import numpy as np
import torch

from whatwhere.anomaly.detector import AnomalyDetector, Detection
from whatwhere.anomaly.evaluation import (
    Evaluation,
    EvaluationSpec,
    compared_places,
    in_words,
    read_truth,
)
from whatwhere.anomaly.likeness import are_of_another_kind
from whatwhere.anomaly.page import (
    Gallery,
    MapScale,
    PageFacts,
    PageRow,
    alarm_rates,
    count_above,
)
from whatwhere.anomaly.pictures import PictureList
from whatwhere.commands.outputs import Stages, write
from whatwhere.errors import listed, plural, printable
from whatwhere.html import png
from whatwhere.views.choice import OWN

_OTHER_KIND = (
    "Almost all of these pictures are less normal than every picture that the detector learned"
    " from. Probably they are of another kind, or the camera, the light or the scale has changed:"
    " fit again to normal pictures of now. For printed graphics whose layout changes, compare each"
    " picture with its template instead."
)


def learned_from(model: AnomalyDetector) -> str:
    """Say which pictures a detector learned from, in words that can follow "The detector"."""
    seen = model.sample_.seen
    kept = len(model.sample_.kept)
    fitted = len(model.fitted_)
    given = [name for name in model.feature_names if name != OWN]
    features = f" by its own features and {listed(given)}" if given else ""
    if OWN not in model.feature_names:
        features = f" by the features {listed(given)}"
    if fitted == seen:
        return f"learned from {plural(seen, 'normal picture')}{features}"
    sampled = ""
    if kept < seen:
        sampled = f"; it kept a random sample of {kept:,} (setting `memory`)"
    without = ""
    if fitted < kept:
        without = f" and left out the {kept - fitted:,} least normal"
    return f"learned from {fitted:,} of {plural(seen, 'picture')}{sampled}{without}{features}"


def report_files(out: Path) -> list[Path]:
    """Return the table, the page, the measures, and the masks that are there."""
    named = [out / "scores.csv", out / "index.html", out / "evaluation.json"]
    return [*named[:2], *(f for f in (named[2], *_old_masks(out)) if f.exists())]


def _old_masks(out: Path) -> list[Path]:
    return sorted((out / "masks").rglob("*.png"))


@dataclass(frozen=True)
class ReportSource:
    """The pictures of a report, and what is known of them.

    Parameters
    ----------
    pictures
        the pictures
    folder
        where they are, for the table of marks
    normal
        scores of other pictures, which the detector learned from; None if these are the ones
    known
        scores and evidence by the numbers of pictures that the detector learned from, each by what
        it learned from the others
    expected
        share of pictures that have a defect
    truth
        a folder of masks, or of good and bad pictures
    rival
        a second detector, whose places are compared
    """

    pictures: PictureList
    folder: str
    normal: np.ndarray | None = None
    known: Mapping[int, tuple[float, dict[str, float]]] = field(default_factory=dict)
    expected: float | None = None
    truth: str | None = None
    rival: AnomalyDetector | None = None


@dataclass(frozen=True)
class Commands:
    """Lines to type that the page shows: to score with another threshold, and to fit with marks."""

    score: str = ""
    fit: str = ""


def write_report(
    out: Path,
    model: AnomalyDetector,
    source: ReportSource,
    stages: Stages,
    commands: Commands,
    *,
    json_: bool = False,
) -> str:
    """Score the pictures, and write the table, the page and the masks; return a summary, as JSON or
    in words."""
    threshold = model.threshold_
    scale = MapScale(model.outline_, model.rarest_, len(model.fitted_))
    found = _Findings(model, Gallery(scale))
    evaluation = _evaluation(model, source)
    title = f"scoring {plural(len(source.pictures), 'picture')}"
    with stages.stage(title, len(source.pictures)) as advance:
        for number, one in enumerate(model.detect(source.pictures)):
            score, evidence = source.known.get(number, (one.score, one.evidence))
            detection = replace(one, score=score, evidence=evidence)
            found.add(number, detection, source.pictures)
            if evaluation is not None:
                evaluation.add(score, one.anomaly_map)
            advance(1)
    rows = sorted(found.rows, key=lambda row: (-row.score, row.number))
    scores = np.array([row.score for row in rows])
    rates = alarm_rates(len(rows), threshold, source.expected, model.recall_)
    if source.normal is not None and are_of_another_kind(scores, source.normal):
        rates = f"{_OTHER_KIND} {rates}"
    anomalies = int((scores > threshold.value).sum())
    facts: dict[str, object] = {"folder": str(out), "pictures": len(rows), "anomalies": anomalies}
    measured = ""
    if evaluation is not None:
        results, measured = _measured(model, source, evaluation, stages)
        facts["evaluation"] = results
        write(out / "evaluation.json", (json.dumps(results, indent=1) + "\n").encode(), out)
    page_facts = PageFacts(
        threshold=threshold,
        normal=source.normal,
        learned=learned_from(model),
        rates=f"{rates} {measured}".strip(),
        folder=source.folder,
        score_command=commands.score,
        fit_command=commands.fit,
    )
    table, page, *_ = report_files(out)
    write(table, _csv_table(rows, threshold.value).encode(), out)
    write(page, found.gallery.page(rows, page_facts).encode(), out)
    found.write_masks(out)
    if json_:
        return json.dumps(facts)
    words = f"{printable(out)}: {count_above(anomalies, len(rows))}."
    if anomalies:
        words += f" {rates}"
    if measured:
        words += f" {measured}"
    if len(rows) == 1:
        return f"{words} Its score is {scores[0]:.2f}."
    return f"{words} The least normal is {printable(rows[0].name)} (score {scores[0]:.2f})."


@dataclass
class _Findings:
    """What a report keeps of the pictures, whose maps would not fit in memory."""

    model: AnomalyDetector
    gallery: Gallery
    rows: list[PageRow] = field(default_factory=list)
    masks: dict[str, bytes] = field(default_factory=dict)  # of the alarms, by names

    def add(self, number: int, one: Detection, pictures: PictureList) -> None:
        picture = pictures.read(number)
        self.rows.append(PageRow.of(one, number, self.model.outline_))
        self.gallery.add(
            number, one, picture, lambda: self.model.compared(picture, one.anomaly_map)
        )
        inside = one.anomaly_map > self.model.outline_
        if one.score > self.model.threshold_.value and bool(inside.any()):
            self.masks[one.name] = png(inside.to(torch.uint8) * 255)

    def write_masks(self, out: Path) -> None:
        """Write the masks of alarms, white inside outlines, and remove those of an earlier
        report."""
        files = {out / "masks" / name: mask for name, mask in _mask_names(self.masks).items()}
        for old in _old_masks(out):
            if old not in files:
                old.unlink()
        for file, mask in files.items():
            write(file, mask, out)


def _mask_names(masks: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the names of the files of masks: those of the pictures, ending in .png."""
    named: dict[str, bytes] = {}
    for name, mask in masks.items():
        # a path of a list may lead outside
        parts = [part for part in PurePath(printable(name)).parts if part not in ("/", "..")]
        short = PurePath(*parts).with_suffix(".png").as_posix()
        named[short if short not in named else f"{PurePath(*parts).as_posix()}.png"] = mask
    return named


def _evaluation(model: AnomalyDetector, source: ReportSource) -> Evaluation | None:
    if source.truth is None:
        return None
    truth = read_truth(source.pictures, source.truth, EvaluationSpec())
    return Evaluation(truth, model.outline_)


def _measured(
    model: AnomalyDetector, source: ReportSource, evaluation: Evaluation, stages: Stages
) -> tuple[dict[str, object], str]:
    """Return the measures of a detector and, if there is one, of its rival, as values and in
    words."""
    pictures = evaluation.pictures(model.threshold_)
    places = evaluation.places()
    results: dict[str, object] = {"pictures": pictures, "places": places}
    words = in_words(pictures, places)
    if source.rival is None:
        return results, words
    other = Evaluation(evaluation.truth, source.rival.outline_)
    title = f"scoring {plural(len(source.pictures), 'picture')} with the second detector"
    with stages.stage(title, len(source.pictures)) as advance:
        for one in source.rival.detect(source.pictures):
            other.add(one.score, one.anomaly_map)
            advance(1)
    second = {
        "pictures": other.pictures(source.rival.threshold_),
        "places": other.places(),
    }
    results["second detector"] = second
    words += f" The second detector: {in_words(second['pictures'], second['places'])}"
    if evaluation.regions:
        compared = compared_places(evaluation, other)
        results["compared by places"] = compared
        words += (
            f" Of {plural(int(str(compared['regions'])), 'region')}, only the first finds"
            f" {compared['found by the first only']}, only the second"
            f" {compared['found by the second only']} (p = {compared['p']:.2g})."
        )
    return results, words


def _csv_table(rows: Sequence[PageRow], threshold: float) -> str:
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["name", "score", "anomaly", "x", "y", "share_above", *rows[0].evidence])
    for row in rows:
        kinds = [f"{value:.3f}" for value in row.evidence.values()]
        place = [row.x, row.y, f"{row.share_above:.4f}"]
        lines.writerow([row.name, f"{row.score:.4f}", int(row.score > threshold), *place, *kinds])
    return file.getvalue()
