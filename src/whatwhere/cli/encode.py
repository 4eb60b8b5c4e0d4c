"""`whatwhere encode`: the features of images, and where they are, into one .npz file."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import numpy as np

Run = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")]
Source = Annotated[
    str, typer.Argument(metavar="IMAGES", help="A named set such as digits, an IDX, .npy or .npz file, or a folder.")
]
Out = Annotated[Path, typer.Option(metavar="FILE", help="The .npz file to write.")]
Split = Annotated[str | None, typer.Option(help="train or test, for named sets.")]
Where = Annotated[bool, typer.Option("--where", help="Write the pooling variables, too.")]
Reconstruction = Annotated[bool, typer.Option("--reconstruction", help="Write the reconstructed images, too.")]
Engine = Annotated[str, typer.Option(help="auto, or one that `whatwhere info` names.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
Json = Annotated[bool, typer.Option("--json", help="Print what was written as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but the result and errors.")]


def encode(
    run: Run,
    images: Source,
    out: Out,
    split: Split = None,
    where: Where = False,
    reconstruction: Reconstruction = False,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Infer the top layer's features of images by a run's recipe.

    The file holds `features` [N, B, H, W] and `labels` where there are any; with --where also `mu1`, `gamma1`, `mu2`, …
    [N, 2, B, H, W] (rows, columns) of every layer; with --reconstruction also `reconstruction` [N, C, H, W].
    """
    from whatwhere import data, infer
    from whatwhere.cli.inputs import open_run
    from whatwhere.cli.stages import Stages

    recipe, model = open_run(run, device)
    source = data.load(images, split=split)
    used = ""

    def batches() -> Iterator[dict[str, np.ndarray]]:
        nonlocal used
        with Stages(quiet=quiet).stage(f"encoding {source.name}", len(source)) as advance:
            for rows in source.batches(recipe.batch_size):
                v = source[rows].to(model.device)
                solution = infer(model, v, recipe.inference, recipe.plan, engine=engine, batch_size=len(v))
                used, arrays = solution.engine, {"features": solution.features}
                if where:
                    for k, theta in enumerate(solution.latents.pooling_params, start=1):
                        arrays |= {f"mu{k}": theta.mu, f"gamma{k}": theta.gamma}
                if reconstruction:
                    weights = model.weights(solution.latents.pooling_params, *v.shape[2:])
                    arrays["reconstruction"] = model.reconstruct(solution.features, weights)
                yield {name: tensor.cpu().numpy() for name, tensor in arrays.items()}
                advance(len(v))

    fixed = {} if source.labels is None else {"labels": source.labels}
    shapes = write_npz(out, len(source), batches(), fixed)
    if as_json:
        typer.echo(json.dumps({"file": str(out), "engine": used, "arrays": shapes}))
    else:
        typer.echo(f"{out}: " + ", ".join(f"{name} {shape}" for name, shape in shapes.items()) + f" ({used} engine)")


def write_npz(
    path: Path, count: int, batches: Iterator[dict[str, np.ndarray]], fixed: dict[str, np.ndarray]
) -> dict[str, list[int]]:
    """Write arrays of `count` rows that come batch by batch, one batch in memory at a time: name → shape.

    The arrays grow as files beside `path` and are joined at the end; `path` appears whole or not at all.
    """
    import numpy as np

    from whatwhere.errors import RunError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
            growing: dict[str, np.ndarray] = {}
            done = 0
            for batch in batches:
                for name, rows in batch.items():
                    if name not in growing:
                        file = os.path.join(folder, f"{name}.npy")
                        shape = (count, *rows.shape[1:])
                        growing[name] = np.lib.format.open_memmap(file, "w+", dtype=rows.dtype, shape=shape)
                    growing[name][done : done + len(rows)] = rows
                done += len(next(iter(batch.values())))
            shapes = {name: list(array.shape) for name, array in (growing | fixed).items()}
            for name, array in fixed.items():
                np.save(os.path.join(folder, f"{name}.npy"), array)
            growing.clear()
            whole = os.path.join(folder, "whole.npz")
            with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
                for name in shapes:
                    archive.write(os.path.join(folder, f"{name}.npy"), f"{name}.npy")
            os.replace(whole, path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror or error}") from None
    return shapes
