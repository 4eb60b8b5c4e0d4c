"""A classifier of new pictures as one safetensors file: the model, the metric, and the labelled
graph."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from whatwhere.classification.anywhere import describe_anywhere, learn_anywhere
from whatwhere.classification.descriptors import describe_images, unit_length
from whatwhere.classification.joined_describer import PictureDescriber, read_joined
from whatwhere.classification.metric import Metric, learn_metric
from whatwhere.classification.neighbours import Neighbours
from whatwhere.classification.new_rows import NewRows
from whatwhere.classification.settings import Distortions
from whatwhere.classification.view_join import ViewJoin, read_join
from whatwhere.classification.where import (
    WEIGHED,
    WHERE_FILE,
    WhereChoice,
    choose_where,
    with_choice,
)
from whatwhere.data import Images, Source, load
from whatwhere.engines.devices import choose_device
from whatwhere.errors import ImageError, SpecError, plural
from whatwhere.files import (
    FileFields,
    claim,
    disk_errors,
    open_regular,
    readable,
    untrusted,
    write_atomic,
)
from whatwhere.learning import (
    TrainedRun,
    TrainingCallbacks,
    has_checkpoint,
    read_run,
    train,
)
from whatwhere.learning.checkpoint import Checkpoint
from whatwhere.learning.defaults import choose_defaults
from whatwhere.model import DeconvNet
from whatwhere.model.checksums import checksum
from whatwhere.model.files import (
    checked_bytes,
    model_tensors,
    read_checked,
    read_tensors,
    write_tensors,
)
from whatwhere.progress import Stage
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution, TrainingOptions
from whatwhere.spec.toml import build, override, to_toml

FORMAT = "whatwhere picture classifier 1"
ANYWHERE = "anywhere"  # prefix of the tensors of the metric for rows of what is anywhere


@dataclass(frozen=True)
class Describer:
    """Images of one shape (C, H, W) → rows [N, r] of what is at a place, of what is anywhere, or of
    both side by side, as the recipe says.

    Parameters
    ----------
    metric
        metric of small distortions, for rows of what is at a place
    anywhere
        metric of the quarters of pictures, for rows of what is anywhere
    why
        the line that says what rows describe, and why
    """

    model: DeconvNet
    recipe: Recipe
    metric: Metric | None
    shape: tuple[int, int, int]
    engine: str = "auto"
    anywhere: Metric | None = None
    why: str = ""

    def __call__(
        self,
        images: Source,
        progress: Callable[[int], object] = lambda images: None,
        anywhere_rows: Tensor | None = None,
    ) -> Tensor:
        """Rows of images.

        Parameters
        ----------
        progress
            called with the number of images that were just described
        anywhere_rows
            their rows of what is anywhere, if they are known
        """
        if not isinstance(images, Images):
            images = load(images, size=self.shape[1] if isinstance(images, str | Path) else None)
        if images.shape != self.shape:
            raise ImageError(
                f"{images.name} has images of {'×'.join(map(str, images.shape))}, but the"
                f" classifier takes {'×'.join(map(str, self.shape))}."
            )
        must_infer_anywhere = self.anywhere is not None and anywhere_rows is None
        passes = int(must_infer_anywhere) + int(self.metric is not None)
        advance = _progress_of_passes(progress, passes)
        if passes == 0:  # all rows are known
            progress(len(images))
        parts = []
        if self.anywhere is not None:
            rows = anywhere_rows
            if rows is None:
                rows = describe_anywhere(
                    self.model, images, self.recipe, engine=self.engine, progress=advance
                )
            parts.append(self.anywhere(rows).cpu())
        if self.metric is not None:
            rows = describe_images(
                self.model, images, self.recipe, engine=self.engine, progress=advance
            )
            parts.append(self.metric(rows).cpu())
        return unit_length(torch.cat(parts, 1)) if len(parts) > 1 else parts[0]

    @property
    def columns(self) -> Mapping[str, int]:
        """The number of columns of what is anywhere (textures), and of what is at a place
        (shapes)."""
        parts = {"textures": self.anywhere, "shapes": self.metric}
        return {name: len(metric.matrix) for name, metric in parts.items() if metric is not None}

    def settings(self) -> dict[str, object]:
        """Return what a file holds besides tensors."""
        how = Distortions() if self.metric is None else self.metric.how
        return {"how": asdict(how), "shape": self.shape, "recipe": to_toml(self.recipe)}

    def tensors(self) -> dict[str, Tensor]:
        """Return its model and its metrics, as a file holds them."""
        model = {f"model.{name}": tensor for name, tensor in model_tensors(self.model).items()}
        place = {} if self.metric is None else self.metric.tensors()
        anywhere = {} if self.anywhere is None else self.anywhere.tensors(ANYWHERE)
        return model | place | anywhere


def _progress_of_passes(progress: Callable[[int], object], passes: int) -> Callable[[int], None]:
    """Make a function to call with the number of images just done in one of several passes over the
    same images. It reports an image to `progress` once every pass has done as many images."""
    done = 0
    reported = 0

    def advance(images: int) -> None:
        nonlocal done, reported
        done += images
        progress(done // passes - reported)
        reported = done // passes

    return advance


@dataclass(frozen=True)
class PictureClassifier:
    """Assigns classes to new pictures by the pictures that it was made from, as `GraphClassifier`
    does.

    Parameters
    ----------
    classes
        their names, K
    rows
        rows of the pictures that it was made from, [N, r]
    probabilities
        probabilities of their classes, [N, K]
    n_neighbors
        number of neighbours to compare with
    describe
        function from images to rows; None if it classifies rows only
    join
        joins the rows of several views; None for one description
    """

    classes: tuple[str, ...]
    rows: Tensor
    probabilities: Tensor
    n_neighbors: int = 10
    describe: PictureDescriber | None = None
    join: ViewJoin | None = None

    def predict_proba(
        self, images: Source | Tensor, progress: Callable[[int], object] = lambda images: None
    ) -> np.ndarray:
        """Return the probabilities [n, K] of images as `data.load` takes them, or of rows [n,
        r]."""
        queries: Any = images
        if self.describe is not None and getattr(images, "ndim", 0) != 2:
            queries = self.describe(images, progress)
        if getattr(queries, "ndim", 0) != 2 or queries.shape[1] != self.rows.shape[1]:
            given = tuple(getattr(queries, "shape", ()))
            raise ImageError(f"Got rows of shape {given}; expected (n, {self.rows.shape[1]}).")
        values = torch.as_tensor(queries)
        if not values.float().isfinite().all():
            raise ImageError("The rows have NaN or infinite values; expected finite ones.")
        rows = self.rows
        if self.join is not None:
            rows, values = self.join(rows), self.join(values)
        known = NewRows(Neighbours(rows), self.probabilities, self.n_neighbors)
        return np.asarray(known(values).numpy())

    def predict(self, images: Source) -> np.ndarray:
        """Return the names of the classes, [n]."""
        return np.asarray(np.array(self.classes)[self.predict_proba(images).argmax(1)])

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write it as one file; nothing is pickled.

        Parameters
        ----------
        overwrite
            also replace a file that is not a classifier
        """
        content = self.to_bytes()
        claim([Path(path)], overwrite=overwrite or is_classifier(Path(path)))
        with disk_errors(f"writing {path}", "free some disk space, or choose another folder"):
            write_atomic(Path(path), content)

    def to_bytes(self) -> bytes:
        """Return the content of the file that `save` writes."""
        tensors = {"rows": self.rows.float(), "probabilities": self.probabilities.float()}
        settings: dict[str, object] = {"classes": self.classes, "n_neighbors": self.n_neighbors}
        if self.describe is not None:
            tensors |= self.describe.tensors()
            settings |= self.describe.settings()
        if self.join is not None:
            tensors |= self.join.tensors()
            settings |= self.join.settings()
        return checked_bytes(FORMAT, settings, tensors)


