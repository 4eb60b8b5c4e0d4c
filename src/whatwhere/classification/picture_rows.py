"""Descriptors of a folder of pictures for a labelling session: by a run, or by a model that is learned first."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from whatwhere.classification.metric import purpose, run_metric
from whatwhere.classification.picture_classifier import Describer
from whatwhere.data import Images
from whatwhere.files import disk_errors, write_atomic
from whatwhere.inference.environment import choose_device
from whatwhere.learning import TrainedRun, TrainingCallbacks, read_run, train
from whatwhere.learning.defaults import choose_defaults
from whatwhere.model.files import read_tensors, readable, to_bytes
from whatwhere.spec.distortions import Distortions
from whatwhere.spec.training import TrainingOptions

Progress = Callable[[str, float], Any]


def describe_pictures(
    images: Images,
    run: str | os.PathLike[str] | TrainedRun | None,
    how: Distortions,
    options: TrainingOptions,
    labels: Path | None,
    progress: Progress,
) -> tuple[Describer, Tensor]:
    """What describes the images, and their rows [N, r].

    labels  the table of labels next to which the learned run and the rows are kept; None keeps nothing
    """
    kept = None if labels is None else labels.with_suffix(".run")
    if run is None and kept is not None and kept.exists():
        run = kept
    trained = run if isinstance(run, TrainedRun) else read_run(run) if run else learn(images, kept, options, progress)
    model = trained.model.to(choose_device(options.device))
    recipe, engine = trained.recipe, options.engine
    advance = counted(progress, "learning what does not matter", len(images))
    metric = run_metric(trained.folder, model, images, recipe, how, engine=engine, progress=advance)
    describe = Describer(model, recipe, metric, images.shape, engine)
    file = None if labels is None else labels.with_suffix(".codes.safetensors")
    made_for = f"{purpose(model, recipe, images, how)} {images.fingerprint}"
    if file is not None and file.exists():
        with readable(file, "file of descriptors", "remove it"):
            metadata, tensors = read_tensors(file)
            if metadata.get("made_for") == made_for:
                return describe, tensors["rows"]
    rows = describe(images, counted(progress, "describing the pictures", len(images)))
    if file is not None:
        with disk_errors(f"writing {file}", "make room, or choose another place"):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(file, to_bytes({"rows": rows}, {"format": "whatwhere descriptors 1", "made_for": made_for}))
    return describe, rows


def counted(progress: Progress, stage: str, total: int) -> Callable[[Any], None]:
    """What reports progress after so many images more."""
    done = 0

    def advance(images: int) -> None:
        nonlocal done
        done += images
        progress(stage, min(1.0, done / total))

    return advance


def learn(images: Images, out: Path | None, options: TrainingOptions, progress: Progress) -> TrainedRun:
    """A model of the images, learned in a stream, with settings chosen from them."""
    chosen = choose_defaults(images)
    advance = counted(progress, "learning features", (chosen.image_count or len(images)) * chosen.recipe.model.depth)
    callbacks = TrainingCallbacks(on_batch=lambda report: advance(chosen.recipe.batch_size))
    return train(images, chosen.recipe, out, image_count=chosen.image_count, options=options, callbacks=callbacks)
