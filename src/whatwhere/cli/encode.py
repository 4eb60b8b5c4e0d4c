"""`whatwhere encode`: the features of images, and where they are, as one .npz file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Device, Engine, Json, Mask, Quiet, RunOrModel, Source, Split

if TYPE_CHECKING:
    import numpy as np

Out = Annotated[Path, typer.Option(metavar="FILE", help="The .npz file to write.")]
Where = Annotated[bool, typer.Option("--where", help="Also write the pooling variables.")]
Reconstruction = Annotated[bool, typer.Option("--reconstruction", help="Also write the reconstructed images.")]


def encode(
    run: RunOrModel,
    images: Source,
    out: Out,
    split: Split = None,
    mask: Mask = None,
    where: Where = False,
    reconstruction: Reconstruction = False,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Infer the top layer's features of images with the settings of a run.

    The file holds `features` [N, B, H, W] and `labels` where there are any; with --where also `mu1`, `gamma1`, `mu2`, …
    [N, 2, B, H, W] (rows, columns) of every layer; with --reconstruction also `reconstruction` [N, C, H, W].
    A model file without its run is used with the paper's settings for inference.
    """
    from whatwhere import data, infer
    from whatwhere.cli.inputs import open_run
    from whatwhere.cli.stages import Stages
    from whatwhere.data.npz_writer import write_npz
    from whatwhere.errors import printable

    recipe, model = open_run(run, device)
    source, masks = data.load_with_mask(images, mask, split=split)
    engine_used = ""

    def batches() -> Iterator[dict[str, np.ndarray[Any, Any]]]:
        nonlocal engine_used
        with Stages(quiet=quiet).stage(f"encoding {source.name}", len(source)) as advance:
            for rows in source.batches(recipe.batch_size):
                v, M = source[rows].to(model.device), None if masks is None else masks[rows]
                solution = infer(model, v, recipe.inference, recipe.plan, mask=M, engine=engine, batch_size=len(v))
                engine_used, arrays = solution.engine, {"features": solution.features}
                if where:
                    for k, theta in enumerate(solution.latents.pooling_params, start=1):
                        arrays |= {f"mu{k}": theta.mu, f"gamma{k}": theta.gamma}
                if reconstruction:
                    arrays["reconstruction"] = model.at(*v.shape[2:]).decode(solution.latents)
                yield {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
                advance(len(v))

    shapes = write_npz(out, len(source), batches(), {} if source.labels is None else {"labels": source.labels})
    if as_json:
        typer.echo(json.dumps({"file": str(out), "engine": engine_used, "arrays": shapes}))
    else:
        arrays = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        typer.echo(f"{printable(out)}: {arrays} ({engine_used} engine)")
