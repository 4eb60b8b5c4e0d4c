"""`whatwhere encode`: the codes of images, what and where, as one .npz file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.options import (
    Device,
    Engine,
    InferenceSet,
    Json,
    LearnedSteps,
    Mask,
    Preset,
    Quiet,
    RunOrModel,
    Source,
    Split,
)

Out = Annotated[Path, typer.Option(metavar="FILE", help="The .npz file to write.")]
Where = Annotated[bool, typer.Option("--where", help="Also write the pooling variables, which decoding needs.")]
Reconstruction = Annotated[bool, typer.Option("--reconstruction", help="Also write the reconstructed images.")]
Dense = Annotated[bool, typer.Option("--dense", help="Write all features, not only those that are not 0.")]
Tile = Annotated[
    int | None,
    typer.Option(
        metavar="SIZE",
        help="Infer pictures in overlapping tiles of this many pixels; 0: never. Default: 256, for pictures of more "
        "than 1,048,576 pixels.",
        min=0,
    ),
]
Overlap = Annotated[int, typer.Option(metavar="PIXELS", help="What tiles next to each other share.", min=0)]


def encode(
    run: RunOrModel,
    images: Source,
    out: Out,
    split: Split = None,
    mask: Mask = None,
    where: Where = False,
    reconstruction: Reconstruction = False,
    dense: Dense = False,
    tile: Tile = None,
    overlap: Overlap = 64,
    preset: Preset = "coding",
    steps: LearnedSteps = None,
    set_: InferenceSet = None,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Infer the top layer's features of images with the model of a run. Pictures may be of several sizes.

    The file holds the features that are not 0, which `whatwhere.load_codes` reads, and `labels` and `names` where there
    are any; with --where also the pooling variables of the regions in use, with --reconstruction `reconstruction`
    [N, C, H, W]. With --dense it holds `features` [N, B, H, W], and with --where `mu1`, `gamma1`, `mu2`, …
    [N, 2, B, H, W] (rows, columns) of every layer.

    By default the codes are converged (--preset coding). --preset recipe takes the settings of the run as they are; a
    model file without its run has the paper's recipe. --steps learned takes the few steps of `whatwhere distill`.
    """
    from dataclasses import replace

    from whatwhere.cli.encoding import Encoder
    from whatwhere.cli.inputs import inference_settings, learned_settings, open_run
    from whatwhere.cli.stages import Stages
    from whatwhere.data import load_groups
    from whatwhere.errors import printable
    from whatwhere.inference import resolve_lam

    recipe, model = open_run(run, device)
    groups = load_groups(images, mask, split=split)
    most, masks = max(groups, key=lambda group: len(group[0]))
    if steps is None:
        spec = resolve_lam(model, most, inference_settings(recipe, preset, set_ or []), recipe.plan, mask=masks)
        recipe = replace(recipe, inference=spec)
    else:
        model, inference = learned_settings(model, steps, set_ or [])
        recipe = replace(recipe, inference=inference, plan=())
    encoder = Encoder(recipe, model, groups, engine, where, reconstruction, tile, overlap)
    title = groups[0][0].name if len(groups) == 1 else f"{images} ({len(groups)} sizes or kinds)"
    with Stages(quiet=quiet).stage(f"encoding {title}", encoder.pieces) as advance:
        shapes = encoder.write_dense(out, advance) if dense else encoder.write_sparse(out, advance)
    if as_json:
        typer.echo(json.dumps({"file": str(out), "engine": encoder.engine_used, "arrays": shapes}))
    else:
        arrays = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        typer.echo(f"{printable(out)}: {arrays} ({encoder.engine_used} engine)")
