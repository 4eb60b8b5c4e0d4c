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
it. Nothing here imports Ray; the extra `ray` installs it.

The column `image` holds pictures as `ray.data.read_images` gives them, [H, W] or [H, W, C], uint8
or floats, or the bytes of PNG or JPEG files, as Parquet files of Hugging Face hold them ({"bytes":
…}); a batch may have pictures of several sizes. All other columns are kept, such as `path`,
which `read_images(…, include_paths=True)` adds. `latents_of` reads a row of codes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from whatwhere.classification import describe_images
from whatwhere.codes.rows import code_rows
from whatwhere.codes.small_codes import CodeRows
from whatwhere.data import Images, load
from whatwhere.data.arrays import Channels
from whatwhere.data.cells import cell_pixels, is_cell
from whatwhere.engines.devices import choose_device
from whatwhere.errors import ImageError, MissingColumn, SeveralSizes, listed
from whatwhere.inference import infer, resolve_lam
from whatwhere.inference.learned_steps import resolve_steps, saved_steps
from whatwhere.inference.target import in_model_units
from whatwhere.latents import Background, SparseLatents, SparseMap
from whatwhere.learning import read_run
from whatwhere.model import DeconvNet
from whatwhere.restoration import denoise, load_denoiser
from whatwhere.spec import InferenceSpec

Array = np.ndarray
Columns = dict[str, Any]


class Encode:
    """Replaces the column `image` with the codes of the pictures: lists of places and values.

    The columns are image_shape and features_shape (three integers each: channels or maps, height
    and width), features_indices (int32, places in the flattened grid) and features_values
    (float32). With `where`, also where1_indices (int32), mu1 and gamma1 (float32, a number for each
    axis of a region), where2_indices and so on, and what the input stage removed: low and scale
    (float32), if it has them.

    Parameters
    ----------
    model
        a name, a file or a run
    spec
        settings of inference; None takes the learned steps of the model, or converged codes
    where
        whether to store the pooling variables of the regions in use, too
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
        rows: list[Columns] = [{} for _ in pictures_of(batch, self.column)]
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
    """Replaces the column `image` with `descriptor` (float32 [D]); the pictures of a batch have one
    size.

    Parameters
    ----------
    model
        a name, a file or a run
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
        pictures = pictures_of(batch, self.column)
        if not len(pictures):
            return added(batch, self.column, [])
        images = load(stacked(pictures))
        found = describe_images(self.model, images, self.recipe, engine=self.engine)
        kept = {name: values for name, values in batch.items() if name != self.column}
        return {**kept, "descriptor": np.asarray(found)}


class Denoise:
    """Removes the noise of pictures; the results are float32 of the same shape, with white 1.

    Parameters
    ----------
    noise
        standard deviation of the noise, where white is 1; None estimates it
    """

    def __init__(
        self, noise: float | None = None, *, column: str = "image", device: str = "auto"
    ) -> None:
        self.denoiser = load_denoiser().to(choose_device(device))
        self.noise = noise
        self.column = column

    def __call__(self, batch: Columns) -> Columns:
        rows: list[Columns] = [{} for _ in pictures_of(batch, self.column)]
        for numbers, images in same_sizes(batch[self.column]):
            clean = denoise(images[:], self.denoiser, self.noise)
            for number, picture in zip(numbers, clean, strict=True):
                channels_last = picture.permute(1, 2, 0).cpu().numpy()
                # a grey picture [H, W] comes back as one
                shape = as_array(batch[self.column][number]).shape
                rows[number] = {self.column: channels_last.reshape(shape)}
        return added(batch, self.column, rows)


class Score:
    """Replaces the column `image` with `score` (float64, larger is less normal) and `anomaly`
    (bool, above the threshold of the detector).

    Parameters
    ----------
    detector
        a file that `whatwhere anomaly fit` wrote
    """

    def __init__(self, detector: str | Path, *, column: str = "image") -> None:
        # imported here, so that workers that score nothing start without scikit-learn
        from whatwhere.anomaly import AnomalyDetector

        self.detector = AnomalyDetector.load(Path(detector))
        self.column = column

    def __call__(self, batch: Columns) -> Columns:
        from whatwhere.anomaly import open_pictures

        count = len(pictures_of(batch, self.column))
        scores = np.zeros(count)
        for numbers, images in same_sizes(batch[self.column]):
            opened = open_pictures(images)
            scores[numbers] = [found.score for found in self.detector.detect(opened)]
        kept = {name: values for name, values in batch.items() if name != self.column}
        limit = self.detector.threshold_.value
        return {**kept, "score": scores, "anomaly": scores > limit}


