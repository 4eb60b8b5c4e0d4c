"""`whatwhere train`: train a model on pictures or a recording, in a folder that it can be resumed
from."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings, UsageError, command
from whatwhere.commands.inputs import ImageInput
from whatwhere.spec import Recipe
from whatwhere.spec.execution import TrainingOptions
from whatwhere.spec.toml import read_recipe

if TYPE_CHECKING:
    from signal import _HANDLER

    from whatwhere.learning.defaults import Defaults

Kind = TypeVar("Kind")


@command(
    (ImageInput, "mask crop limit image_count rate waveforms length rise louder probe start end"),
    (TrainingOptions, "engine device store checkpoint_every timeout"),
    Recipe,
    flags="mask crop limit image_count rate waveforms length rise louder probe start end device",
)
def train(
    images: str | None = None,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    recipe: str | None = None,
    settings: Settings,
    quiet: bool = False,
) -> None:
    """Learn a model from pictures or a recording, without labels, and save it as a run.

    Training goes layer by layer. It saves a checkpoint after every epoch. Ctrl-C stops it, and
    --resume continues it.

    Without --recipe, the command chooses settings from the pictures and prints them: an input
    stage, λ, and few enough pictures to train in minutes. From a recording, it chooses the number
    and the length of the waveforms.

    Several processes can share the images: torchrun --nproc-per-node 4 -m whatwhere train IMAGES
    --out RUN (docs/howto/cluster.md).

    Parameters
    ----------
    out
        folder for a new run
    resume
        folder of a run to continue from its last checkpoint, with the same settings
    recipe
        settings to start from: paper, photographs (for restoration), signals (for recordings),
        demo, or a TOML file of differences from the paper's settings

    Examples
    --------
    $ whatwhere train pictures/ --out runs/mine
    $ whatwhere train --resume runs/mine
    $ whatwhere train recording.wav --out runs/signals --waveforms 3
    $ whatwhere train mnist --recipe paper --out runs/paper --set seed=1
    """
    from whatwhere.engines.devices import choose_device
    from whatwhere.learning.defaults import RecordingOptions, choose_defaults
    from whatwhere.learning.processes import is_main_process, processes_line

    quiet = quiet or not is_main_process()
    folder = _folder_of_run(out, resume)
    if resume is None:
        _check_new(folder)
    notes = {} if resume is None else _read_notes(resume)
    given = settings.override(_from_notes(ImageInput, notes))
    given = replace(given, source=images or given.source).absolute()
    options = settings.override(_from_notes(TrainingOptions, notes))
    # mistakes that show before the images are read, which may take long
    choose_device(options.device, options.engine)
    asked = RecordingOptions(given.waveforms, given.length, given.rise, given.louder, given.probe)
    if recipe is not None and resume is None and asked != RecordingOptions():
        raise UsageError(
            "--waveforms, --length, --rise, --louder and --probe do not work with --recipe, which"
            " sets them. Remove one of them."
        )
    if not quiet and processes_line():
        typer.echo(processes_line(), err=True)
    chosen = recipe if resume is None else resume / "recipe.toml"
    base = None if chosen is None else read_recipe(chosen)
    pictures, masks = given.for_training(
        signals=base is not None and settings.override(base).model.for_signals
    )
    start = None
    if base is None:
        defaults = choose_defaults(pictures, asked)
        base = defaults.recipe
        if not quiet:
            typer.echo(defaults.line_for(settings.override(base)), err=True)
        given = _with_default_count(given, defaults, settings)
        start = None if settings.given("model") else defaults.start
    options = replace(options, notes={**asdict(options), **asdict(given)})
    with _report_interrupts(folder), stop_on_signal() as stop:
        callbacks = ww.TrainingCallbacks(stop=stop)
        ww.train(
            pictures,
            settings.override(base),
            folder,
            mask=masks,
            image_count=given.image_count,
            resume=resume is not None,
            start=start,
            progress=not quiet,
            options=options,
            callbacks=callbacks,
        )
    if not quiet:
        typer.echo(folder / "model.safetensors")


def _folder_of_run(out: Path | None, resume: Path | None) -> Path:
    """Return the folder of a new run, or of one to continue: exactly one of them is given."""
    if out is not None and resume is None:
        return out
    if resume is not None and out is None:
        return resume
    raise UsageError("Give either --out RUN for a new run, or --resume RUN to continue one.")


def _check_new(folder: Path) -> None:
    """Raise an error if the folder for a new run already has one. All processes of torchrun find
    it, but only the first prints it."""
    from whatwhere.errors import ReportedError, RunError
    from whatwhere.learning.processes import is_main_process
    from whatwhere.learning.run_folder import check_new_run

    try:
        check_new_run(folder)
    except RunError as error:
        raise error if is_main_process() else ReportedError(str(error)) from None


def _read_notes(run: Path) -> dict[str, object]:
    """Return the images and options that a run began with."""
    from whatwhere.learning.checkpoint import Checkpoint

    return Checkpoint.load(run / "checkpoint").notes


def _with_default_count(given: ImageInput, defaults: "Defaults", settings: Settings) -> ImageInput:
    """Return the input with the default number of images, unless the user gave a number or settings
    of learning."""
    if given.image_count is not None or settings.given("learning"):
        return given
    return replace(given, image_count=defaults.image_count)


def _from_notes(kind: type[Kind], notes: dict[str, object]) -> Kind:
    """Return the options of this kind that a run recorded, and defaults for those that it did not
    record."""
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: notes[name] for name in names if name in notes})


@contextmanager
def _report_interrupts(folder: Path) -> Iterator[None]:
    """If training is stopped, print the command that continues it."""
    from whatwhere.learning import TrainingStopped
    from whatwhere.learning.checkpoint import has_checkpoint
    from whatwhere.learning.processes import is_main_process
    from whatwhere.learning.run_folder import resume_command

    try:
        yield
    except (TrainingStopped, KeyboardInterrupt) as stopped:
        then = "Nothing was saved."
        if has_checkpoint(folder / "checkpoint"):
            then = f"Continue from the last checkpoint with: {resume_command(folder)}"
        if is_main_process():
            typer.echo(str(stopped) or f"Interrupted. {then}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C (or SIGTERM) ask training to stop after its batch; a second one ends it at once.

    A process of torchrun may get one Ctrl-C twice, from the terminal and from torchrun, so for such
    a process several signals count as one.
    """
    from whatwhere.learning.processes import started_by_torchrun

    asked: list[int] = []
    may_repeat = started_by_torchrun()

    def ask(number: int, frame: object) -> None:
        asked.append(number)
        if not may_repeat:
            signal.signal(number, before[number])

    before: dict[int, _HANDLER] = {}
    for caught in (signal.SIGINT, signal.SIGTERM):
        before[caught] = signal.signal(caught, ask)
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
