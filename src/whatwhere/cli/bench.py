"""`whatwhere bench`: the speed of inference on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from whatwhere.cli.options import Device, Json

bench = typer.Typer(help="Measure speed on this machine.", no_args_is_help=True)


@bench.callback()
def _bench() -> None:
    """A group, so that further benchmarks can join the first."""


@bench.command("inference")
def inference(
    device: Device = "auto",
    images: Annotated[int, typer.Option(min=0, help="Images in the batch; 0: 100 on a CPU, 6,000 on a GPU.")] = 0,
    steps: Annotated[int, typer.Option(min=0, help="Steps of a solve; 0: 20 on a CPU, 100 on a GPU.")] = 0,
    repeats: Annotated[int, typer.Option(min=1, help="Timed solves; the median and the best are reported.")] = 5,
    only: Annotated[str, typer.Option(help="Only cases whose name contains this.")] = "",
    out: Annotated[Path | None, typer.Option(help="Also write every number to this JSON file.")] = None,
    as_json: Json = False,
) -> None:
    """Time every engine on the same images: image-iterations per second."""
    from whatwhere.cli.speed import bench_inference, speedup_rows
    from whatwhere.files import disk_errors, write_atomic
    from whatwhere.inference import machine
    from whatwhere.learning.distributed import choose_device

    chosen_device = choose_device(device)
    gpu = chosen_device.type == "cuda"
    measurements = bench_inference(
        chosen_device,
        images=images or (6000 if gpu else 100),
        steps=steps or (100 if gpu else 20),
        repeats=repeats,
        only=only,
        log=lambda line: typer.echo(line, err=as_json),
    )
    rows = speedup_rows(measurements)
    result = json.dumps({"benchmark": "inference", "machine": machine(), "measurements": rows}, indent=1)
    if as_json:
        typer.echo(result)
    else:
        typer.echo("\nspeed-up over the reference engine, best against best")
        for row in rows:
            typer.echo(f"{row['case']:<32} {row['engine']:<10} {row['threads']} thread(s)  {row['speedup']:>8.2f} ×")
    if out is not None:
        with disk_errors(f"writing {out}", "choose another file with --out; the numbers are printed above"):
            write_atomic(out, (result + "\n").encode())
