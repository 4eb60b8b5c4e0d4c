"""`whatwhere anomaly fit`, `score` and `odd`: how unlike normal pictures others are, and where."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.command import Settings, app, command
from whatwhere.cli.inputs import SHARD, open_shard
from whatwhere.spec.checks import Within
from whatwhere.spec.tasks import AnomalySpec

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.cli.outputs import Stages
    from whatwhere.pages.anomalies import Drawing
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import PictureList

SHOWN = 200  # pictures of the page, the least normal ones
UNSORTED = 0.1  # share of an unsorted folder that is taken for odd, unless it is given

group = typer.Typer(
    name="anomaly",
    help="Find defects and odd pictures, and show where they are.",
    no_args_is_help=True,
)
app.add_typer(group)


@dataclass(frozen=True)
class Row:
    """The score of a picture and its evidence of each kind, for the table."""

    score: float
    number: int
    name: str
    evidence: dict[str, float]


@command(AnomalySpec, flags="aligned false_alarms contamination", app=group)
def fit(
    normal: str,
    *,
    out: Path,
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Learn what normal pictures look like, from normal pictures alone.

    If some of the pictures may be odd, give their share: --contamination 0.1. For objects in a
    fixed position, in pictures of one size, give --aligned.

    normal  a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX file
    out     file for the detector

    $ whatwhere anomaly fit normal/ --out detector
    $ whatwhere anomaly fit normal/ --out detector --aligned
    """
    from whatwhere.cli.outputs import Stages, claim
    from whatwhere.errors import printable
    from whatwhere.files import disk_errors

    spec = settings.override(AnomalySpec())
    claim([out], normal, overwrite=overwrite)
    detector = fitted(spec, normal, Stages(quiet))
    with disk_errors(f"writing {out}", "free some disk space, or choose another path with --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        detector.save(out)
    threshold = detector.threshold_
    low, high = threshold.interval
    count = detector.sample_.seen
    if json_:
        facts = {
            "threshold": threshold.value,
            "false_alarms": threshold.false_alarms,
            "interval": [low, high],
        }
        typer.echo(json.dumps({"detector": str(out), "pictures": count, **facts}))
        return
    typer.echo(
        f"{printable(out)}: {learned_from(detector)}. Scores above {threshold.value:.2f} are"
        f" anomalies. About {100 * threshold.false_alarms:.2g} % of normal pictures score higher"
        f" (95 % interval: {100 * low:.2g} to {100 * high:.2g} %).{too_few(detector)}"
    )


@command(SHARD, app=group, flags="shard")
def score(
    detector: Path,
    pictures: str,
    *,
    out: Path,
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Find anomalies with a detector, and show where they are.

    The command writes two files to the folder. `index.html` shows the pictures, the least normal
    first, with maps of their anomalies. `scores.csv` has a row for each picture: its name, its
    score, 1 for an anomaly, and the evidence of each kind.

    The scores of pictures that the detector learned from are too low. Use `odd` for those.

    detector  a file that `whatwhere anomaly fit` wrote
    pictures  a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX
              file
    out       folder for the report. With --shard, each part writes to a sub-folder
    overwrite  also replace files that whatwhere did not write, or that have changed since. The
               command replaces results of whatwhere in this folder without asking

    $ whatwhere anomaly score detector new_pictures/ --out report
    """
    from whatwhere.cli.outputs import Stages, claim

    shard = open_shard(settings, out, quiet=quiet)
    out = shard.part_of(out)
    check_outside(out, pictures)
    # imported after the check, so that its error is reported sooner
    from whatwhere.data.parts import begin_part, end_part
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import open_pictures

    model = AnomalyDetector.load(detector)
    claim(report_files(out), detector, pictures, folder=out, overwrite=overwrite, recorded=True)
    source = open_pictures(pictures, shard)
    stages = Stages(quiet)
    begin_part(out, shard)
    fitted_to: list[int] = []
    rows = scored(model, watched(source, model, fitted_to), stages)
    words = write_report(out, model, source, rows, stages, json_=json_)
    end_part(out, shard)
    if fitted_to and not json_:
        words += (
            f" The detector learned from {len(fitted_to):,} of these pictures, so their scores are"
            " too low. For the pictures that it learned from, use `whatwhere anomaly odd`."
        )
    typer.echo(words)


@dataclass(frozen=True, kw_only=True)
class UnsortedSpec(AnomalySpec):
    """Settings of `odd`.

    aligned       compare each place with the same place of other pictures, for objects in a fixed
                  position in pictures of one size. By default, the detector compares each place
                  with all places, for surfaces
    false_alarms  share of normal pictures that may count as anomalies; sets the threshold
    contamination  share of the pictures that you expect to be odd
    memory        MB that learning may use. It keeps a random sample of the pictures if they need
                  more
    seed          seed of the random sample
    """

    contamination: Annotated[float, Within(0, 0.5)] = UNSORTED


@command(UnsortedSpec, flags="aligned false_alarms contamination", app=group)
def odd(
    pictures: str,
    *,
    out: Path,
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Find the odd pictures of an unsorted folder, and show where they are odd.

    You do not need to know which pictures are normal. The command assumes that a tenth of the
    pictures is odd (--contamination changes that), leaves those out, and learns from the rest. It
    compares each picture with what it learned from the others. It writes the same files as `score`.

    pictures  a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX
              file
    out       folder for the report
    overwrite  also replace files that whatwhere did not write, or that have changed since. The
               command replaces results of whatwhere in this folder without asking

    $ whatwhere anomaly odd pictures/ --out odd
    $ whatwhere anomaly odd pictures/ --out odd --contamination 0.2
    """
    from whatwhere.cli.outputs import Stages, claim

    spec = settings.of(UnsortedSpec)
    check_outside(out, pictures)
    # imported after the check, so that its error is reported sooner
    from whatwhere.tasks.anomaly.pictures import open_pictures, some_of

    claim(report_files(out), pictures, folder=out, overwrite=overwrite, recorded=True)
    stages = Stages(quiet)
    model = fitted(spec, pictures, stages)
    source = open_pictures(pictures)
    # The detector learned from most of these pictures. They have been compared with the others
    # already, so only those that were left out are scored.
    by_others = zip(
        model.fitted_.tolist(), model.normal_scores_.tolist(), model.normal_evidence_, strict=True
    )
    rows = [
        Row(score, number, source.names[number], evidence) for number, score, evidence in by_others
    ]
    compared = {row.number for row in rows}
    left_out = [number for number in range(len(source)) if number not in compared]
    if left_out:
        scores = scored(model, some_of(source, left_out), stages)
        rows += [replace(row, number=number) for row, number in zip(scores, left_out, strict=True)]
    words = write_report(out, model, source, rows, stages, json_=json_)
    typer.echo(words if json_ else words + too_few(model))


def fitted(spec: AnomalySpec, source: str, stages: "Stages") -> "AnomalyDetector":
    """A detector with these settings, fitted to the pictures of a source."""
    from whatwhere.tasks.anomaly import AnomalyDetector

    parameters = dict(vars(spec))
    detector = AnomalyDetector(random_state=parameters.pop("seed"), **parameters)
    return detector.fit(source, stage=stages.stage)


def learned_from(model: "AnomalyDetector") -> str:
    """Which pictures a detector learned from, in words that can follow "The detector"."""
    from whatwhere.errors import plural

    seen = model.sample_.seen
    kept = len(model.sample_.kept)
    fitted = len(model.fitted_)
    if fitted == seen:
        return f"learned from {plural(seen, 'normal picture')}"
    sampled = ""
    if kept < seen:
        sampled = f"; it kept a random {kept:,} (setting `memory`)"
    without = ""
    if fitted < kept:
        without = f" and left out the {kept - fitted:,} least normal"
    return f"learned from {fitted:,} of {plural(seen, 'picture')}{sampled}{without}"


def too_few(model: "AnomalyDetector") -> str:
    """A sentence for detectors that learned from too few pictures for the wanted false alarms."""
    wanted = model.false_alarms
    fewest = math.ceil(1 / wanted) - 1
    if len(model.fitted_) >= fewest:
        return ""
    needed = fewest
    while needed - math.floor(model.contamination * needed) < fewest:
        needed += 1
    return (
        f" That is too few pictures for a false-alarm rate of {100 * wanted:.2g} %. To reach"
        f" {100 * wanted:.2g} %, give at least {needed:,} pictures."
    )


def check_outside(out: Path, pictures: str) -> None:
    """Raise an error if the folder for the report is the folder of the pictures, or inside it."""
    from whatwhere.errors import SpecError, printable

    folder = Path(pictures).resolve()
    report = out.resolve()
    if not folder.is_dir() or not report.is_relative_to(folder):
        return
    place = (
        "is the folder of the pictures" if report == folder else "is inside the pictures' folder"
    )
    raise SpecError(
        f"--out {printable(out)} {place}. The next command would read the report as pictures."
        " Choose a folder outside of it."
    )


def watched(source: "PictureList", model: "AnomalyDetector", fitted_to: list[int]) -> "PictureList":
    """The same pictures; the numbers of those that the detector was fitted to are added to
    `fitted_to` as they are read."""
    from whatwhere.tasks.anomaly.pictures import PictureList, fingerprint, with_channels

    known = model.fingerprints()

    def read(number: int) -> "Tensor":
        picture = source.read(number)
        if fingerprint(with_channels(picture, model.sample_.channels)) in known:
            fitted_to.append(number)
        return picture

    return PictureList(source.names, read)


def scored(model: "AnomalyDetector", source: "PictureList", stages: "Stages") -> list[Row]:
    """The scores of pictures, in their order; their maps would not fit in memory."""
    rows = []
    with stages.stage(f"scoring {len(source):,} pictures", len(source)) as advance:
        for number, found in enumerate(model.detect(source)):
            rows.append(Row(found.score, number, found.name, found.evidence))
            advance(1)
    return rows


def report_files(out: Path) -> list[Path]:
    """The table and the page."""
    return [out / "scores.csv", out / "index.html"]


def write_report(
    out: Path,
    model: "AnomalyDetector",
    source: "PictureList",
    rows: Sequence[Row],
    stages: "Stages",
    *,
    json_: bool,
) -> str:
    """Write the table and the page, the least normal pictures first; return a summary, as JSON or
    in words."""
    import numpy as np

    from whatwhere.cli.outputs import write
    from whatwhere.errors import printable
    from whatwhere.pages.anomalies import count_above, false_alarms_among, write_page

    rows = sorted(rows, key=lambda row: (-row.score, row.number))
    threshold = model.threshold_
    table, page = report_files(out)
    write(table, csv_table(rows, threshold.value).encode(), out)
    scores = np.array([row.score for row in rows])
    shown = rows[:SHOWN]
    with stages.stage("drawing the page", len(shown)) as advance:
        drawn = drawings(model, source, shown, advance)
        learned = learned_from(model)
        content = write_page(drawn, scores, model.normal_scores_, threshold, learned)
        write(page, content.encode(), out)
    anomalies = int((scores > threshold.value).sum())
    if json_:
        return json.dumps({"folder": str(out), "pictures": len(rows), "anomalies": anomalies})
    found = f"{printable(out)}: {count_above(anomalies, len(rows))}"
    alarms = false_alarms_among(anomalies, len(rows), threshold)
    if alarms:
        found += f"; {alarms[0].lower()}{alarms[1:]}"
    else:
        found += "."
    return f"{found} The least normal is {printable(rows[0].name)} (score {scores[0]:.2f})."


def csv_table(rows: Sequence[Row], threshold: float) -> str:
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["name", "score", "anomaly", *rows[0].evidence])
    for row in rows:
        kinds = [f"{value:.3f}" for value in row.evidence.values()]
        lines.writerow([row.name, f"{row.score:.4f}", int(row.score > threshold), *kinds])
    return file.getvalue()


def drawings(
    model: "AnomalyDetector",
    source: "PictureList",
    shown: Sequence[Row],
    advance: Callable[[int], None],
) -> Iterator["Drawing"]:
    """The views of these pictures on the page; they are scored again, since the maps of all
    pictures would not fit in memory."""
    from whatwhere.pages.anomalies import Drawing
    from whatwhere.tasks.anomaly.pictures import some_of

    some = some_of(source, [row.number for row in shown])
    for n, found in enumerate(model.detect(some)):
        picture = some.read(n)
        patches = model.compared(picture, found.anomaly_map)
        row = shown[n]
        yield Drawing(replace(found, score=row.score, evidence=row.evidence), picture, patches)
        advance(1)
