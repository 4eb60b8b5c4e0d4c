"""The arguments and options that several commands share: one name, one help text, one meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

RunOrModel = Annotated[
    Path,
    typer.Argument(
        metavar="RUN", help="A run folder, a model file (.safetensors), or a model known by name (whatwhere models)."
    ),
]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]

SOURCE_HELP = (
    "digits (included), mnist, fashion-mnist or kmnist; an IDX, .npy or .npz file; a picture or a folder of pictures. "
    "A name of a data set comes first: write ./digits for a folder of that name."
)
Source = Annotated[str, typer.Argument(metavar="IMAGES", help=SOURCE_HELP)]
OptionalSource = Annotated[str | None, typer.Argument(metavar="IMAGES", help=f"{SOURCE_HELP} Default: the run's own.")]
Split = Annotated[str | None, typer.Option(help="train or test; only for data sets known by name.")]

Mask = Annotated[
    str | None,
    typer.Option(
        metavar="MASK",
        help="Unknown pixels: a picture, a folder or an array file, white where pixels are known and black where not, "
        "one for all images or one for each; alpha: transparent pixels; nan: NaN in a file of floats.",
    ),
]

Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, such as learning.each.epochs=5; repeatable."),
]

Preset = Annotated[
    Literal["coding", "recipe"],
    typer.Option(
        help="Settings of inference. coding: those of the run, but with momentum and until the cost no longer changes, "
        "for sparse codes. recipe: those of the run as they are, by default the paper's 50 steps, which classify uses."
    ),
]
LearnedSteps = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="learned",
        help="learned: take the steps that `whatwhere distill` saved next to the model, with their settings; "
        "learned-5: those of 5 steps.",
    ),
]
InferenceSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a setting of inference, such as inference.lam=auto; repeatable."
    ),
]

ENGINE_HELP = "auto, or an engine listed by `whatwhere info`."
DEVICE_HELP = "auto, cpu, cuda, cuda:1, …"
Engine = Annotated[str, typer.Option(help=ENGINE_HELP)]
Device = Annotated[str, typer.Option(help=DEVICE_HELP)]
OptionalEngine = Annotated[str | None, typer.Option("--engine", help=f"{ENGINE_HELP} Default: auto, or the run's own.")]
OptionalDevice = Annotated[str | None, typer.Option("--device", help=f"{DEVICE_HELP} Default: auto, or the run's own.")]

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print only the result and errors.")]
