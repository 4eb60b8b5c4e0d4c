"""Trained models, each trained once: found where it was kept, or trained on top of the layers that it shares."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from whatwhere.data import Images
from whatwhere.errors import RunError
from whatwhere.learning import EpochReport, TrainingCallbacks, TrainingOptions, train
from whatwhere.model import DeconvNet, load, save
from whatwhere.reproduction.results import Results
from whatwhere.reproduction.subjects import Subject, first_layers, model_subject
from whatwhere.spec import Recipe
from whatwhere.storage import has_checkpoint


@dataclass(frozen=True)
class Models:
    """Where models are kept and how they are trained.

    results  the record of every training: recipe, history, time, machine
    kept     folder of the models that stay with the results (those of the headline cells)
    cache    folder of all others, and of trainings that are under way
    """

    results: Results
    kept: Path
    cache: Path
    device: str = "auto"
    engine: str = "auto"
    checkpoint_every: int | None = None
    stop: Callable[[], bool] = lambda: False
    say: Callable[[str], None] = print

    def get(self, subject: Subject, images: Images, *, keep: bool = False) -> DeconvNet:
        """The model of a training; trained now where there is none yet."""
        record = self.results.find(subject)
        name = f"{subject.key if record is None else record['key']}.safetensors"
        for folder in (self.kept, self.cache):
            if record is not None and (folder / name).is_file():
                if keep and folder is self.cache:
                    self.kept.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(self.cache / name, self.kept / name)
                return load(folder / name)
        model = self._train(subject, images, keep)
        folder = self.kept if keep else self.cache
        folder.mkdir(parents=True, exist_ok=True)
        save(model, folder / name)
        shutil.rmtree(self.cache / subject.key, ignore_errors=True)  # the run has become a record and a model
        return model

    def _train(self, subject: Subject, images: Images, keep: bool) -> DeconvNet:
        """Train the top layer on the layers below, which are a model of their own; go on where a run was cut off."""
        recipe = subject.recipe
        start, before, own = None, [], recipe
        if recipe.model.depth > 1:
            below = model_subject(first_layers(recipe, recipe.model.depth - 1), subject.data)
            start = on_top_of(self.get(below, images, keep=keep), recipe)
            found = self.results.find(below)
            assert found is not None
            before = list(found["found"]["history"])
            done = tuple(replace(learning, epochs=0) for learning in recipe.learning[:-1])
            own = replace(recipe, learning=(*done, recipe.learning[-1]))
        folder, began = self.cache / subject.key, time.monotonic()
        resume = has_checkpoint(folder / "checkpoint")
        top = recipe.model.depth
        self.say(f"{'going on with' if resume else 'training'} layer {top} of model {subject.key}")

        def on_epoch(e: EpochReport) -> None:
            self.say(
                f"  layer {e.layer}, epoch {e.epoch} of {own.learning[top - 1].epochs}: cost {e.cost:.4g}, "
                f"{e.nonzeros:.1f} non-zeros, {e.seconds:.1f} s, {e.engine}"
            )

        options = TrainingOptions(engine=self.engine, device=self.device, checkpoint_every=self.checkpoint_every)
        callbacks = TrainingCallbacks(stop=self.stop, on_epoch=on_epoch)
        run = train(own, images, folder, resume=resume, start=start, options=options, callbacks=callbacks)
        history = [epoch.table() for epoch in run.history]
        if not history and not before:
            raise RunError(f"model {subject.key}: its recipe has no epochs; nothing was trained")
        found_now = {"history": before + history, "training_seconds": sum(epoch["seconds"] for epoch in history)}
        self.results.put(subject, found_now, time.monotonic() - began)
        return run.model


def on_top_of(below: DeconvNet, recipe: Recipe) -> DeconvNet:
    """A model by this recipe, drawn from its seed, with the trained filters of the layers below."""
    model = DeconvNet(recipe.model, seed=recipe.seed)
    filters = [*below.filters, *model.filters[len(below.filters) :]]
    connectivity = [*below.connectivity, *model.connectivity[len(below.connectivity) :]]
    return DeconvNet.from_parts(recipe.model, filters, connectivity)
