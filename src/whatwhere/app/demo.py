"""`whatwhere demo`: what the program does, on the embedded digits, in a few minutes."""

import json
from pathlib import Path

import typer

from whatwhere.commands.builder import command


@command()
def demo(
    *,
    out: Path = Path("runs/demo"),
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Learn from 5,000 embedded digits, classify 2,000 others, and write a report with pictures.

    This takes one to three minutes on two cores and needs no download.

    Parameters
    ----------
    out
        folder for the run and its report

    Examples
    --------
    $ whatwhere demo
    $ whatwhere demo --out runs/first
    """
    from whatwhere.app.demo_run import REPORT, few_label_errors, run_demo, svm_errors
    from whatwhere.commands.outputs import Stages

    result = run_demo(out, Stages(quiet).stage, overwrite=overwrite)
    if json_:
        typer.echo(json.dumps({**result, "report": str(out / REPORT)}))
        return
    few = (
        "test error with few labels: a graph assigns a class to every training digit, and a"
        " linear SVM learns from these classes"
    )
    for title, errors in (
        ("test error of a linear SVM", svm_errors(result)),
        (few, few_label_errors(result)),
    ):
        typer.echo("\n".join([title, *(f"  {name:<12} {words}" for name, words in errors.items())]))
    seconds = result["seconds"]
    learning = result["learning_seconds"]
    typer.echo(
        f"Took {seconds:.0f} s ({learning:.0f} s to learn the features). Open {out / REPORT}"
    )
