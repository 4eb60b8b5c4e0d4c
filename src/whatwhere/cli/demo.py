"""`whatwhere demo`: what the program does, on the embedded digits, in a few minutes."""

import json
from pathlib import Path

import typer

from whatwhere.cli.command import command


@command()
def demo(*, out: Path = Path("runs/demo"), overwrite: bool = False, json_: bool = False, quiet: bool = False) -> None:
    """Learn two layers from 5,000 digits, classify 2,000 others by all labels and by few, and write a report.

    out  folder of the run and its report
    """
    from whatwhere.cli.demo_run import run_demo
    from whatwhere.cli.outputs import Stages

    done = run_demo(out, Stages(quiet).stage, overwrite=overwrite)
    if json_:
        typer.echo(json.dumps({**done.table(), "report": str(done.report)}))
        return
    typer.echo("test error of a linear SVM")
    for score in done.scores:
        typer.echo(f"  {score.name:<12} {score}")
    typer.echo("test error with few labels: a graph gives all training digits a class, a linear SVM learns from these")
    for few in done.few_labels:
        typer.echo(f"  {f'{few.labels} labels':<12} {few}")
    typer.echo(f"{done.seconds:.0f} s, of which {done.learning_seconds:.0f} s of learning; see {done.report}")
