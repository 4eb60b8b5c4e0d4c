"""`whatwhere anomaly fit` and `whatwhere anomaly score`: how unlike normal pictures others are,
and where."""

import csv
import io
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer

from whatwhere.cli.command import Settings, app, command
from whatwhere.spec.tasks import AnomalySpec

SHOWN = 200  # pictures of the page, the least normal ones

group = typer.Typer(
    name="anomaly",
    help="Find pictures, and places in them, that are unlike normal ones.",
    no_args_is_help=True,
)
app.add_typer(group)


@command(AnomalySpec, flags="aligned false_alarms", app=group)
def fit(
    normal: str,
    *,
    out: Path,
    overwrite: bool = False,
    settings: Settings,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Learn what normal pictures are like, from normal pictures alone.

    normal  a folder of pictures of any sizes, a data set by name, or an .npy, .npz or IDX file
    out     the detector's file
    """
    from whatwhere.cli.outputs import Stages, claim
    from whatwhere.errors import printable
    from whatwhere.files import disk_errors
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import open_pictures

    spec = settings.override(AnomalySpec())
    claim([out], normal, overwrite=overwrite)
    parameters = dict(vars(spec))
    detector = AnomalyDetector(random_state=parameters.pop("seed"), **parameters)
    pictures, stages = open_pictures(normal), Stages(quiet)
    with stages.stage("reading and comparing normal pictures", len(pictures)) as advance:
        detector.fit(normal, progress=advance)
    with disk_errors(f"writing {out}", "make room, or choose another place with --out"):
        out.parent.mkdir(parents=True, exist_ok=True)
        detector.save(out)
    threshold, (low, high) = detector.threshold_, detector.threshold_.interval
    if json_:
        facts = {
            "threshold": threshold.value,
            "false_alarms": threshold.false_alarms,
            "interval": [low, high],
        }
        typer.echo(json.dumps({"detector": str(out), "pictures": len(pictures), **facts}))
        return
    fewest = math.ceil(1 / spec.false_alarms) - 1
    few = (
        f"; {100 * spec.false_alarms:.2g} % takes at least {fewest:,} pictures"
        if len(pictures) < fewest
        else ""
    )
    typer.echo(
        f"{printable(out)}: fitted to {len(pictures):,} pictures; scores above"
        f" {threshold.value:.2f} are anomalies, {100 * threshold.false_alarms:.2g} % of normal"
        f" pictures ({100 * low:.2g} to {100 * high:.2g} %){few}"
    )


@command(app=group)
def score(
    detector: Path,
    pictures: str,
    *,
    out: Path,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Score pictures by how unlike normal ones they are, and show where.

    The folder gets `index.html`, the pictures with maps, the least normal first, and `scores.csv`:
    name, score, 1 for an anomaly, and the evidence of each kind.

    detector  a file that `whatwhere anomaly fit` wrote
    pictures  a folder of pictures of any sizes, a data set by name, or an .npy, .npz or IDX file
    out       folder of the report
    """
    import numpy as np

    from whatwhere.cli.outputs import Stages, claim, write
    from whatwhere.errors import printable
    from whatwhere.pages.anomalies import write_page
    from whatwhere.tasks.anomaly import AnomalyDetector
    from whatwhere.tasks.anomaly.pictures import open_pictures

    model, stages = AnomalyDetector.load(detector), Stages(quiet)
    table, page = out / "scores.csv", out / "index.html"
    claim([table, page], detector, pictures, folder=out, overwrite=overwrite, recorded=True)
    source = open_pictures(pictures)
    with stages.stage(f"scoring {len(source):,} pictures", len(source)) as advance:
        rows = []
        for number, found in enumerate(model.detect(source)):
            rows.append((found.score, number, found.name, found.evidence))
            advance(1)
    rows.sort(key=lambda row: (-row[0], row[1]))
    scores, threshold = np.array([row[0] for row in rows]), model.threshold_
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["name", "score", "anomaly", *rows[0][3]])
    for value, _, name, evidence in rows:
        kinds = [f"{each:.3f}" for each in evidence.values()]
        lines.writerow([name, f"{value:.4f}", int(value > threshold.value), *kinds])
    write(table, file.getvalue().encode(), out)
    shown = [row[1] for row in rows[:SHOWN]]
    with stages.stage("drawing the page", len(shown)) as advance:
        drawn = drawings(model, source, shown, advance)
        content = write_page(drawn, scores, model.normal_scores_, threshold).encode()
        write(page, content, out)
    anomalies = int((scores > threshold.value).sum())
    if json_:
        typer.echo(json.dumps({"folder": str(out), "pictures": len(rows), "anomalies": anomalies}))
        return
    typer.echo(
        f"{printable(out)}: {anomalies:,} of {len(rows):,} pictures are anomalies; the least normal"
        f" is {printable(rows[0][2])} ({scores[0]:.2f})"
    )


def drawings(
    model: Any, source: Any, shown: list[int], advance: Callable[[int], None]
) -> Iterator[Any]:
    """What the page shows of these pictures; they are scored again, since the maps of all would
    not fit in memory."""
    from whatwhere.pages.anomalies import Drawing
    from whatwhere.tasks.anomaly.pictures import PictureList

    some = PictureList([source.names[n] for n in shown], lambda n: source.read(shown[n]))
    for n, found in enumerate(model.detect(some)):
        picture = some.read(n)
        yield Drawing(found, picture, model.compared(picture, found.anomaly_map))
        advance(1)
