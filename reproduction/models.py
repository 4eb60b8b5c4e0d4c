"""Trained models: each is trained once, on top of the lower layers that it shares with others, and
found again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import ZipFile, ZipInfo

from reproduction.jobs import TrainingJob, fingerprint, first_layers
from reproduction.records import MODELS, ResultStore
from reproduction.results import EpochRecord, TrainingResult
from whatwhere import DeconvNet, load, save
from whatwhere.data import Images
from whatwhere.errors import RunError
from whatwhere.learning import (
    EpochReport,
    TrainingCallbacks,
    TrainingOptions,
    has_checkpoint,
    train,
)
from whatwhere.spec import Recipe


@dataclass(frozen=True)
class ModelStore:
    """Where models are and how they are trained.

    results  the record of every training: recipe, history, time, machine; published models are in
             an archive next to it
    cache    folder of all other models, and of trainings that are under way
    """

    results: ResultStore
    cache: Path
    device: str = "auto"
    engine: str = "auto"
    checkpoint_every: int | None = None
    stop: Callable[[], bool] = lambda: False
    log: Callable[[str], None] = print

    def get(self, job: TrainingJob, images: Images, *, publish: bool = False) -> DeconvNet:
        """The model of a training; trained now if there is none yet. `publish` puts it with the
        results."""
        cached = self.cached_file(job)
        if self.results.find(job) is not None:
            if (published := self.published(job)) is not None:
                return published
            if cached.is_file():
                if publish:
                    self._publish(job, load(cached))
                return load(cached)
        model = self._train(job, images, publish)
        if publish:
            self._publish(job, model)
        else:
            cached.parent.mkdir(parents=True, exist_ok=True)
            save(model, cached)
        # the run is now a record and a model
        shutil.rmtree(cached.with_suffix(""), ignore_errors=True)
        return model

    @property
    def archive(self) -> Path:
        """The archive of the published models, next to the records of their trainings."""
        return self.results.folder / f"{MODELS}.zip"

    def published(self, job: TrainingJob) -> DeconvNet | None:
        """The published model of a training; None if there is none."""
        return read_model(self.archive, Path(self.results.name_of(job)).name)

    def cached_file(self, job: TrainingJob) -> Path:
        """The model file in the cache; its name without the suffix is the folder of the training
        under way."""
        return self.cache / f"{Path(self.results.names(job)).name}-{fingerprint(job)}.safetensors"

    def _publish(self, job: TrainingJob, model: DeconvNet) -> None:
        """Add a model to the archive, as a file that `ww.load` reads."""
        name = f"{Path(self.results.name_of(job)).name}.safetensors"
        with TemporaryDirectory() as folder, ZipFile(self.archive, "a") as archive:
            save(model, Path(folder, name))
            # without the time of writing
            archive.writestr(ZipInfo(name), Path(folder, name).read_bytes())

    def _train(self, job: TrainingJob, images: Images, publish: bool) -> DeconvNet:
        """Train the top layer on the layers below, which are a model of their own unless they have
        no epochs; resume a run that was cut off."""
        recipe, depth = job.recipe, job.recipe.model.depth
        lower_history: tuple[EpochRecord, ...] = ()
        start, own = None, recipe
        if any(learning.epochs for learning in recipe.learning[:-1]):
            below = TrainingJob(job.data, first_layers(recipe, depth - 1))
            start = on_top_of(self.get(below, images, publish=publish), recipe)
            record = self.results.find(below)
            assert record is not None, "get() has just recorded it"
            lower_history = record.result.history
            done = tuple(replace(learning, epochs=0) for learning in recipe.learning[:-1])
            own = replace(recipe, learning=(*done, recipe.learning[-1]))
        folder, began = self.cached_file(job).with_suffix(""), time.monotonic()
        resume = has_checkpoint(folder / "checkpoint")
        self.log(
            f"{'resuming' if resume else 'training'} layer {depth} of {self.results.name_of(job)}"
        )
        options = TrainingOptions(
            engine=self.engine, device=self.device, checkpoint_every=self.checkpoint_every
        )
        callbacks = TrainingCallbacks(
            stop=self.stop, on_epoch=lambda epoch: self.log(epoch_line(epoch, own))
        )
        run = train(
            images, own, folder, resume=resume, start=start, options=options, callbacks=callbacks
        )
        history = tuple(map(epoch_record, run.history))
        if not history and not lower_history:
            raise RunError(
                f"{self.results.name_of(job)}: its recipe has no epochs, so there is nothing to"
                " train"
            )
        seconds = sum(epoch.seconds for epoch in history)
        result = TrainingResult(history=(*lower_history, *history), training_seconds=seconds)
        self.results.put(job, result, time.monotonic() - began)
        return run.model


def read_model(archive: Path, name: str) -> DeconvNet | None:
    """A model by the name of its training, from an archive of published models; None if it is not
    there."""
    file = f"{name}.safetensors"
    if not archive.is_file():
        return None
    with ZipFile(archive) as models, TemporaryDirectory() as folder:
        return load(models.extract(file, folder)) if file in models.namelist() else None


def epoch_record(epoch: EpochReport) -> EpochRecord:
    return EpochRecord(
        **asdict(epoch),
        cost=epoch.cost,
        image_iterations_per_second=epoch.image_iterations_per_second,
    )


def epoch_line(epoch: EpochReport, recipe: Recipe) -> str:
    return (
        f"  layer {epoch.layer}, epoch {epoch.epoch} of {recipe.learning[epoch.layer - 1].epochs}:"
        f" cost {epoch.cost:.4g}, {epoch.nonzeros:.1f} non-zeros, {epoch.seconds:.1f} s,"
        f" {epoch.engine}"
    )


def on_top_of(below: DeconvNet, recipe: Recipe) -> DeconvNet:
    """A model by this recipe, drawn from its seed, with the trained filters of the layers below."""
    model = DeconvNet(recipe.model, seed=recipe.seed)
    below = below.to("cpu")
    filters = [*below.filters, *model.filters[len(below.filters) :]]
    connectivity = [*below.connectivity, *model.connectivity[len(below.connectivity) :]]
    return DeconvNet.from_parts(recipe.model, filters, connectivity)
