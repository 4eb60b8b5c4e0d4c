"""`whatwhere finetune`: train filters, steps and a linear head with labels, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whatwhere.cli.classify import LabelFile, TestLabels, TestSource, read_sets, result_lines
from whatwhere.cli.options import Device, Json, OptionalSource, Quiet, RunOrModel

if TYPE_CHECKING:
    from whatwhere.finetuning import FinetuneEpoch

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Folder of the fine-tuned model.")]
Steps = Annotated[int, typer.Option(metavar="K", min=1, help="Unrolled steps of inference.")]
Distill = Annotated[
    int, typer.Option(metavar="BATCHES", min=0, help="First learn the steps from so many batches, without labels.")
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Passes over the labelled images. Default: 9, more where there are few.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="Images per update.")]
Rate = Annotated[float, typer.Option(min=0, help="Of Adam, at its peak.")]
Dropout = Annotated[float, typer.Option(min=0, help="Share of the descriptor that each update leaves out.")]
Reconstruction = Annotated[
    float, typer.Option(metavar="WEIGHT", min=0, help="Weight of the cost of inference in the loss.")
]
Few = Annotated[int | None, typer.Option("--few", metavar="N", help="Learn from only N labels, as many of each class.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the order of the images, dropout, and the choice of --few.")]


def finetune(
    run: RunOrModel,
    out: Out,
    images: OptionalSource = None,
    labels: LabelFile = None,
    test: TestSource = None,
    test_labels: TestLabels = None,
    few: Few = None,
    steps: Steps = 5,
    distill: Distill = 200,
    epochs: Epochs = None,
    batch_size: BatchSize = 500,
    learning_rate: Rate = 1e-3,
    dropout: Dropout = 0.5,
    reconstruction: Reconstruction = 0.0,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fine-tune the model of a run with labels, and test it as a classifier.

    A classification loss goes back through K unrolled steps of inference into the filters, the sizes of the steps and a
    linear head on the descriptor of the run. The folder holds the fine-tuned model, its steps (--steps learned of the
    commands `encode` and `classify`) and its head (`whatwhere.load_finetuned`).
    """
    from dataclasses import asdict

    from whatwhere.cli.inputs import open_run, source_of
    from whatwhere.cli.stages import Stages
    from whatwhere.data.splits import few_labels
    from whatwhere.errors import printable
    from whatwhere.finetuning import FinetuneSpec
    from whatwhere.finetuning.folder import check_unused
    from whatwhere.finetuning.trainer import finetune as finetune_model
    from whatwhere.finetuning.trainer import passes

    check_unused(out)
    recipe, model = open_run(run, device)
    training, held_out = read_sets(images or source_of(run), labels, test, test_labels)
    assert training.labels is not None
    assert held_out.labels is not None
    unlabelled = training
    if few is not None:
        training = training.subset(few_labels(training.labels, few, seed))
    given = {} if epochs is None else {"epochs": epochs, "least_updates": 0}
    spec = FinetuneSpec(
        steps=steps, distill=distill, batch_size=batch_size, learning_rate=learning_rate, dropout=dropout,
        reconstruction=reconstruction, seed=seed, **given,
    )  # fmt: skip
    stages = Stages(quiet=quiet)
    with stages.stage(f"fine-tuning with {len(training):,} labels", passes(len(training), spec)[1]) as advance:

        def report(epoch: FinetuneEpoch) -> None:
            advance(1)
            stages.console.print(epoch_line(epoch), soft_wrap=True)

        tuned = finetune_model(
            model, training, spec=spec, out=out, unlabelled=unlabelled, recipe=recipe, device=device, progress=report
        )
    with stages.stage(f"testing on {len(held_out):,} images", 1):
        score, some = tuned.score(held_out, held_out.labels), held_out[: min(len(held_out), 1000)]
        costs = {"before": tuned.cost_before(some), "after": tuned.cost(some)}
    if as_json:
        facts: dict[str, Any] = {"folder": str(out), "training": training.name, "labels": len(training)}
        typer.echo(json.dumps({**facts, "test": held_out.name, **asdict(score), "cost": costs}))
        return
    typer.echo(f"{training.name} ({len(training):,} labels), tested on {held_out.name} ({len(held_out):,} images)")
    typer.echo("\n".join(result_lines(score, (), training.classes)))
    costs_line = f"{costs['before']:.4g} before, {costs['after']:.4g} after fine-tuning"
    typer.echo(f"\ncost of a test image after {steps} steps: {costs_line}")
    typer.echo(printable(out / "model.safetensors"))


def epoch_line(epoch: FinetuneEpoch) -> str:
    cost = "" if epoch.cost is None else f"  cost {epoch.cost:.4g}"
    return (
        f"epoch {epoch.epoch}  loss {epoch.loss:.4f}  error in training {epoch.error:.2%}{cost}  {epoch.seconds:.1f} s"
    )
