"""Every report, small: of a training, of anomalies, of classes and of a recording."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from surfaces import scratched, surface
from whatwhere.anomaly import Detection, Patch, Threshold
from whatwhere.anomaly.page import Drawing, write_page
from whatwhere.labelling.classes_page import classes_page
from whatwhere.signals.recording import Signals


def training_report(folder: Path) -> Path:
    """The page of a training run."""
    run = ww.read_run(tiny.make(folder / "run"))
    images = tiny.np_images(tiny.bars(12)[0])
    drawing = ww.figures.RunFigures(run, images, engine="reference")
    file = folder / "training.html"
    names = ("reconstructions", "filters", "planes-2", "samples-2", "cost-1")
    page = drawing.report({name: drawing.draw(name) for name in names})
    file.write_text(page, encoding="utf-8")
    return file


def anomalies_report(folder: Path) -> Path:
    """The page of a detector: some pictures are normal, others have a scratch."""
    some_good = surface(2, seed=5)
    some_bad, _ = scratched(surface(2, seed=6))
    kinds = {"normal": surface(12), "new": torch.cat([some_good, some_bad])}
    for name, pictures in kinds.items():
        (folder / name).mkdir()
        for number, picture in enumerate(pictures[:, 0]):
            shades = (255 * picture).round().to(torch.uint8).numpy()
            Image.fromarray(shades).save(folder / name / f"{number}.png")
    detector = folder / "detector"
    tiny.whatwhere("anomaly", "fit", folder / "normal", "--out", detector, "--quiet")
    tiny.whatwhere("anomaly", "score", folder / "new", detector, "--out", folder / "anomalies")
    return folder / "anomalies" / "index.html"


def shapes_report(folder: Path) -> Path:
    """The page of a narrow and a wide picture, which are both anomalies."""
    drawings = []
    for height, width in ((250, 100), (100, 250)):
        picture = torch.rand(1, height, width, generator=torch.Generator().manual_seed(0))
        place = Patch(20, 30, 45, 45)
        heat = torch.zeros(height, width)
        found = Detection(f"{width} x {height}", 2.0, {"spots": 2.0}, heat, place)
        drawings.append(Drawing(found, picture, [place.cut(picture)] * 5))
    threshold = Threshold(1.0, 0.05, (0.0, 0.1))
    page = write_page(
        drawings, np.full(2, 2.0), None, threshold, 2.7, "learned from 9 pictures", "rates"
    )
    file = folder / "shapes.html"
    file.write_text(page, encoding="utf-8")
    return file


def classes_report(folder: Path) -> Path:
    """The page of classes without a server."""
    images, truth = tiny.bars(40)
    session = ww.Labelling(images.reshape(len(images), -1))
    session.label({row: f"kind {truth[row]}" for row in range(10)})
    file = folder / "classes.html"
    file.write_text(classes_page(session, ww.data.load(images)), encoding="utf-8")
    return file


def recording_report(folder: Path) -> Path:
    """The page of a recording with one known waveform."""
    t = np.arange(20) - 8
    waveform = np.exp(-(t**2) / 6)
    x = 0.03 * np.random.default_rng(0).standard_normal(1200)
    for at in range(100, 1100, 80):
        x[at - 8 : at + 12] += 2 * waveform
    signals = Signals(x.astype(np.float32)[None, None, None], None, "simulated", rate=1000.0)
    filters = torch.from_numpy(waveform / np.linalg.norm(waveform)).float()[None, None, None]
    model = ww.DeconvNet(ww.ModelSpec.signals(1, 20)).with_filters(1, filters)
    recipe = ww.override(ww.read_recipe("signals"), {"inference": {"lam": 8.0, "steps": 300}})
    run = ww.TrainedRun("a run", recipe, model)
    drawing = ww.signals.RecordingFigures(run, signals, engine="reference")
    file = folder / "recording.html"
    page = drawing.report({name: drawing.draw(name) for name in drawing.names})
    file.write_text(page, encoding="utf-8")
    return file


REPORTS: dict[str, Callable[[Path], Path]] = {
    "training": training_report,
    "anomalies": anomalies_report,
    "classes": classes_report,
    "recording": recording_report,
}
"""Each makes its page in an empty folder."""