def load_classifier(path: str | os.PathLike[str]) -> PictureClassifier:
    """Read a classifier that the labelling page, `whatwhere classify` or `Labelling.save` wrote.

    Parameters
    ----------
    path
        path of the file, NAME.safetensors

    Examples
    --------
    >>> rows = np.eye(4, dtype=np.float32).repeat(3, 0)
    >>> session = ww.Labelling(rows)
    >>> session.label({0: "cat", 3: "dog"})
    >>> session.save("classifier.safetensors")
    >>> ww.load_classifier("classifier.safetensors").predict(rows[:4])
    array(['cat', 'cat', 'cat', 'dog'], dtype='<U3')
    """
    file = Path(path)
    # forged settings have any types
    with readable(file, "classifier", "save it again"), untrusted():
        settings, tensors = read_checked(file, FORMAT)
        describe = _describer(settings, tensors)
        classes = tuple(settings["classes"])
        n_neighbors = settings["n_neighbors"]
        rows = tensors["rows"]
        probabilities = tensors["probabilities"]
        if (
            {type(name) for name in classes} != {str}
            or type(n_neighbors) is not int
            or n_neighbors < 1
        ):
            raise SpecError("its classes or its number of neighbours have the wrong type")
        if rows.ndim != 2 or 0 in rows.shape or probabilities.shape != (len(rows), len(classes)):
            raise SpecError("its rows, probabilities and classes do not match")
        join = read_join(settings, tensors)
        if join is not None and len(join.mean) != rows.shape[1]:
            raise SpecError("its rows and views do not match")
        return PictureClassifier(classes, rows, probabilities, n_neighbors, describe, join)


