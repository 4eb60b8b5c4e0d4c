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
    from whatwhere.cli.speed import bench_inference, speedup_rows
    from whatwhere.inference import machine
    from whatwhere.inference.environment import choose_device

    home = choose_device(settings.of(TrainingOptions).device)
    usual_images, usual_steps = (6000, 100) if home.type == "cuda" else (100, 20)
    rows = speedup_rows(
        bench_inference(
            home,
            images=images or usual_images,
            steps=steps or usual_steps,
            repeats=5,
            log=lambda line: typer.echo(line, err=json_),
        )
    )
    if json_:
        typer.echo(json.dumps({"benchmark": "inference", "machine": machine(), "measurements": rows}, indent=1))
        return
    typer.echo("\nspeed-up over the reference engine, best against best")
    for row in rows:
        typer.echo(f"{row['case']:<26} {row['engine']:<10} {row['threads']} thread(s)  {row['speedup']:>8.2f} ×")
