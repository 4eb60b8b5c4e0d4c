"""`whatwhere describe`: rows for a classifier, one for each picture."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

import whatwhere as ww
from whatwhere.classification.settings import DISTORTIONS, Distortions
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    SHARD,
    open_run,
    open_shard,
    read_images,
    recorded_by,
    with_preset,
)
from whatwhere.commands.old_forms import model_first
from whatwhere.commands.outputs import Report, Stages, claim
from whatwhere.errors import ImageError, SpecError, printable
from whatwhere.files import file_checksum
from whatwhere.spec import Recipe
from whatwhere.spec.execution import Execution, Shard

if TYPE_CHECKING:
    from whatwhere.data.images import AllPictures
    from whatwhere.data.parts import PartRecord
    from whatwhere.progress import Stage


@command(
    DISTORTIONS,
    EXECUTION,
    SHARD,
    (Recipe, "inference descriptor"),
    flags="device shard",
    old=(model_first(),),
)
def describe(
    images: str,
    run: Path,
    *,
    out: Path,
    preset: str = "recipe",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Describe every picture by a row of numbers for a classifier, in a metric that discounts small
    distortions.

    The file has an array `descriptors` with a row for each image, and the `labels` and `names` of
    the images if they have any. Pictures of several sizes are scaled and cut to squares of one
    size, as for `classify`. The command learns the metric of the rows from the images, without
    labels, and saves it with the run.

    Parameters
    ----------
    out
        the .npz file to write; with --shard, the folder for the parts

    Examples
    --------
    $ whatwhere describe pictures/ runs/mine --out rows.npz
    """
    from whatwhere.data.parts import check_next_part

    execution = settings.of(Execution)
    shard = open_shard(settings, out, quiet=quiet)
    opened = open_run(run, execution.device, execution.engine)
    recipe, model = with_preset(*opened, preset, settings)
    file = shard.part_of(out, ".npz")
    claim([file], run, images, overwrite=overwrite)
    trained = ww.TrainedRun(run.name, recipe, model, folder=run if run.is_dir() else None)
    pictures = _pictures(run, images, shard)
    record = None
    if not shard.is_all:
        record = _record(trained, pictures.all_pictures, settings)
        if not overwrite:
            check_next_part(file.parent, shard, record)
    shape = _write(file, trained, pictures, settings, Stages(quiet).stage, record)
    facts = {"file": str(file), "arrays": {"descriptors": shape}}
    typer.echo(Report(facts, f"{printable(file)}: descriptors {shape}").text(json_))


def _pictures(run: Path, source: str, shard: Shard) -> "ww.data.Images":
    """Return the pictures to describe. Those of a shard get the size and the channels of the
    pictures that the metric of the run learned from."""
    from whatwhere.classification.picture_classifier import metric_shape

    if shard.is_all:
        return read_images(run, source)
    metric = run / "metric.safetensors"
    if not metric.is_file():
        raise SpecError(
            f"Shards need one metric for all descriptors, and {printable(run)} has none yet. Learn"
            " it first: describe some of the images with --shard 1/1."
        )
    shape = metric_shape(metric)
    if shape is None:  # not recorded by an earlier version: the sizes of all pictures show it
        pictures = read_images(run, source)
        return pictures.subset(list(shard.rows_of_pictures(len(pictures))))
    channels, height, width = shape
    side = height if height == width else None
    pictures = ww.data.load(source, size=side, recorded=recorded_by(run), shard=shard)
    pictures = pictures.with_channels(channels)
    if pictures.shape != shape:
        raise ImageError(
            f"{pictures.name} has pictures of {'×'.join(map(str, pictures.shape))}, but the metric"
            f" of {printable(run)} is for {'×'.join(map(str, shape))}. Give pictures of this size,"
            " or learn the metric again with --shard 1/1."
        )
    return pictures


def _record(
    run: "ww.TrainedRun", all_pictures: "AllPictures | None", settings: Settings
) -> "PartRecord":
    """Return the record of a part of descriptors: the model, the settings, and the metric that the
    run keeps."""
    from whatwhere.data.parts import PartRecord, text_checksum

    how = settings.of(Distortions)
    metric = "" if run.folder is None else file_checksum(run.folder / "metric.safetensors")
    facts = f"{run.recipe.inference} {run.recipe.descriptor} {how} {metric}"
    return PartRecord(run.model.checksum, text_checksum(facts), all_pictures)


def _write(
    out: Path,
    run: "ww.TrainedRun",
    images: "ww.data.Images",
    settings: Settings,
    stage: "Stage",
    record: "PartRecord | None" = None,
) -> list[int]:
    """Write the descriptors of images, in the metric that the run keeps, with names and labels;
    return their shape.

    Parameters
    ----------
    record
        what all parts of a command have in common; None if there is only one part
    """
    import numpy as np

    from whatwhere.classification.picture_classifier import describe_pictures
    from whatwhere.data.arrays import write_npz
    from whatwhere.data.pictures import picture_names

    how = settings.of(Distortions)
    options = settings.of(Execution)
    rows = describe_pictures(images, run, how, options, None, stage)[1].numpy()
    found = {"descriptors": rows, "names": picture_names(images.pixels), "labels": images.labels}
    arrays = {name: np.asarray(value) for name, value in found.items() if value is not None}
    arrays["format"] = np.array("whatwhere rows 1")
    if record is not None:
        arrays |= record.arrays()
    write_npz(out, arrays)
    return list(rows.shape)
