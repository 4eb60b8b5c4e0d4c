"""Errors on the labelling page with 10 to 60 labels, and what the page says of them.

    python -m benchmarks.labels.page_errors pack PICTURES FOLDER …
    python -m benchmarks.labels.page_errors measure PICTURES [--out FILE.jsonl] [--draws 3]
    python -m benchmarks.labels.page_errors table [FILE.jsonl]

`pack` writes NAME.npz of each FOLDER (a folder of pictures for each class): at most MOST pictures,
scaled as the page does, and their classes. `measure` describes them as the page does: by *plain*
views, by *learned* features, and by *both*. A simulated person labels pictures at random, or those
that are suggested, always with the true class. `page` is what the page does: both, until held-out
labels say otherwise. Each line has the error on all pictures without a label, the estimate and its
range, and the result of a blind check. Sets run side by side; a set that the file has is skipped.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from benchmarks.machine import machine
from whatwhere.classification.settings import Distortions
from whatwhere.labelling.blind_check import BlindCheck
from whatwhere.labelling.choice import Candidate, candidates, elect
from whatwhere.labelling.descriptions import Behind, PlainSettings, plain_description
from whatwhere.spec.execution import Execution

LABELS = (10, 20, 30, 40, 60)
SIDE = 48  # pixels, to which larger pictures are scaled: more cost time and change little
MOST = 300  # pictures of a set
WAYS = ("plain", "learned", "both", "page")
RESULTS = Path(__file__).parent / "results" / "page_errors.jsonl"


class Line(NamedTuple):
    """What one session has at some number of labels.

    name      the set
    way       plain, learned, both or page
    kind      random or suggested labels
    error     share of wrong classes among the pictures without a label
    estimate  what the page estimates; -1 if it does not
    low, high  the range of the estimate
    measured  the error that a blind check of 30 pictures measures, and its interval
    """

    name: str
    way: str
    kind: str
    draw: int
    labels: int
    error: float
    estimate: float
    low: float
    high: float
    measured: float
    check_low: float
    check_high: float


def pack(folder: Path, out: Path) -> None:
    """Write the pictures of a folder and their classes as arrays."""
    images = ww.data.load(folder)
    chosen = np.sort(np.random.default_rng(0).permutation(len(images))[:MOST])
    pixels = images.subset(chosen)[:]
    if max(pixels.shape[2:]) > SIDE:
        pixels = F.interpolate(pixels, (SIDE, SIDE), mode="area")
    assert images.labels is not None
    values = (255 * pixels).round().clamp(0, 255).byte().numpy()
    np.savez_compressed(out / f"{folder.name}.npz", x=values, y=np.asarray(images.labels)[chosen])


def described(pixels: np.ndarray, device: str) -> list[Candidate]:
    """Describe pictures as the page does: plain views and learned features side by side, learned
    features, plain views."""
    images = ww.data.load(pixels)
    plain = plain_description(images, PlainSettings().views)
    behind = Behind(images, None, Distortions(), Execution(device=device), None)
    return candidates(Candidate.of(plain), behind.learned(lambda title, total: _silent()))


class _silent:
    """A stage that shows nothing."""

    def __enter__(self):
        return lambda pieces: None

    def __exit__(self, *error: object) -> None:
        return None


def session_lines(
    ways: dict[str, list[Candidate]], name: str, truth: np.ndarray, kind: str, draw: int
) -> Iterator[Line]:
    """Label as a person would, once for each way; yield what is true and what is estimated."""
    order = np.random.default_rng(draw).permutation(len(truth)).tolist()
    for way, described_by in ways.items():
        among = [Candidate.of(one.description) for one in described_by]  # no weights of a session
        session = ww.Labelling(among[0].description.rows)
        session.use(*among[0])
        for count in range(1, max(LABELS) + 1):
            if kind == "suggested":
                (row,) = session.suggest(1)
                session.label({row: truth[row]})
            elif count in LABELS:
                session.label({row: truth[row] for row in order[:count]})
            else:
                continue
            if len(among) > 1 and count >= 10:
                session.use(*elect(among, session.said))
                session.update()
            if count in LABELS:
                yield _line(session, (name, way, kind, draw), truth)


def _line(session: ww.Labelling, given: tuple[str, str, str, int], truth: np.ndarray) -> Line:
    found = session.predict()
    others = ~found.said
    error = float(np.mean(found.classes[others] != truth[others]))
    estimate = session.estimate()
    numbers = (-1.0, 0.0, 1.0)
    if estimate is not None:
        numbers = (estimate.share, estimate.low, estimate.high)
    check = BlindCheck.draw(session.spread, session.said, given[3])
    check.answers = {row: truth[row] for row in check.rows}
    measured = check.result()
    checked = (-1.0, 0.0, 1.0)
    if measured is not None:
        checked = (measured.wrong / measured.pictures, *measured.interval)
    rounded = [round(float(value), 4) for value in (error, *numbers, *checked)]
    return Line(*given, len(session.labelled), *rounded)


def measure(file: Path, draws: int, device: str) -> list[Line]:
    """Measure a set."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)
    start = time.monotonic()
    with np.load(file) as kept:
        pixels, truth = kept["x"], kept["y"].astype(str)
    joined, learned, plain = described(pixels, device)
    print(f"{file.stem}: described after {time.monotonic() - start:.0f} s", flush=True)
    ways = dict(zip(WAYS, ([plain], [learned], [joined], [joined, learned, plain]), strict=True))
    return [
        line
        for kind in ("random", "suggested")
        for draw in range(draws)
        for line in session_lines(ways, file.stem, truth, kind, draw)
    ]


