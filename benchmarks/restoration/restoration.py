"""Denoising and inpainting: whatwhere against SPORCO, scikit-image and BM3D on the same damaged
pictures.

    python -m benchmarks.restoration.restoration choose tv nlm                  # settings, on two
    validation
    crops python -m benchmarks.restoration.restoration run tv nlm biharmonic input    # the table's
    pictures, one line of JSON for a cell
    python -m benchmarks.restoration.restoration tables                         # Markdown

Cells that the results hold already are not computed again, so the run can be stopped and continued,
and methods can run in different environments (SPORCO needs numpy below 2): results meet in a file.
Time is that of the whole call, after a first call on a small crop that compiles and plans
transforms; processor seconds are of all threads together.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.restoration.restoration_methods import METHODS, Method, Setting, set_threads
from benchmarks.restoration.restoration_problems import (
    PICTURES,
    TASKS,
    VALIDATION,
    Problem,
    make_problem,
    psnr,
    ssim,
)

RESULTS = Path(__file__).parent / "results"
CELLS = RESULTS / "restoration.jsonl"
CHOSEN = RESULTS / "restoration_settings.json"


def choose(name: str, method: Method) -> None:
    """The setting with the best mean PSNR on the validation crops, for each task and level; all
    trials are kept."""
    chosen = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
    for task in method.tasks:
        for level in TASKS[task]:
            problems = [make_problem(picture, task, level) for picture in VALIDATION]
            trials = []
            for setting in method.settings[task]:
                value = float(
                    np.mean([psnr(method.restore(p, setting), p.truth) for p in problems])
                )
                trials.append({"setting": setting, "psnr": round(value, 3)})
                print(name, task, level, trials[-1], flush=True)
            best = max(trials, key=lambda trial: trial["psnr"])
            # another process may have written
            chosen = json.loads(CHOSEN.read_text()) if CHOSEN.exists() else {}
            chosen.setdefault(name, {})[f"{task} {level}"] = {**best, "trials": trials}
            CHOSEN.write_text(json.dumps(chosen, indent=1) + "\n")


def setting_of(name: str, method: Method, task: str, level: int) -> Setting:
    """The setting that was chosen; the only one where there is no choice."""
    if len(method.settings[task]) == 1:
        return method.settings[task][0]
    return dict(json.loads(CHOSEN.read_text())[name][f"{task} {level}"]["setting"])


def run(name: str, method: Method, threads: int, colour: bool, only: list[str]) -> None:
    """Every cell of one method that the results lack."""
    set_threads(threads)
    warm = False
    for task in method.tasks:
        for level in TASKS[task]:
            for picture in PICTURES:
                key = {
                    "method": name,
                    "task": task,
                    "level": level,
                    "picture": picture,
                    "colour": colour,
                    "threads": threads,
                }
                if (
                    only and f"{task}-{level}-{picture}" not in only and picture not in only
                ) or is_done(key):
                    continue
                problem = make_problem(picture, task, level, colour)
                if colour and problem.truth.ndim == 2:
                    continue
                setting = setting_of(name, method, task, level)
                if not warm:
                    method.restore(small(problem), setting)
                    warm = True
                cell = key | measure(method, problem, setting)
                with CELLS.open("a") as file:
                    file.write(json.dumps(cell) + "\n")
                print(json.dumps(cell), flush=True)


def measure(method: Method, problem: Problem, setting: Setting) -> dict[str, Any]:
    """PSNR, SSIM and the time of one call."""
    processor, wall = time.process_time(), time.perf_counter()
    result = method.restore(problem, setting)
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return {
        "psnr": round(psnr(result, problem.truth), 3),
        "ssim": round(ssim(result, problem.truth), 4),
        "processor_s": round(processor, 2),
        "wall_s": round(wall, 2),
        "load": round(os.getloadavg()[0], 1),
        "setting": setting,
    }


def small(problem: Problem) -> Problem:
    """The first 96×96 pixels of a problem."""
    part = (slice(0, 96), slice(0, 96))
    return Problem(
        problem.name,
        problem.task,
        problem.level,
        problem.truth[part],
        problem.damaged[part],
        problem.noise,
        problem.mask[part],
    )


def read_cells() -> list[dict[str, Any]]:
    return [json.loads(line) for line in CELLS.read_text().splitlines()] if CELLS.exists() else []


def is_done(key: dict[str, Any]) -> bool:
    return any(all(cell[k] == v for k, v in key.items()) for cell in read_cells())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=["choose", "run", "tables"])
    parser.add_argument("methods", nargs="*", help=", ".join(METHODS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--colour", action="store_true", help="colour pictures in colour instead of grey"
    )
    parser.add_argument(
        "--only", nargs="*", default=[], help="pictures, or cells such as denoise-25-camera"
    )
    arguments = parser.parse_args()
    if arguments.action == "tables":
        from benchmarks.restoration.restoration_tables import print_tables

        print_tables(read_cells())
        return
    for name in arguments.methods:
        if arguments.action == "choose":
            set_threads(arguments.threads)
            choose(name, METHODS[name])
        else:
            run(name, METHODS[name], arguments.threads, arguments.colour, arguments.only)


if __name__ == "__main__":
    main()
