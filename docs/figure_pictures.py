"""Draw the pictures of howto/figures.md:  PYTHONPATH=. python docs/figure_pictures.py [NAME ...]

The models are those of reproduction/results/paper, trained on all of MNIST at the scale of the paper. The images
are test images of the embedded digits. Pictures keep all their colours; a large one gets a lower resolution instead.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from reproduction.models import read_model
from reproduction.records import read_records
from whatwhere.cli.figures import choose_images
from whatwhere.cli.stages import Stages
from whatwhere.figures import FigureContext, draw
from whatwhere.learning import EpochReport, TrainedRun

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "reproduction" / "results" / "paper"
MAX_BYTES = 300_000
IMAGE = 61  # of the test digits: the one that is decomposed

ALONE = ("composite", "decomposition-1", "decomposition-2", "where-1", "inference")
COMPARED = ("comparison", "cost-2", "reset")


def published_run(name: str, file: str) -> TrainedRun:
    """A trained model of the results, with the recipe and the history of its record."""
    (record,) = (record for record in read_records(RESULTS / "models.jsonl") if record.name == f"models/{file}")
    model = read_model(RESULTS / "models.zip", file)
    assert model is not None
    epochs = record.result.history
    history = tuple(EpochReport(e.layer, e.epoch, e.reconstruction, e.penalty, e.nonzeros) for e in epochs)
    return TrainedRun(name, record.job.recipe, model, history)


def png(figure: Figure) -> bytes:
    """A PNG of at most MAX_BYTES, without a palette; a picture without colours is stored as grey values."""
    for dpi in (200, 170, 140, 120, 100):
        drawn, compressed = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi)
        image = Image.open(drawn).convert("RGB")
        red, green, blue = (band.tobytes() for band in image.split())
        (image.convert("L") if red == green == blue else image).save(compressed, "PNG", optimize=True)
        if compressed.tell() <= MAX_BYTES:
            break
    return compressed.getvalue()


def main(names: list[str]) -> None:
    gaussian, max_pooling = (
        published_run("Gaussian", "gaussian-2layers-seed0"),
        published_run("max", "max-2layers-seed0"),
    )
    context = FigureContext(gaussian, choose_images("digits", 200, IMAGE, 0), (max_pooling,), stage=Stages().stage)
    for name in names or [*ALONE, *COMPARED]:
        figure = draw(context, name).figure
        path = DOCS / "images" / f"{name}.{'gif' if isinstance(figure, bytes) else 'png'}"
        assert figure is not None
        path.write_bytes(figure if isinstance(figure, bytes) else png(figure))
        print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main(sys.argv[1:])
