"""`whatwhere bench`: the speed of inference on this machine."""

from __future__ import annotations

import json

import typer

from whatwhere.cli.command import command
from whatwhere.cli.settings import Settings
from whatwhere.spec.training import TrainingOptions


@command((TrainingOptions, "device"), flags="device")
def bench(*, images: int | None = None, steps: int | None = None, settings: Settings, json_: bool = False) -> None:
    """Time every engine on the same images: image-iterations per second, and the speed-up over the reference engine.

    images  in the batch; default: 100 on a CPU, 6,000 on a GPU
    steps   of a solve; default: 20 on a CPU, 100 on a GPU
    """
    from whatwhere.cli.speed import bench_inference
    from whatwhere.inference import machine
    from whatwhere.inference.environment import choose_device

    home, rows = choose_device(settings.of(TrainingOptions).device), []
    usual_images, usual_steps = (6000, 100) if home.type == "cuda" else (100, 20)
    for row in bench_inference(home, images=images or usual_images, steps=steps or usual_steps, repeats=5):
        rows.append(row)
        measured = f"{row['median']:>14,.0f} image-iterations/s {row['speedup']:>8.2f} × the reference"
        typer.echo(f"{row['case']:<26} {row['engine']:<10} {row['threads']} thread(s) {measured}", err=json_)
    if json_:
        typer.echo(json.dumps({"benchmark": "inference", "machine": machine(), "measurements": rows}, indent=1))