def pictures_of(batch: Columns, column: str) -> Array:
    """Return the column of the pictures of a batch, which Ray may have left without rows."""
    if column not in batch:
        raise MissingColumn(column, batch)
    pictures: Array = batch[column]
    return pictures


def same_sizes(pictures: Array) -> Iterator[tuple[list[int], Images]]:
    """Yield the pictures of a column in groups of one size: their numbers, and the `Images` of
    them."""
    groups: dict[tuple[int, ...], list[int]] = {}
    decoded = [as_array(picture) for picture in pictures]
    for number, picture in enumerate(decoded):
        groups.setdefault(picture.shape, []).append(number)
    for shape, numbers in groups.items():
        array = np.stack([decoded[number] for number in numbers])
        channels: Channels | None = "last" if len(shape) == 3 else None
        yield numbers, load(array, channels=channels)


def stacked(pictures: Array) -> Array:
    """Return the pictures of a column as one array [N, H, W] or [N, H, W, C]."""
    arrays = [as_array(picture) for picture in pictures]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1 and all(len(shape) in (2, 3) for shape in shapes):
        raise SeveralSizes(sorted({shape[:2] for shape in shapes}))
    if len(shapes) > 1:
        raise ImageError(
            f"The pictures of a batch have the shapes {listed(shapes)}; expected [H, W] or"
            " [H, W, C], the same for all."
        )
    return np.stack(arrays)


def as_array(picture: object) -> Array:
    """Return a picture of a column as [H, W] or [H, W, C]: an array, or the bytes of a file,
    decoded."""
    if not is_cell(picture):
        return np.asarray(picture)
    pixels = cell_pixels(picture)
    return pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)


def split_rows(codes: CodeRows) -> Iterator[Columns]:
    """Yield the code of every image by itself, as columns."""
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
        for name, values in codes.background.items():
            columns[name] = values.reshape(len(codes), -1)[row]
        yield columns


def latents_of(row: Mapping[str, Any], model: DeconvNet) -> SparseLatents:
    """Return what and where of one row that `Encode` wrote, as read from Parquet. Without
    `where=True` it has no pooling variables.

    Parameters
    ----------
    row
        the columns of one picture: a row of a pandas table, or a dictionary
    model
        the model that encoded it

    Examples
    --------
    >>> encode = Encode("mnist", where=True, device="cpu")
    >>> columns = encode({"image": ww.data.load("digits").pixels[:1, 0]})
    >>> model = ww.load("mnist")
    >>> code = latents_of({name: values[0] for name, values in columns.items()}, model)
    >>> model.at(28, 28).decode(code.dense()).shape
    torch.Size([1, 1, 28, 28])
    """
    channels, height, width = (int(side) for side in row["image_shape"])
    grid = tuple(int(side) for side in row["features_shape"])
    features = _sparse_map(grid, row["features_indices"], [row["features_values"]], 1)
    where = []
    for k, regions in enumerate(model.at(height, width).regions, start=1):
        if f"where{k}_indices" in row:
            values = [row[f"mu{k}"], row[f"gamma{k}"]]
            indices = row[f"where{k}_indices"]
            where.append(_sparse_map(regions.grid, indices, values, len(regions.axes)))
    background = {}
    for name, count in (("low", channels), ("scale", 1)):
        if name in row:
            pixels = torch.tensor(np.asarray(row[name], np.float32))
            background[name] = pixels.reshape(1, count, height, width)
    return SparseLatents(features, tuple(where), Background(**background))


def _sparse_map(
    grid: tuple[int, ...], indices: ArrayLike, values: Sequence[ArrayLike], each: int
) -> SparseMap:
    """Return values at places of a grid; every place has `each` values of each kind."""
    places = torch.tensor(np.asarray(indices, np.int64))
    columns = [torch.tensor(np.asarray(part, np.float32)) for part in values]
    table = [part.reshape(len(places), each) for part in columns]
    maps, height, width = grid
    return SparseMap((maps, height, width), places, torch.cat(table, 1))


def added(batch: Columns, column: str, rows: list[Columns]) -> Columns:
    """Return the other columns of a batch, and the columns of its rows, whose values may differ in
    length."""
    kept = {name: values for name, values in batch.items() if name != column}
    for name in rows[0] if rows else ():
        values = np.empty(len(rows), object)
        for number, row in enumerate(rows):
            values[number] = row[name]
        kept[name] = values
    return kept
