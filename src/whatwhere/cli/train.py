"""`whatwhere train`: train a model on images, in a folder that it can be resumed from."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.inputs import absolute_mask, absolute_source, notes_of, parse_change
from whatwhere.cli.options import SOURCE_HELP, Mask, OptionalDevice, OptionalEngine, Quiet, Set

if TYPE_CHECKING:
    from whatwhere.data import Images
    from whatwhere.spec import Recipe

Source = Annotated[
    str | None,
    typer.Argument(metavar="IMAGES", help=f"{SOURCE_HELP} Default: digits."),
]
Out = Annotated[Path | None, typer.Option("--out", metavar="RUN", help="Folder of a new run.")]
Resume = Annotated[
    Path | None, typer.Option("--resume", metavar="RUN", help="Continue a run from its last checkpoint.")
]
RecipeFile = Annotated[
    Path | None,
    typer.Option(
        "--recipe", metavar="FILE", help="Differences from the paper's settings: a TOML file, `demo` or `photographs`."
    ),
]
Store = Annotated[str | None, typer.Option(help="Where latents wait for the next epoch: auto, device, ram or file.")]
LatentDtype = Annotated[str | None, typer.Option(help="Store latents as float32, float16 or bfloat16.")]
Every = Annotated[
    int | None,
    typer.Option(
        help="Epochs from one checkpoint to the next (default: every epoch, or less often if that would take more "
        "than a tenth of the time; 0: only when stopped).",
        min=0,
    ),
]
Timeout = Annotated[
    float | None, typer.Option(help="Seconds to wait for another process that does not answer (default: 120).")
]
ImageCount = Annotated[
    int | None,
    typer.Option(
        "--images",
        metavar="N",
        help="Images that each layer learns from in a stream (learning.each.update=batch); after the last one the "
        "first follows again. Default: whole epochs.",
        min=1,
    ),
]
Crop = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        help="Train on square crops of this many pixels, at random places of the pictures. Pictures of several sizes "
        "are cropped anyway (64 pixels, or the smallest side).",
        min=1,
    ),
]
Limit = Annotated[int | None, typer.Option(help="Use only the first images.", min=1)]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write TensorBoard events.")]

DEFAULTS: dict[str, Any] = {
    "source": "digits",
    "mask": None,
    "crop": None,
    "limit": None,
    "engine": "auto",
    "device": "auto",
    "store": "auto",
    "latent_dtype": None,
    "checkpoint_every": None,
    "timeout": 120.0,
    "image_count": None,
}
NOT_OPTIONS = ("source", "mask", "crop", "limit", "image_count")  # what `TrainingOptions` does not have


def train(
    source: Source = None,
    out: Out = None,
    resume: Resume = None,
    recipe: RecipeFile = None,
    set_: Set = None,
    mask: Mask = None,
    crop: Crop = None,
    engine: OptionalEngine = None,
    device: OptionalDevice = None,
    store: Store = None,
    latent_dtype: LatentDtype = None,
    checkpoint_every: Every = None,
    timeout: Timeout = None,
    image_count: ImageCount = None,
    limit: Limit = None,
    tensorboard: TensorBoard = False,
    quiet: Quiet = False,
) -> None:
    """Train a model: layer by layer, with a checkpoint after every epoch. Ctrl-C stops it, --resume continues it.

    With --set learning.each.update=batch the filters are updated after every batch, and no latents are stored.

    Under torchrun the batches are shared out: torchrun --nproc-per-node 4 -m whatwhere train SOURCE --out RUN
    """
    if (out is None) == (resume is None):
        raise typer.BadParameter("give either --out RUN for a new run or --resume RUN to continue one")
    given: dict[str, Any] = {
        "source": None if source is None else absolute_source(source),
        "mask": None if mask is None else absolute_mask(mask),
        "crop": crop,
        "limit": limit,
        "engine": engine,
        "device": device,
        "store": store,
        "latent_dtype": latent_dtype,
        "checkpoint_every": checkpoint_every,
        "timeout": timeout,
        "image_count": image_count,
    }
    began_with = DEFAULTS if resume is None else {**DEFAULTS, **notes_of(resume)}
    options = {name: began_with[name] if value is None else value for name, value in given.items()}
    settings = read_settings(recipe, resume, set_ or [])
    images, masks = read_images(options["source"], options["mask"], options["crop"], options["limit"])
    run(settings, images, masks, options, out or resume or Path(), resume is not None, tensorboard, quiet)


def run(
    recipe: Recipe,
    images: Images,
    masks: Images | None,
    given: dict[str, Any],
    folder: Path,
    resume: bool,
    tensorboard: bool,
    quiet: bool,
) -> None:
    """Train with a display and with Ctrl-C handled."""
    from whatwhere.cli.tensorboard import EventWriter
    from whatwhere.errors import command
    from whatwhere.learning import TrainingCallbacks, TrainingOptions, TrainingStopped
    from whatwhere.learning import train as train_model
    from whatwhere.learning.distributed import is_main_process
    from whatwhere.learning.image_stream import images_per_epoch, stream_recipe
    from whatwhere.learning.progress import TrainingProgress
    from whatwhere.learning.storage import has_checkpoint

    first, image_count = is_main_process(), given["image_count"]
    settings = {name: value for name, value in given.items() if name not in NOT_OPTIONS}
    options = TrainingOptions(**settings, notes=given)
    recipe = stream_recipe(recipe, images, image_count)  # the display needs its epochs
    size = images_per_epoch(recipe, images, image_count)
    try:
        with TrainingProgress(recipe, size, quiet=quiet or not first) as display, stop_on_signal() as stop:
            callbacks = TrainingCallbacks(stop=stop)
            if tensorboard and first:
                callbacks = replace(callbacks, on_epoch=EventWriter(folder).on_epoch)
            callbacks = display.attach(callbacks)
            train_model(
                recipe,
                images,
                folder,
                mask=masks,
                image_count=image_count,
                resume=resume,
                options=options,
                callbacks=callbacks,
            )
    except TrainingStopped as stopped:
        if first:
            typer.echo(str(stopped), err=True)
        raise typer.Exit(130) from None
    except KeyboardInterrupt:
        if first and has_checkpoint(folder / "checkpoint"):
            resume_command = command("whatwhere", "train", "--resume", folder)
            typer.echo(f"interrupted; continue from the last checkpoint with: {resume_command}", err=True)
        raise typer.Exit(130) from None
    if first and not quiet:
        typer.echo(folder / "model.safetensors")


def read_settings(file: Path | None, run: Path | None, changes: list[str]) -> Recipe:
    """The recipe of a file, of a run that is resumed, or of the paper, with the settings of --set changed."""
    from whatwhere.learning.run_reader import read_run_recipe
    from whatwhere.spec import Recipe
    from whatwhere.spec.toml import override, read_recipe

    base = Recipe.paper() if run is None else read_run_recipe(run)
    recipe = base if file is None else read_recipe(file)
    for change in changes:
        recipe = override(recipe, parse_change(change))
    return recipe


def read_images(source: str, mask: str | None, crop: int | None, limit: int | None) -> tuple[Images, Images | None]:
    """The images or their crops, and their mask, where there is one; of both only the first `limit`."""
    import numpy as np

    from whatwhere.data import load_for_training

    images, masks = load_for_training(source, mask, crop=crop)
    if limit is None or limit >= len(images):
        return images, masks
    rows = np.arange(limit)
    return images.subset(rows), None if masks is None else masks.subset(rows)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C (or SIGTERM) asks training to stop after its batch; a second Ctrl-C ends it at once, more do nothing.

    Under torchrun a worker may get the same signal twice, from the terminal and from torchrun: there only the first
    counts.
    """
    asked = interrupted = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked, interrupted
        if asked and number == signal.SIGINT and "RANK" not in os.environ:
            interrupted = True
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # to the end of the process: cleaning up is not interrupted
            raise KeyboardInterrupt
        asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            if not (interrupted and number == signal.SIGINT):
                signal.signal(number, handler)
