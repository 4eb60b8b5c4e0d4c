"""`whatwhere anomaly fit`, `score` and `odd`: how unlike normal pictures others are, and where."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from whatwhere.cli.command import Settings, app, command
from whatwhere.cli.inputs import SHARD, open_shard
from whatwhere.spec.tasks import AnomalySpec

if TYPE_CHECKING:
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

    If some of the pictures may be odd, give their share: --contamination 0.1.

    normal  a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX file
    out     file for the detector

    $ whatwhere anomaly fit normal/ --out detector
    $ whatwhere anomaly fit normal/ --out detector --aligned
    """
    from whatwhere.cli.outputs import Stages, claim
    from whatwhere.errors import plural, printable
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
    fewest = math.ceil(1 / spec.false_alarms) - 1
    few = ""
    if count < fewest:
        few = f" For {100 * spec.false_alarms:.2g} %, give at least {fewest:,} normal pictures."
    left_out = len(detector.sample_.kept) - len(detector.fitted_)
    without = f", leaving out the {left_out:,} least normal" if left_out else ""
    typer.echo(
        f"{printable(out)}: learned from {plural(count, 'normal picture')}{without}. Scores above"
        f" {threshold.value:.2f} are anomalies. About {100 * threshold.false_alarms:.2g} % of"
        f" normal pictures score higher (95 % interval: {100 * low:.2g} to"
        f" {100 * high:.2g} %).{few}"
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

    detector  a file that `whatwhere anomaly fit` wrote
    pictures  a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX
              file
    out       folder for the report; with --shard, each part gets a folder in it

    $ whatwhere anomaly score detector new_pictures/ --out report
    """
    from whatwhere.cli.outputs import Stages, claim
    from whatwhere.data.parts import begin_part, end_part
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import open_pictures

    shard = open_shard(settings, quiet=quiet)
    out = shard.part_of(out)
    model = AnomalyDetector.load(detector)
    claim(report_files(out), detector, pictures, folder=out, overwrite=overwrite, recorded=True)
    source = open_pictures(pictures)
    if not shard.is_all:
        source = some_of(source, shard.rows_of_pictures(len(source)))
    stages = Stages(quiet)
    begin_part(out, shard)
    write_report(out, model, source, scored(model, source, stages), stages, json_=json_)
    end_part(out, shard)


@command(AnomalySpec, flags="aligned false_alarms contamination", app=group)
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

    $ whatwhere anomaly odd pictures/ --out odd
    $ whatwhere anomaly odd pictures/ --out odd --contamination 0.2
    """
    from whatwhere.cli.outputs import Stages, claim
    from whatwhere.tasks.anomaly.pictures import open_pictures

    spec = settings.override(AnomalySpec(contamination=UNSORTED))
    claim(report_files(out), pictures, folder=out, overwrite=overwrite, recorded=True)
    stages = Stages(quiet)
    model = fitted(spec, pictures, stages)
    source = open_pictures(pictures)
    # The detector learned from these pictures, too. So the score of a fitted picture is the one by
    # what was learned from the others.
    by_others = dict(zip(model.fitted_.tolist(), model.normal_scores_.tolist(), strict=True))
    rows = [
        replace(row, score=by_others.get(row.number, row.score))
        for row in scored(model, source, stages)
    ]
    write_report(out, model, source, rows, stages, json_=json_)


def fitted(spec: AnomalySpec, source: str, stages: "Stages") -> "AnomalyDetector":
    """A detector with these settings, fitted to the pictures of a source."""
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import open_pictures

    parameters = dict(vars(spec))
    detector = AnomalyDetector(random_state=parameters.pop("seed"), **parameters)
    count = len(open_pictures(source))
    with stages.stage("reading and comparing pictures", count) as advance:
        return detector.fit(source, progress=advance)


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
) -> None:
    """Write the table and the page, the least normal pictures first, and print a summary."""
    import numpy as np

    from whatwhere.cli.outputs import write
    from whatwhere.errors import plural, printable
    from whatwhere.pages.anomalies import write_page

    rows = sorted(rows, key=lambda row: (-row.score, row.number))
    threshold = model.threshold_
    table, page = report_files(out)
    write(table, csv_table(rows, threshold.value).encode(), out)
    scores = np.array([row.score for row in rows])
    shown = rows[:SHOWN]
    with stages.stage("drawing the page", len(shown)) as advance:
        drawn = drawings(model, source, shown, advance)
        content = write_page(drawn, scores, model.normal_scores_, threshold).encode()
        write(page, content, out)
    anomalies = int((scores > threshold.value).sum())
    if json_:
        typer.echo(json.dumps({"folder": str(out), "pictures": len(rows), "anomalies": anomalies}))
        return
    found = "is an anomaly" if anomalies == 1 else "are anomalies"
    typer.echo(
        f"{printable(out)}: {anomalies:,} of {plural(len(rows), 'picture')} {found}. The least"
        f" normal is {printable(rows[0].name)} (score {scores[0]:.2f})."
    )


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

    some = some_of(source, [row.number for row in shown])
    for n, found in enumerate(model.detect(some)):
        picture = some.read(n)
        patches = model.compared(picture, found.anomaly_map)
        yield Drawing(replace(found, score=shown[n].score), picture, patches)
        advance(1)


def some_of(source: "PictureList", rows: Sequence[int]) -> "PictureList":
    """These pictures of a list of pictures."""
    from whatwhere.tasks.anomaly.pictures import PictureList

    return PictureList([source.names[row] for row in rows], lambda n: source.read(rows[n]))
