"""`whatwhere anomaly`: how unlike normal images others are, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.options import Device, Engine, Json, Quiet, RunOrModel, Source, Split

if TYPE_CHECKING:
    from torch import Tensor


Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the maps and of scores.csv.")]
Normal = Annotated[
    str | None, typer.Option(metavar="IMAGES", help="Normal images. Default: those that the run was trained on.")
]
Examples = Annotated[int, typer.Option(min=2, help="Use at most this many of the normal images.")]
Anywhere = Annotated[
    bool, typer.Option("--anywhere", help="Compare a place with all places of normal images (textures).")
]

RED_AT = 6.0  # standard deviations above normal at which a pixel is entirely red
BATCH = 500


def anomaly(
    run: RunOrModel,
    images: Source,
    out: Out,
    split: Split = None,
    normal: Normal = None,
    examples: Examples = 5000,
    anywhere: Anywhere = False,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Score images by how unlike normal ones they are, with a model trained on normal images.

    The folder gets a picture for each image, red where it is unlike normal ones, and `scores.csv`: the number of the
    image, its score (negative: an anomaly) and the name of its picture, the least normal first.
    """
    from dataclasses import replace

    from whatwhere import data
    from whatwhere.anomaly import AnomalyDetector
    from whatwhere.anomaly.detector import TEXTURE_INFERENCE
    from whatwhere.cli.inputs import open_run, source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.files import disk_errors, write_atomic
    from whatwhere.model.picture import png

    recipe, model = open_run(run, device)
    if anywhere:
        recipe = replace(recipe, inference=TEXTURE_INFERENCE)
    source, stages = data.load(images, split=split), Stages(quiet=quiet)
    known = data.load(normal or source_of(run))
    known = known.subset(spread(len(known), examples))
    detector = AnomalyDetector(model, recipe=recipe, aligned=not anywhere, engine=engine, device=str(model.device))
    with stages.stage(f"{known.name}: {len(known):,} normal images", 1) as advance:
        detector.fit(known[:])
        advance(1)
    rows: list[tuple[int, float, str]] = []
    with disk_errors(f"writing to {out}", "choose another folder with --out"):
        out.mkdir(parents=True, exist_ok=True)
        with stages.stage(f"scoring {source.name}", len(source)) as advance:
            for batch in source.batches(BATCH):
                v = source[batch]
                for image, score, heat in zip(v, *detector.decision_and_map(v), strict=True):
                    name = f"{len(rows):0{len(str(len(source) - 1))}d}.png"
                    write_atomic(out / name, png(overlay(image, heat)))
                    rows.append((len(rows), float(score), name))
                advance(len(v))
        rows.sort(key=lambda row: row[1])
        lines = ["image,score,map", *(f"{number},{score:.4f},{name}" for number, score, name in rows)]
        write_atomic(out / "scores.csv", ("\n".join(lines) + "\n").encode())
    report(out, rows, as_json)


def spread(count: int, most: int) -> Any:
    """At most `most` of the numbers below `count`, evenly spread."""
    import numpy as np

    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int))


def overlay(image: Tensor, heat: Tensor) -> Tensor:
    """The image [C, H, W] in grey, red where its map [H, W] is high, as bytes [H, W, 3]."""
    import torch

    grey, red = image.mean(0).clamp(0, 1)[..., None], (heat / RED_AT).clamp(0, 1)[..., None]
    colour = grey * (1 - red) + torch.tensor([1.0, 0.0, 0.0]) * red
    return (255 * colour).round().to(torch.uint8)


def report(out: Path, rows: list[tuple[int, float, str]], as_json: bool) -> None:
    from whatwhere.errors import printable

    anomalies = sum(score < 0 for _, score, _ in rows)
    if as_json:
        typer.echo(json.dumps({"folder": str(out), "images": len(rows), "anomalies": anomalies}))
    else:
        number, score, name = rows[0]
        typer.echo(
            f"{printable(out)}: {anomalies:,} of {len(rows):,} images are anomalies; the least normal is image "
            f"{number} ({score:.2f}, {name})"
        )