def is_classifier(path: Path) -> bool:
    """Tell whether a file holds a classifier, by its beginning."""
    try:
        with open_regular(path) as file:
            return FORMAT.encode() in file.read(1 << 16)
    except OSError:
        return False


def _describer(settings: FileFields, tensors: dict[str, Tensor]) -> PictureDescriber | None:
    """Return the describer that a file holds; None if it classifies rows only."""
    own = _own_describer(settings, tensors) if "recipe" in settings else None
    return read_joined(settings, own) if "views" in settings else own


def _own_describer(settings: FileFields, tensors: dict[str, Tensor]) -> Describer:
    """Return the describer of learned features."""
    recipe = override(Recipe.paper(), tomllib.loads(settings["recipe"]))
    layers = range(1, recipe.model.depth + 1)
    filters, connectivity = (
        [tensors[f"model.layer{k}.{part}"] for k in layers] for part in ("filters", "connectivity")
    )
    model = DeconvNet.from_parts(recipe.model, filters, connectivity)
    place, anywhere = read_metrics(tensors, build(Distortions, settings["how"]))
    channels, height, width = settings["shape"]
    return Describer(model, recipe, place, (channels, height, width), anywhere=anywhere)


class Metrics(NamedTuple):
    """The metrics of rows of what is at a place, and of what is anywhere."""

    place: Metric | None
    anywhere: Metric | None


def read_metrics(tensors: Mapping[str, Tensor], how: Distortions) -> Metrics:
    """Return the metrics that a file holds, one or both."""
    place = Metric.from_tensors(tensors, how) if "metric.mean" in tensors else None
    anywhere = None
    if f"{ANYWHERE}.mean" in tensors:
        anywhere = Metric.from_tensors(tensors, Distortions(), ANYWHERE)
    if place is None and anywhere is None:
        raise SpecError("it has no metric")
    return Metrics(place, anywhere)


@dataclass(frozen=True)
class DescribingSettings:
    """How pictures are described, besides what the recipe of their model says.

    Parameters
    ----------
    sample
        pictures that the metric is learned from, at most; of 1,000, the covariance of distortions
        is known well enough
    beside_others
        whether other views stand next to the rows. Labels then weigh what is at a place and what is
        anywhere, unless the recipe sets one of them
    change
        changes the recipe, such as by settings that a person gave
    """

    sample: int = 1000
    beside_others: bool = False
    change: Callable[[Recipe], Recipe] = lambda recipe: recipe

    def sample_of(self, images: Images) -> Images:
        """Return some of many images, at even distances; all of few."""
        if len(images) <= self.sample:
            return images
        return images.subset(np.linspace(0, len(images) - 1, self.sample).astype(int))


