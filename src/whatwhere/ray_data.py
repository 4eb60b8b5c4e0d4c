"""Classes for `ray.data.Dataset.map_batches`: encode, describe, denoise and score pictures on a
cluster.

    import ray
    from whatwhere.ray_data import Encode

    pictures = ray.data.read_images("s3://pictures")
    codes = pictures.map_batches(
        Encode, fn_constructor_kwargs={"model": "mnist"}, batch_size=256, concurrency=8
    )
    codes.write_parquet("s3://codes")

Ray makes an object of the class in every worker, which loads the model once, and calls it with
batches: columns as NumPy arrays. With `num_gpus=1` each worker has a GPU, and device 'auto' takes
it. Nothing here imports Ray; the extra `whatwhere[ray]` installs it.

The column `image` holds pictures as `ray.data.read_images` gives them, [H, W] or [H, W, C], bytes
or floats; a batch may have pictures of several sizes. All other columns are kept.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from whatwhere.data import load
from whatwhere.data.small_codes import CodeRows
from whatwhere.engines.devices import choose_device
from whatwhere.inference import infer, resolve_lam
from whatwhere.inference.learned_steps import resolve_steps, saved_steps
from whatwhere.inference.target import in_model_units
from whatwhere.learning import read_run
from whatwhere.spec import InferenceSpec
from whatwhere.tasks.classification import describe_images
from whatwhere.tasks.coding import code_rows
from whatwhere.tasks.restoration import denoise, load_denoiser

Array = np.ndarray[Any, Any]
Columns = dict[str, Any]


class Encode:
    """Adds the codes of pictures: lists of places and values, as in a file of codes.

    model   a name, a file or a run
    spec    settings of inference; None takes the learned steps of the model, or converged codes
    where   also the pooling variables of the regions in use
    """

    def __init__(
        self,
        model: str | Path,
        spec: InferenceSpec | None = None,
        *,
        where: bool = False,
        column: str = "image",
        device: str = "auto",
        engine: str = "auto",
    ) -> None:
        run = read_run(model)
        self.model = run.model.to(choose_device(device, engine))
        self.spec = spec or InferenceSpec.coding(lam=run.recipe.inference.lam)
        source = self.model.source
        if spec is None and source is not None and saved_steps(source):
            self.model, self.spec = resolve_steps(self.model, "learned")
        self.where = where
        self.column = column
        self.engine = engine

    def __call__(self, batch: Columns) -> Columns:
        rows: list[Columns] = [{} for _ in batch[self.column]]
        for numbers, images in same_sizes(batch[self.column]):
            pixels = in_model_units(self.model.spec, images)
            spec = resolve_lam(self.model, pixels, self.spec)
            solution = infer(self.model, pixels, spec, engine=self.engine, batch_size=len(numbers))
            codes = code_rows(
                self.model, solution.latents, pixels.shape, where=self.where, exact=True
            )
            for number, row in zip(numbers, split_rows(codes), strict=True):
                rows[number] = row
        return added(batch, self.column, rows)


class Describe:
    """Adds the column `descriptor`, a vector of every picture; pictures are of one size.

    model   a name, a file or a run
    """

    def __init__(
        self,
        model: str | Path,
        *,
        column: str = "image",
        device: str = "auto",
        engine: str = "auto",
    ) -> None:
        run = read_run(model)
        self.model = run.model.to(choose_device(device, engine))
        self.recipe = run.recipe
        self.column = column
        self.engine = engine

    def __call__(self, batch: Columns) -> Columns:
        images = load(stacked(batch[self.column]))
        found = describe_images(self.model, images, self.recipe, engine=self.engine)
        kept = {name: values for name, values in batch.items() if name != self.column}
        return {**kept, "descriptor": np.asarray(found)}


class Denoise:
    """Replaces pictures by what is left without their noise, floats with white 1.

    noise   its standard deviation, white being 1; None estimates it
    """

    def __init__(
        self, noise: float | None = None, *, column: str = "image", device: str = "auto"
    ) -> None:
        self.denoiser = load_denoiser().to(choose_device(device))
        self.noise = noise
        self.column = column

    def __call__(self, batch: Columns) -> Columns:
        rows: list[Columns] = [{} for _ in batch[self.column]]
        for numbers, images in same_sizes(batch[self.column]):
            clean = denoise(self.denoiser, images[:], self.noise)
            for number, picture in zip(numbers, clean, strict=True):
                channels_last = picture.permute(1, 2, 0).cpu().numpy()
                # a grey picture [H, W] comes back as one
                shape = np.shape(batch[self.column][number])
                rows[number] = {self.column: channels_last.reshape(shape)}
        return added(batch, self.column, rows)


class Score:
    """Adds the columns `score` and `anomaly`: how unlike normal pictures each one is.

    detector  a file that `whatwhere anomaly fit` wrote
    """

    def __init__(self, detector: str | Path, *, column: str = "image") -> None:
        # here, so that workers that score nothing start without scikit-learn
        from whatwhere.tasks.anomaly import AnomalyDetector

        self.detector = AnomalyDetector.load(Path(detector))
        self.column = column

    def __call__(self, batch: Columns) -> Columns:
        from whatwhere.tasks.anomaly import open_pictures

        count = len(batch[self.column])
        scores = np.zeros(count)
        for numbers, images in same_sizes(batch[self.column]):
            opened = open_pictures(images)
            scores[numbers] = [found.score for found in self.detector.detect(opened)]
        kept = {name: values for name, values in batch.items() if name != self.column}
        limit = self.detector.threshold_.value
        return {**kept, "score": scores, "anomaly": scores > limit}


def same_sizes(pictures: Array) -> Iterator[tuple[list[int], Any]]:
    """The pictures of a column in groups of one size: their numbers, and the `Images` of them."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for number, picture in enumerate(pictures):
        groups.setdefault(np.shape(picture), []).append(number)
    for shape, numbers in groups.items():
        array = np.stack([np.asarray(pictures[number]) for number in numbers])
        channels: Any = "last" if len(shape) == 3 else None
        yield numbers, load(array, channels=channels)


def stacked(pictures: Array) -> Array:
    """The pictures of a column as one array [N, H, W] or [N, H, W, C]."""
    return np.stack([np.asarray(picture) for picture in pictures])


def split_rows(codes: CodeRows) -> Iterator[Columns]:
    """The code of every image by itself, as columns."""
    ends = np.cumsum(codes.features.counts)
    layer_ends = [np.cumsum(layer.counts) for layer in codes.where]
    for row in range(len(codes)):
        part = slice(ends[row] - codes.features.counts[row], ends[row])
        columns: Columns = {
            "image_shape": np.array(codes.shape),
            "features_shape": np.array(codes.features.grid),
            "features_indices": codes.features.places[part].astype(np.int32),
            "features_values": codes.features.values[part, 0],
        }
        for k, (layer, last) in enumerate(zip(codes.where, layer_ends, strict=True), start=1):
            part = slice(last[row] - layer.counts[row], last[row])
            mu, gamma = np.split(layer.values[part], 2, axis=1)
            columns[f"where{k}_indices"] = layer.places[part].astype(np.int32)
            columns[f"mu{k}"] = mu.ravel()
            columns[f"gamma{k}"] = gamma.ravel()
        yield columns


def added(batch: Columns, column: str, rows: list[Columns]) -> Columns:
    """The other columns of a batch, and those of its rows, whose values may differ in length."""
    kept = {name: values for name, values in batch.items() if name != column}
    for name in rows[0]:
        values = np.empty(len(rows), object)
        for number, row in enumerate(rows):
            values[number] = row[name]
        kept[name] = values
    return kept
