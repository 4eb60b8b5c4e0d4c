"""The results of the restoration benchmark as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchmarks.restoration.restoration_problems import PICTURES, TASKS

Cells = list[dict[str, Any]]
TITLES = {"denoise": "σ {level} of 255", "inpaint": "{level} % missing"}


def print_tables(cells: Cells) -> None:
    for task, levels in TASKS.items():
        for level in levels:
            print(
                f"\n### {task}, {TITLES[task].format(level=level)}\n\n"
                + table(cells, task, level, "psnr")
            )
        print(f"\n### {task}, means\n\n" + means(cells, task))


def pick(cells: Cells, **key: Any) -> Cells:
    return [cell for cell in cells if all(cell[name] == value for name, value in key.items())]


def methods_of(cells: Cells) -> list[str]:
    return list(dict.fromkeys(cell["method"] for cell in cells))


def table(cells: Cells, task: str, level: int, value: str) -> str:
    """One line a method, one column a picture; – where a cell was not computed."""
    rows = pick(cells, task=task, level=level, colour=False, threads=1)
    lines = ["| | " + " | ".join(PICTURES) + " | mean |", "| --- " * (len(PICTURES) + 2) + "|"]
    for method in methods_of(rows):
        found = {cell["picture"]: cell[value] for cell in pick(rows, method=method)}
        shown = [f"{found[p]:.2f}" if p in found else "–" for p in PICTURES]
        average = f"{mean(found.values()):.2f}" if len(found) == len(PICTURES) else "–"
        lines.append(f"| {method} | " + " | ".join(shown) + f" | {average} |")
    return "\n".join(lines)


def means(cells: Cells, task: str) -> str:
    """PSNR and SSIM over all pictures and levels, and processor seconds of all cells together."""
    rows = pick(cells, task=task, colour=False, threads=1)
    lines = ["| | PSNR | SSIM | processor seconds, all cells |", "| --- | --- | --- | --- |"]
    for method in methods_of(rows):
        own = pick(rows, method=method)
        if len(own) < len(PICTURES) * len(TASKS[task]):
            continue  # a mean over other cells than those of the other methods would mislead
        psnr, ssim = (mean(cell[name] for cell in own) for name in ("psnr", "ssim"))
        seconds = sum(cell["processor_s"] for cell in own)
        lines.append(f"| {method} | {psnr:.2f} | {ssim:.3f} | {seconds:.0f} |")
    return "\n".join(lines)


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else float("nan")
