"""Every report, small: of a training, of anomalies, of classes and of a recording."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from surfaces import scratched, surface
from whatwhere.anomaly import Detection, Patch, Threshold
from whatwhere.anomaly.page import Gallery, MapScale, PageFacts, PageRow
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
    return gallery_page(folder / "shapes.html", [(250, 100), (100, 250)], [2.0, 1.5], None)


def gallery_page(
    file: Path,
    sizes: Sequence[tuple[int, int]],
    scores: Sequence[float],
    normal: np.ndarray | None,
) -> Path:
    """The page of random pictures of these scores, the largest first; the last size is that of all
    others, which are drawn once."""
    gallery = Gallery(MapScale(2.7, 4.0, 9))
    rows = []
    place = Patch(5, 5, 12, 12)
    generator = torch.Generator().manual_seed(0)
    for number, score in enumerate(scores):
        height, width = sizes[min(number, len(sizes) - 1)]
        heat = torch.zeros(height, width)
        heat[4:12, 4:12] = 3.0
        found = Detection(f"{number:05d}.png", score, {"spots": score}, heat, place)
        rows.append(PageRow.of(found, number, 2.7))
        if number < max(len(sizes), 30):
            picture = torch.rand(1, height, width, generator=generator)
            gallery.add(number, found, picture, lambda p=picture: [place.cut(p)] * 5)
        else:
            gallery.small[number] = gallery.small[number - 1]
    threshold = Threshold(1.0, 0.05, (0.0, 0.1))
    words = ("learned from 9 pictures", "rates", str(file.parent))
    facts = PageFacts(threshold, normal, *words, score_command="whatwhere anomaly score new it")
    file.write_text(gallery.page(rows, facts), encoding="utf-8")
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
