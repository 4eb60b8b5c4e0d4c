"""`whatwhere distill`: learn a few steps of inference that reach the cost of many."""

import json
from dataclasses import replace
from pathlib import Path

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import EXECUTION, ImageInput, open_run, source_of
from whatwhere.commands.old_forms import Reordered
from whatwhere.commands.outputs import Stages
from whatwhere.errors import InvalidImages, plural, printable
from whatwhere.files import disk_errors
from whatwhere.spec import LineSearch, Recipe
from whatwhere.spec.execution import Execution
from whatwhere.spec.inference import DistillSpec


@command(
    DistillSpec,
    EXECUTION,
    (Recipe, "inference"),
    flags="device",
    old=(Reordered("run images", "run --images"),),
)
def distill(
    run: Path,
    *,
    images: str | None = None,
    steps: int = 5,
    settings: Settings,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Make inference faster: learn a few steps that reach the cost of many.

    The command learns from images without labels. It saves the steps next to the model, as
    inference-K.safetensors; `encode` and `classify` use them with --preset learned. Inference uses
    the settings of the run. The command holds out the last tenth of the images, at most 500, and
    reports their mean cost after the learned steps and after plain steps.

    Parameters
    ----------
    images
        as for `train`; default: the images that the run was trained on
    steps
        number of steps

    Examples
    --------
    $ whatwhere distill runs/mine --steps 5
    $ whatwhere encode pictures/ runs/mine --out codes.npz --preset learned
    """
    import numpy as np

    from whatwhere.inference import resolve_lam
    from whatwhere.inference.target import in_model_units

    execution = settings.of(Execution)
    spec = settings.of(DistillSpec)
    stages = Stages(quiet)
    recipe, model = open_run(run, execution.device, execution.engine)
    given, _ = ImageInput(source=images or source_of(run)).for_training()
    given = in_model_units(model.spec, given)
    if len(given) < 2:
        raise InvalidImages(
            "1 image",
            "at least 2, because the command learns from some and measures the cost on the others",
        )
    rows = np.arange(len(given))
    count = max(1, min(500, len(given) // 10))
    training = given.subset(rows[:-count])
    held_out = given.subset(rows[-count:])
    inference = resolve_lam(model, training, settings.override(recipe).inference)
    plain = replace(inference, step=LineSearch(momentum=inference.momentum), steps=max(50, steps))
    network = ww.UnrolledInference(model, steps, plain, untied=True)
    with stages.stage(f"learning {steps} steps from {training.name}", spec.batches) as advance:
        ww.distill(
            network,
            training,
            spec,
            engine=execution.engine,
            progress=lambda number, cost: advance(1),
        )
    learned = network.learned
    with stages.stage(f"measuring {len(held_out):,} held-out images", 2) as advance:
        costs = []
        for used, how in ((learned.model_for(model), learned.spec), (model, plain)):
            costs.append(
                ww.infer(used, held_out, how, engine=execution.engine).stats.cost.mean(1).tolist()
            )
            advance(1)
    place = model.source or run
    with disk_errors(
        f"writing the learned steps of {place}",
        "free some disk space, or copy the model to another folder",
    ):
        file = learned.save(place)
    result = {f"{steps} learned steps": costs[0][-1], f"{steps} plain steps": costs[1][steps]}
    result[f"{plain.steps} plain steps"] = costs[1][-1]
    if json_:
        typer.echo(json.dumps({"file": str(file), "images": len(held_out), "cost": result}))
    else:
        typer.echo(f"{printable(file)}: mean cost of {plural(len(held_out), 'held-out image')}")
        typer.echo("\n".join(f"{cost:10.4g}  after {name}" for name, cost in result.items()))
