"""`whatwhere bench`: measure the speed of inference with every engine, on the same digits and in
one process.

The unit is the image-iteration: one step of inference for one image. Sparse engines are faster on
sparse features, so the command uses a trained model and warms up the latents with one solve.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from whatwhere.commands.builder import Settings, command
from whatwhere.spec import InferenceSpec, LineSearch, Phase, Power
from whatwhere.spec.execution import Execution

if TYPE_CHECKING:
    import torch

    from whatwhere.engines import Engine
    from whatwhere.model import Problem


@command((Execution, "device"), flags="device")
def bench(
    *, images: int | None = None, steps: int | None = None, settings: Settings, json_: bool = False
) -> None:
    """Measure how fast each engine is on this machine.

    Every engine solves the same images. The result is in image-iterations per second, with the
    speed-up over the reference engine.

    Parameters
    ----------
    images
        number of images in a batch; default: 100 on a CPU, 6,000 on a GPU
    steps
        number of steps; default: 20 on a CPU, 100 on a GPU

    Examples
    --------
    $ whatwhere bench
    $ whatwhere bench --device cuda --json
    """
    from whatwhere.engines.devices import choose_device

    home = choose_device(settings.of(Execution).device)
    rows = []
    usual_images, usual_steps = (6000, 100) if home.type == "cuda" else (100, 20)
    for row in bench_inference(
        home, images=images or usual_images, steps=steps or usual_steps, repeats=5
    ):
        rows.append(row)
        measured = (
            f"{row['median']:>14,.0f} image-iterations/s {row['speedup']:>8.2f} × the reference"
        )
        typer.echo(
            f"{row['case']:<26} {row['engine']:<10} {row['threads']} thread(s) {measured}",
            err=json_,
        )
    if json_:
        typer.echo(json.dumps({"benchmark": "inference", "measurements": rows}, indent=1))


def cases(steps: int) -> dict[str, tuple[Phase, InferenceSpec]]:
    """Return the paper's settings in training and at test, for the top layer and for layer 1."""
    training = InferenceSpec(
        lam=0.5, penalty=Power(alpha=0.5), step=LineSearch(per="batch"), steps=steps
    )
    test = InferenceSpec(lam=5.0, steps=steps)
    joint = Phase(layer=2, update_pooling=(1, 2))
    layer_1 = Phase(layer=1, update_pooling=(1,))
    return {
        "joint, batch step, α ½": (joint, training),
        "joint, image step, α 1": (joint, test),
        "layer 1, batch step, α ½": (layer_1, replace(training, lam=2.0)),
        "layer 1, image step, α 1": (layer_1, test),
    }


def bench_inference(
    device: "torch.device", *, images: int, steps: int, repeats: int
) -> Iterator[dict[str, object]]:
    """Yield the image-iterations per second of every engine that supports a case, on a CPU with one
    thread and with two.

    `speedup` compares an engine's best time with the reference engine's best time, with the same
    number of threads.
    """
    from whatwhere.data import load
    from whatwhere.engines import ENGINES
    from whatwhere.learning import read_run
    from whatwhere.model import Problem

    model = read_run("mnist").model.to(device)
    digits = load("digits")
    v = digits[[row % len(digits) for row in range(images)]].to(device)
    for case, (phase, spec) in cases(steps).items():
        problem = Problem(model, v, phase, spec)
        for threads in (1, 2) if device.type == "cpu" else (1,):
            reference = 0.0
            for name, engine in reversed(ENGINES.items()):  # the reference first
                if engine.unsupported_reason(problem) is not None:
                    continue
                seconds = list(_time_solves(engine, problem, repeats, threads))
                best, median = (
                    images * steps / span for span in (min(seconds), statistics.median(seconds))
                )
                reference = reference or best
                facts = {
                    "case": case,
                    "engine": name,
                    "threads": threads,
                    "images": images,
                    "steps": steps,
                }
                yield {
                    **facts,
                    "median": median,
                    "best": best,
                    "seconds": seconds,
                    "speedup": best / reference,
                }


def _time_solves(
    engine: "Engine", problem: "Problem", repeats: int, threads: int
) -> Iterator[float]:
    """Warm up, then time whole solves that start from the warm latents."""
    import torch

    synchronise: Callable[[], None] = (
        torch.cuda.synchronize if problem.images.is_cuda else lambda: None
    )
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad():
            problem = replace(problem, latents=engine.solve(problem).latents)
            for _ in range(repeats):
                synchronise()
                start = time.perf_counter()
                engine.solve(problem)
                synchronise()
                yield time.perf_counter() - start
    finally:
        torch.set_num_threads(before)
