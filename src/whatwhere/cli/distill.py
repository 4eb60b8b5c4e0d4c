"""`whatwhere distill`: learn a few steps of inference that do the work of many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Device, Engine, InferenceSet, Json, OptionalSource, Quiet, RunOrModel

if TYPE_CHECKING:
    from whatwhere.data import Images

Steps = Annotated[int, typer.Option(metavar="K", help="How many steps.", min=1)]
Batches = Annotated[int, typer.Option(help="Batches to learn from; random images each.", min=1)]
BatchSize = Annotated[int, typer.Option(help="Images in a batch.", min=1)]
LearningRate = Annotated[float, typer.Option(help="Of Adam, at the beginning.", min=0)]
Imitation = Annotated[
    float, typer.Option(help="Weight of the distance from the features of 50 plain steps; 0: the cost alone.", min=0)
]
Untied = Annotated[
    bool, typer.Option("--untied/--tied", help="Learn filters for the pass up, too, or only the sizes of the steps.")
]
Seed = Annotated[int, typer.Option(help="Of the choice of images.")]

HELD_OUT = 500  # images at most, and at most a tenth


def distill(
    run: RunOrModel,
    images: OptionalSource = None,
    steps: Steps = 5,
    batches: Batches = 200,
    batch_size: BatchSize = 20,
    learning_rate: LearningRate = 0.1,
    imitation: Imitation = 10.0,
    untied: Untied = True,
    seed: Seed = 0,
    set_: InferenceSet = None,
    engine: Engine = "auto",
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn K steps of inference that reach the cost of many plain steps, from images without labels.

    They are saved next to the model, as inference-K.safetensors, for `encode` and `classify` with --steps learned, and
    for `infer(…, steps="learned")`. The settings of inference are those of the run. The last tenth of the images, at
    most 500, is held out: the mean cost after the learned steps is reported on it, next to that of plain steps.
    """
    from dataclasses import replace

    from whatwhere.cli.inputs import inference_settings, open_run, source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.data import load_for_training
    from whatwhere.errors import printable
    from whatwhere.inference import infer, resolve_lam, unrolled
    from whatwhere.inference.checks import in_model_units
    from whatwhere.spec import LineSearch

    recipe, model = open_run(run, device)
    training, held_out = split(in_model_units(model.spec, load_for_training(images or source_of(run))[0]))
    spec = resolve_lam(model, training, inference_settings(recipe, "recipe", set_ or []))
    plain = replace(spec, step=LineSearch(momentum=spec.momentum), steps=max(50, steps))
    network = unrolled.UnrolledInference(model, steps, plain, untied=untied)
    stages = Stages(quiet=quiet)
    with stages.stage(f"learning {steps} steps from {training.name}", batches) as advance:
        unrolled.distill(
            network, training, batches=batches, batch_size=batch_size, learning_rate=learning_rate,
            imitation=imitation, engine=engine, seed=seed,
            progress=lambda number, cost: advance(1),
        )  # fmt: skip
    learned = network.learned
    with stages.stage(f"measuring {len(held_out):,} held-out images", 2) as advance:
        costs = []
        for used, settings in ((learned.model_for(model), learned.spec), (model, plain)):
            costs.append(infer(used, held_out, settings, engine=engine).stats.cost.mean(1).tolist())
            advance(1)
    file = learned.save(model.source or run)
    result = {f"{steps} learned steps": costs[0][-1], f"{steps} plain steps": costs[1][steps]}
    result[f"{plain.steps} plain steps"] = costs[1][-1]
    if as_json:
        typer.echo(json.dumps({"file": str(file), "images": len(held_out), "cost": result}))
    else:
        typer.echo(f"{printable(file)}: mean cost of {len(held_out):,} images that it has not learned from")
        typer.echo("\n".join(f"{cost:10.4g}  after {name}" for name, cost in result.items()))


def split(images: Images) -> tuple[Images, Images]:
    """The images to learn from, and those held out."""
    import numpy as np

    from whatwhere.errors import ImageError

    if len(images) < 2:
        raise ImageError(f"{len(images)} image was given; expected at least 2: some are held out to measure the cost")
    rows, count = np.arange(len(images)), max(1, min(HELD_OUT, len(images) // 10))
    return images.subset(rows[:-count]), images.subset(rows[-count:])
