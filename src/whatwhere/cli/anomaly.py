"""`whatwhere anomaly`: how unlike normal images others are, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from whatwhere.cli.command import command
from whatwhere.cli.inputs import EXECUTION, open_run, read_images, source_of
from whatwhere.cli.settings import Settings
from whatwhere.spec.checks import check_fields, require_count
from whatwhere.spec.training import TrainingOptions

if TYPE_CHECKING:
    from torch import Tensor

RED_AT = 6.0  # standard deviations above normal at which a pixel is entirely red
BATCH = 500


@dataclass(frozen=True, kw_only=True)
class AnomalyOptions:
    """What `anomaly` compares with.

    anywhere  compare a place with all places of normal images (textures)
    examples  use at most this many of the normal images
    """

    anywhere: bool = False
    examples: int = 5000

    def __post_init__(self) -> None:
        check_fields(self)
        require_count("examples", self.examples, least=2)


@command(AnomalyOptions, EXECUTION, flags="anywhere device")
def anomaly(
    run: Path,
    images: str,
    *,
    out: Path,
    overwrite: bool = False,
    normal: str | None = None,
    settings: Settings,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Score images by how unlike normal ones they are, with a model trained on normal images.

    The folder gets a picture for each image, red where it is unlike normal ones, and `scores.csv`: the number of the
    image, its score (negative: an anomaly) and the name of its picture, the least normal first.

    out     folder of the maps and of scores.csv
    normal  normal images; default: those that the run was trained on
    """
    from dataclasses import replace

    from whatwhere.anomaly import AnomalyDetector
    from whatwhere.anomaly.detector import TEXTURE_INFERENCE
    from whatwhere.cli.outputs import claim, png, write
    from whatwhere.cli.stages import Stages

    execution, options, stages = settings.of(TrainingOptions), settings.of(AnomalyOptions), Stages(quiet)
    recipe, model = open_run(run, execution.device)
    if options.anywhere:
        recipe = replace(recipe, inference=TEXTURE_INFERENCE)
    source, known = read_images(images), read_images(normal or source_of(run))
    known = known.subset(spread(len(known), options.examples))
    detector = AnomalyDetector(
        model, recipe=recipe, aligned=not options.anywhere, engine=execution.engine, device=str(model.device)
    )
    names = [f"{i:0{len(str(len(source) - 1))}d}.png" for i in range(len(source))]
    table = out / "scores.csv"
    claim([table, *(out / name for name in names)], run, images, normal, folder=out, overwrite=overwrite)
    with stages.stage(f"{known.name}: {len(known):,} normal images", 1) as advance:
        detector.fit(known[:])
        advance(1)
    scores: list[float] = []
    with stages.stage(f"scoring {source.name}", len(source)) as advance:
        for batch in source.batches(BATCH):
            v = source[batch]
            for image, score, heat in zip(v, *detector.decision_and_map(v), strict=True):
                write(out / names[len(scores)], png(overlay(image, heat)))
                scores.append(float(score))
            advance(len(v))
    rows = sorted(zip(range(len(names)), scores, names, strict=True), key=lambda row: row[1])
    lines = ["image,score,map", *(f"{number},{score:.4f},{name}" for number, score, name in rows)]
    write(table, ("\n".join(lines) + "\n").encode())
    report(out, rows, json_)


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
