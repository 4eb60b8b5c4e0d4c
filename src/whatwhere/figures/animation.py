"""Inference of one image, step by step, as a GIF: reconstruction, residual, features and cost."""

import io
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from whatwhere.engines import convergence
from whatwhere.engines.reference import ista
from whatwhere.figures import style
from whatwhere.figures.decomposition import decompose
from whatwhere.inference import resolve_lam
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Objective, Problem
from whatwhere.spec import InferenceSpec
from whatwhere.spec.recipe import joint

FRAMES = 20  # about this many of the steps are shown
FRAME_DPI = 100
FRAME_MS = 180
LAST_FRAME_MS = 2500
PANEL_SIDE = 1.3  # inches of a picture


class Step(NamedTuple):
    """Inference after a step: the latents, the two parts of their cost (reconstruction and
    penalty), and the number of features that are not zero."""

    latents: Latents
    cost: tuple[float, float]
    nonzeros: int


def animation(
    model: DeconvNet,
    image: Tensor,
    spec: InferenceSpec,
    progress: Callable[[int], None] = lambda steps: None,
) -> bytes:
    """The joint inference of one image as the bytes of a GIF, which repeats after a pause on the
    last frame.

    model     the model
    image     [C, H, W]
    spec      how it is inferred
    progress  called after every step

    >>> model, image = ww.load("mnist"), ww.data.load("digits")[0]
    >>> ww.figures.animation(model, image, ww.InferenceSpec(steps=2))[:6]
    b'GIF89a'
    """
    with torch.no_grad():
        return draw_steps(model, image, trace(model, image, spec, progress))


def draw_steps(model: DeconvNet, image: Tensor, steps: list[Step]) -> bytes:
    """The steps of an inference, which `trace` followed, as the bytes of a GIF."""
    last = len(steps) - 1
    # every one of the first steps, then increasingly far apart, and the last
    shown = {*range(min(last, 5)), *(np.geomspace(1, last + 1, FRAMES) - 1).astype(int)}
    with matplotlib.rc_context(style.RC):
        frames = [to_pixels(draw_frame(model, image, steps, now)) for now in sorted(shown)]
    # one palette for all frames prevents flicker; an octree keeps rare colours, which a median cut
    # would lose
    palette = Image.fromarray(np.concatenate(frames)).quantize(256, Image.Quantize.FASTOCTREE)
    first, *others = (
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    )
    durations = [FRAME_MS] * len(others) + [LAST_FRAME_MS]
    file = io.BytesIO()
    first.save(
        file,
        "GIF",
        save_all=True,
        append_images=others,
        duration=durations,
        loop=0,
        optimize=False,
        disposal=1,
    )
    return file.getvalue()


def trace(
    model: DeconvNet, image: Tensor, spec: InferenceSpec, progress: Callable[[int], None]
) -> list[Step]:
    """The joint inference of one image, before the first step and after each, until it is finished
    as in `infer` (`engines.convergence`)."""
    signal, background = model.input_stage.forward(image[None])
    spec = resolve_lam(model, image[None], spec)
    problem = Problem(model, signal, joint(model.spec.depth)[0], spec)
    steps: list[Step] = []

    def record(latents: Latents, cost: Objective) -> None:
        parts = (float(cost.reconstruction), float(cost.penalty))
        steps.append(Step(replace(latents, background=background), parts, int(cost.nonzeros)))

    for block in convergence.blocks(spec):
        problem = replace(problem, spec=block)
        state = ista.start(problem)
        first = problem.objective(state.latents)
        if not steps:
            record(state.latents, first)
        last = first
        for _ in range(block.steps):
            state = ista.step(problem, state)[0]
            last = problem.objective(state.latents)
            record(state.latents, last)
            progress(1)
        problem = replace(problem, latents=state.latents)
        change = convergence.relative_change(first.cost, last.cost, block.steps)
        if bool(change <= spec.tolerance):
            break
    spared = spec.steps + 1 - len(steps)
    if spared:
        progress(spared)
    return steps


def draw_frame(model: DeconvNet, image: Tensor, steps: list[Step], now: int) -> Figure:
    """The image, its inference after step `now`, and below the two parts of the cost up to that
    step."""
    latents = steps[now].latents
    cost = steps[now].cost
    limit = max(1.0, float(image.max()))
    ink = style.is_ink(image)
    figure = Figure(figsize=(5.6, 2.66))
    explained = decompose(model, latents, *image.shape[1:])
    reconstruction = model.at(*image.shape[1:]).decode(latents)[0]
    panels = {
        "input": style.image_to_rgb(image, limit, ink=ink),
        f"after {now} steps": style.image_to_rgb(reconstruction.clamp(min=0), limit, ink=ink),
        "residual": style.shade((reconstruction - image).mean(0).cpu().numpy(), limit, signed=True),
        # features of an input stage draw details alone
        f"{len(explained.features)} features": explained.coloured(
            limit if model.spec.input.kind == "none" else None
        ),
    }
    lefts = 0.05 + np.arange(len(panels)) * (PANEL_SIDE + 0.1)
    for left, (heading, rgb) in zip(lefts, panels.items(), strict=True):
        style.add_heading(figure, left, 0.04, heading)
        style.add_picture(figure, left, 0.2, PANEL_SIDE, rgb)
    axes = style.add_panel(figure, 0.42, 1.78, 5.05, 0.56)
    axes.set_axis_on()
    for k, name in enumerate(("reconstruction", "penalty")):
        colour = style.CURVES[k]
        axes.plot([step.cost[k] for step in steps[: now + 1]], color=colour)
        axes.plot(now, cost[k], "o", color=colour, clip_on=False)
        style.add_text(
            figure, 0.42 + 1.5 * k, 1.6, f"● {name} {cost[k]:.1f}", color=colour, fontweight="bold"
        )
    style.add_text(figure, 3.42, 1.6, f"{steps[now].nonzeros} non-zero features")
    largest = max(max(step.cost) for step in steps)
    axes.set(xlim=(0, max(1, len(steps) - 1)), ylim=(0, 1.1 * largest))
    axes.set_xlabel("step", labelpad=1)
    axes.tick_params(length=2, color=style.GREY)
    axes.grid(axis="y", color=style.RULE)
    return figure


def to_pixels(figure: Figure) -> np.ndarray:
    """A figure as RGB pixels [H, W, 3]."""
    figure.set_dpi(FRAME_DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
