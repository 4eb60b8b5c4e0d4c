"""Pictures of every page, at two widths, in both schemes.

    python benchmarks/page_pictures.py make WORK DATA     makes the pages in the folder WORK
    python benchmarks/page_pictures.py take WORK SHOTS    takes their pictures into the folder SHOTS
    python benchmarks/page_pictures.py join BEFORE AFTER OUT    puts pictures of two trees together

WORK of another version of the project: run this file there, with its package on PYTHONPATH. All is
made by commands. DATA is a folder with blood-cells.zip (BCCD data set) and magnetic-tiles.zip
(Huang et al.); the recording is simulated.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import sync_playwright

SIZES = ((1280, 800), (390, 844))
SCHEMES = ("light", "dark")
CELLS = 60  # pictures of blood cells
LABELS = 12
NORMAL = 120  # magnetic tiles
NEW = 25
ROW = 400  # pixels of the height of a row
GAP = 8
WORDS = 18  # pixels above each row


def whatwhere(*arguments: object) -> None:
    """Run a command. Where a version lacks it, its page is missing."""
    command = [sys.executable, "-m", "whatwhere", *map(str, arguments)]
    subprocess.run(command, check=False)


def unpack_cells(data: Path, folder: Path) -> None:
    """Blood cells in one folder, and a table with labels of a few."""
    folder.mkdir()
    with zipfile.ZipFile(data / "blood-cells.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        kinds = sorted({name.partition("/")[0] for name in names})
        for kind in kinds:
            own = [name for name in names if name.startswith(f"{kind}/")]
            for name in own[: CELLS // len(kinds)]:
                (folder / name.replace("/", "-")).write_bytes(archive.read(name))
    with (folder.parent / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["file", "class"])
        for kind in kinds:
            own = sorted(folder.glob(f"{kind}-*.jpg"))
            for path in own[:: len(own) // (LABELS // len(kinds))][: LABELS // len(kinds)]:
                table.writerow([path.name, kind])


def unpack_tiles(data: Path, work: Path) -> None:
    """Normal tiles to learn from, and new ones, some with a defect."""
    with zipfile.ZipFile(data / "magnetic-tiles.zip") as archive:
        names = sorted(name for name in archive.namelist() if name.endswith(".jpg"))
        normal = [name for name in names if is_normal(name)]
        defects = [name for name in names if not is_normal(name) and "mask" not in name]
        tiles = {"normal": normal[:NORMAL], "new": [*normal[-20:], *defects[:: len(defects) // 5]]}
        for kind, chosen in tiles.items():
            (work / kind).mkdir()
            for name in chosen[: NORMAL if kind == "normal" else NEW]:
                (work / kind / name.replace("/", "-")).write_bytes(archive.read(name))


def is_normal(name: str) -> bool:
    return "normal" in name.lower() or "free" in name.lower()


def write_recording(file: Path) -> None:
    """Two waveforms in noise, and a drift."""
    generator = np.random.default_rng(0)
    t = np.arange(-30, 50)
    shapes = (np.exp(-(t**2) / 40), 0.7 * np.exp(-np.abs(t) / 8) * np.cos(t / 4))
    x = 0.05 * generator.standard_normal(20_000) + 0.3 * np.sin(np.arange(20_000) / 3000)
    for at in np.cumsum(generator.integers(120, 260, 95)):
        shape = shapes[generator.integers(2)]
        x[at - 30 : at + 50] += generator.uniform(0.7, 1.3) * shape
    np.savetxt(file, x, fmt="%.5f")


def make(work: Path, data: Path) -> None:
    work.mkdir(parents=True)
    cells = work / "some"
    unpack_cells(data, cells)
    run = work / "run"
    whatwhere("train", cells, "--out", run, "--limit", 60, "--image-count", 600, "--quiet")
    whatwhere("figures", run, cells)
    whatwhere("explore", run, cells, "--out", work / "explorer-folder.html")
    whatwhere("explore", "mnist", "--out", work / "explorer-mnist.html")
    labels = work / "labels.csv"
    whatwhere("classify", run, cells, "--labels", labels, "--out", work / "classes")
    unpack_tiles(data, work)
    whatwhere("anomaly", "fit", work / "normal", "--out", work / "detector")
    whatwhere("anomaly", "score", work / "detector", work / "new", "--out", work / "anomalies")
    write_recording(work / "recording.csv")
    whatwhere(
        "train",
        work / "recording.csv",
        "--out",
        work / "waveforms",
        "--recipe",
        "signals",
        "--quiet",
    )
    whatwhere("figures", work / "waveforms", work / "recording.csv")


def reports(work: Path) -> dict[str, Path]:
    """The pages that are files."""
    return {
        "explorer-mnist": work / "explorer-mnist.html",
        "explorer-folder": work / "explorer-folder.html",
        "report": work / "run" / "figures" / "report.html",
        "classes": work / "classes" / "index.html",
        "anomalies": work / "anomalies" / "index.html",
        "recordings": work / "waveforms" / "figures" / "report.html",
    }


@contextmanager
def labelling(work: Path, labels: Path) -> Iterator[str]:
    """The address of the labelling page."""
    command = [sys.executable, "-m", "whatwhere", "label", work / "some", work / "run"]
    process = subprocess.Popen(
        [*map(str, command), "--out", str(labels)],
        stdout=subprocess.PIPE,
        text=True,
        env={"BROWSER": "true", "PATH": "/usr/bin", **environment()},
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


def environment() -> dict[str, str]:
    import os

    return {name: value for name, value in os.environ.items() if name.startswith("PYTHON")}


def take(work: Path, shots: Path) -> None:
    shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as api:
        browser = api.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for name, page in reports(work).items():
            if page.exists():
                shoot(browser, page.as_uri(), shots, name)
        for name, labels in (("label-empty", "empty.csv"), ("label-some", "some.csv")):
            if name == "label-some":
                (work / labels).write_bytes((work / "labels.csv").read_bytes())
            with labelling(work, work / labels) as url:
                shoot(browser, url, shots, name)
        browser.close()


def shoot(browser: Any, url: str, shots: Path, name: str) -> None:
    for width, height in SIZES:
        for scheme in SCHEMES:
            context = browser.new_context(
                viewport={"width": width, "height": height}, color_scheme=scheme
            )
            tab = context.new_page()
            tab.set_default_timeout(300_000)
            tab.goto(url)
            tab.locator("body[aria-busy=false], body:not(:has(script))").wait_for()
            tab.wait_for_load_state("networkidle")  # small pictures have arrived
            tab.wait_for_timeout(1000)
            tab.screenshot(path=shots / f"{name}-{width}-{scheme}.png")
            context.close()


def join(before: Path, after: Path, out: Path) -> None:
    """A picture for each page: above before, below after, all sizes and schemes in a row."""
    ending = f"-{SIZES[0][0]}-{SCHEMES[0]}.png"
    for first in sorted(after.glob(f"*{ending}")):
        name = first.name.removesuffix(ending)
        rows = [row_of(before, name), row_of(after, name)]
        height = WORDS + ROW + GAP
        joined = Image.new("RGB", (rows[0].width, 2 * height - GAP), "white")
        draw = ImageDraw.Draw(joined)
        for number, (words, row) in enumerate(zip(("before", "after"), rows, strict=True)):
            draw.text((2, number * height + 2), words, "black")
            joined.paste(row, (0, number * height + WORDS))
        content = io.BytesIO()
        joined.save(content, "WEBP", quality=80, method=6)
        (out / f"{name}.webp").write_bytes(content.getvalue())


def row_of(shots: Path, name: str) -> Image.Image:
    """The pictures of a page side by side; empty where there was no page."""
    widths = [round(width * ROW / height) for width, height in SIZES]
    row = Image.new("RGB", (len(SCHEMES) * (sum(widths) + GAP * len(widths)) - GAP, ROW), "white")
    left = 0
    for scheme in SCHEMES:
        for (width, _), small in zip(SIZES, widths, strict=True):
            file = shots / f"{name}-{width}-{scheme}.png"
            if file.exists():
                shot = Image.open(file).convert("RGB")
                row.paste(shot.resize((small, ROW), Image.Resampling.LANCZOS), (left, 0))
            left += small + GAP
    return row


def main() -> None:
    steps = {"make": make, "take": take, "join": join}
    step, *folders = sys.argv[1:]
    steps[step](*(Path(folder).resolve() for folder in folders))


if __name__ == "__main__":
    main()