def read(file: Path) -> list[Line]:
    """Return the lines of a file of results."""
    rows = [json.loads(text) for text in file.read_text(encoding="utf-8").splitlines()]
    return [Line(*row) for row in rows if isinstance(row, list)]


def table(lines: list[Line]) -> str:
    """Write mean errors in per cent by set, and how often ranges hold the error."""
    words = ["| set | labels | " + " | ".join(f"{way} {LABELS}" for way in WAYS) + " |"]
    sets = sorted({line.name for line in lines})
    for name in [*sets, ""]:
        for kind in ("random", "suggested"):
            some = [line for line in lines if line.kind == kind and line.name in (name or sets)]
            if not name:
                some = [line for line in lines if line.kind == kind]
            cells = []
            for way in WAYS:
                means = [
                    np.mean([one.error for one in some if (one.way, one.labels) == (way, count)])
                    for count in LABELS
                ]
                cells.append(" / ".join(f"{100 * mean:.1f}" for mean in means))
            words.append(f"| {name or '**mean**'} | {kind} | " + " | ".join(cells) + " |")
    for kind in ("random", "suggested"):
        some = [
            one for one in lines if one.kind == kind and one.way == "page" and one.estimate >= 0
        ]
        held = np.mean([one.low <= one.error <= one.high for one in some])
        gap = np.mean([abs(one.estimate - one.error) for one in some])
        width = np.mean([one.high - one.low for one in some])
        check = np.mean([one.check_low <= one.error <= one.check_high for one in some])
        words.append(
            f"{kind}: {held:.0%} of {len(some)} ranges hold the error (mean width"
            f" {width:.2f}, mean gap {gap:.3f}); {check:.0%} of the intervals of blind checks do"
        )
    return "\n".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("pack", "measure", "table"))
    parser.add_argument("pictures", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("folders", type=Path, nargs="*")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.what == "table":
        print(table(read(given.pictures)))
        return
    if given.what == "pack":
        given.pictures.mkdir(parents=True, exist_ok=True)
        for folder in given.folders:
            pack(folder, given.pictures)
        return
    done = {line.name for line in read(given.out)} if given.out.exists() else set()
    files = [file for file in sorted(given.pictures.glob("*.npz")) if file.stem not in done]
    with (
        given.out.open("a", encoding="utf-8") as out,
        ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool,
    ):
        out.write(json.dumps({"machine": machine(), "fields": Line._fields}) + "\n")
        running = [pool.submit(measure, file, given.draws, given.device) for file in files]
        for one in as_completed(running):
            out.writelines(json.dumps(line) + "\n" for line in one.result())
            out.flush()


if __name__ == "__main__":
    main()
