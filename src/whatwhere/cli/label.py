"""`whatwhere label`: a page on which a few pictures are labelled and all are classified."""

from pathlib import Path

import whatwhere as ww
from whatwhere.cli.command import Settings, command
from whatwhere.cli.inputs import DISTORTIONS, EXECUTION, read_images
from whatwhere.spec.tasks import Distortions, TrainingOptions


@command(DISTORTIONS, EXECUTION)
def label(images: str, run: str | None = None, *, out: Path = Path("labels.csv"), settings: Settings) -> None:
    """Label a few pictures in a browser, and see the others fall into place.

    After every label OUT has all that was said, and `predictions.csv` next to it the class of every picture; the page
    continues from them. A model that was learned first is next to them, too, and the classifier that the page saves.

    run  a run, a model file or the name of a model; default: one is learned from the pictures first, in a stream
    out  the table of labels
    """
    from whatwhere.explorer.label_page import LabelPage
    from whatwhere.explorer.server import PageServer
    from whatwhere.learning.reports import Stage

    how, options = settings.of(Distortions), settings.of(TrainingOptions)
    source = read_images(Path(run or ""), images)

    def make(stage: Stage) -> ww.Labelling:
        return ww.Labelling(source, run=run, labels=out, invariant_to=how, options=options, stage=stage)

    shown = LabelPage(make, source.name, out.with_suffix(".classifier.safetensors"))
    with PageServer(shown.answer, act=shown.act) as server:
        server.show(f"Ctrl-C ends it; everything that was said is in {out}.")