def describe_pictures(
    images: Images,
    run: str | os.PathLike[str] | TrainedRun | None,
    how: Distortions,
    options: Execution,
    labels: Path | None,
    stage: Stage,
    settings: DescribingSettings | None = None,
) -> tuple[Describer, Tensor]:
    """Return the function that describes images, and the rows [N, r] of these images.

    Parameters
    ----------
    run
        also keeps the metric, for all images of this size
    labels
        the table of labels next to which the learned run, the metric and the rows are kept; None
        keeps nothing
    stage
        shows the progress
    settings
        how pictures are described besides what the recipe says
    """
    settings = settings or DescribingSettings()
    kept = None if labels is None else labels.with_suffix(".run")
    if isinstance(run, TrainedRun):
        trained = run
    elif run:
        trained = read_run(run)
    elif kept is not None and is_finished(kept):
        trained = read_run(kept)
    else:
        settings.change(choose_defaults(images).recipe)  # a wrong setting is found before the work
        trained = learn(images, kept, options, stage)
    trained = replace(trained, recipe=settings.change(trained.recipe))
    model = trained.model.to(choose_device(options.device, options.engine))
    engine = options.engine
    file = None if trained.folder is None else trained.folder / WHERE_FILE
    if settings.beside_others and trained.recipe.descriptor.where == "auto":
        choice = WhereChoice("both", WEIGHED)
    else:
        choice = choose_where(model, images, trained.recipe, engine, kept_in=file)
    recipe = with_choice(trained.recipe, choice)
    facts = recipe.inference, recipe.descriptor, images.shape, how
    made_for = checksum(f"{model.checksum} {facts}", {})
    sample = settings.sample_of(images)
    where = recipe.descriptor.where
    anywhere_rows: list[Tensor] = []  # those that the metric was learned from
    ignored = "differences between parts of a picture"
    if where != "forget":
        ignored = "small shifts and rotations"

    def metric() -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        with stage(f"learning which {ignored} do not matter", len(sample)) as progress:
            advance = _progress_of_passes(progress, 2 if where == "both" else 1)
            if where != "keep":
                anywhere = learn_anywhere(model, sample, recipe, engine=engine, progress=advance)
                if sample is images:
                    anywhere_rows.append(anywhere.rows)
                tensors |= anywhere.metric.tensors(ANYWHERE)
            if where != "forget":
                place = learn_metric(model, sample, recipe, how, engine=engine, progress=advance)
                tensors |= place.tensors()
        return tensors

    def describer(tensors: dict[str, Tensor]) -> Describer:
        place, anywhere = read_metrics(tensors, how)
        place = place and place.to(model.device)
        anywhere = anywhere and anywhere.to(model.device)
        return Describer(model, recipe, place, images.shape, engine, anywhere, choice.line)

    def metric_and_rows() -> dict[str, Tensor]:
        tensors = _kept_tensors(
            trained.folder and trained.folder / "metric.safetensors",
            made_for,
            metric,
            images.shape,
        )
        known = anywhere_rows[0] if anywhere_rows else None
        with stage("describing the pictures", len(images)) as advance:
            return tensors | {"rows": describer(tensors)(images, advance, known)}

    codes = labels and labels.with_suffix(".codes.safetensors")
    made_of = f"{made_for} {images.fingerprint}"
    tensors = _kept_tensors(codes, made_of, metric_and_rows, images.shape)
    return describer(tensors), tensors["rows"]


def _kept_tensors(
    file: Path | None,
    made_for: str,
    make: Callable[[], dict[str, Tensor]],
    shape: tuple[int, int, int],
) -> dict[str, Tensor]:
    """Return the value in a file, if it was made for the same inputs; otherwise a new one, saved if
    the folder is writable.

    Parameters
    ----------
    shape
        of the images, which the file records
    """
    if file is not None and file.exists():
        with readable(file, "file of a metric or of descriptors", "remove it"):
            metadata, tensors = read_tensors(file)
            if metadata.get("made_for") == made_for:
                return tensors
    tensors = make()
    if file is not None:
        with disk_errors(f"writing {file}", "free some disk space, or choose another folder"):
            file.parent.mkdir(parents=True, exist_ok=True)
            if os.access(file.parent, os.W_OK):
                metadata = {
                    "format": "whatwhere descriptors 2",
                    "made_for": made_for,
                    "image_shape": json.dumps(shape),
                }
                write_tensors(file, tensors, metadata)
    return tensors


def metric_shape(file: Path) -> tuple[int, int, int] | None:
    """Return channels, height and width of the images that a metric in a file learned from; None if
    an earlier version wrote it."""
    with readable(file, "file of a metric", "remove it"):
        metadata, _ = read_tensors(file)
        if "image_shape" not in metadata:
            return None
        channels, height, width = map(int, json.loads(metadata["image_shape"]))
        return channels, height, width


def is_finished(run: Path) -> bool:
    """Tell whether a folder holds a run whose training is finished."""
    if not has_checkpoint(run / "checkpoint"):
        return (run / "model.safetensors").exists()
    depth = read_run(run).recipe.model.depth
    return Checkpoint.load(run / "checkpoint").layer > depth


def learn(images: Images, out: Path | None, options: Execution, stage: Stage) -> TrainedRun:
    """Make a model of the images, learned in a stream, with settings chosen from them. An
    unfinished run in `out` continues."""
    chosen = choose_defaults(images)
    depth = chosen.recipe.model.depth
    if chosen.image_count is None:
        passes = chosen.recipe.learning[0].epochs  # the same for all layers
        count = len(images) * passes * depth
        pictures = f"in {plural(passes, 'pass', 'passes')} over {plural(len(images), 'picture')}"
    else:
        count = chosen.image_count * depth
        pictures = f"from {plural(chosen.image_count, 'picture')}"
    title = f"learning {plural(depth, 'layer')} of features, each {pictures}"
    with stage(title, count) as advance:
        callbacks = TrainingCallbacks(on_batch=lambda report: advance(report.images))
        return train(
            images,
            chosen.recipe,
            out,
            image_count=chosen.image_count,
            resume=out is not None and has_checkpoint(out / "checkpoint"),
            options=TrainingOptions(engine=options.engine, device=options.device),
            callbacks=callbacks,
        )
