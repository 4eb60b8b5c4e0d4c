"""Inference of one image, step by step, as a GIF: reconstruction, residual, features and cost."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from whatwhere.engines import convergence
from whatwhere.engines.reference import ista
from whatwhere.errors import plural
from whatwhere.figures import style
from whatwhere.figures.decomposition import decompose
from whatwhere.inference import resolve_lam
from whatwhere.inference.target import one_image
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Objective, Problem
from whatwhere.spec import InferenceSpec
from whatwhere.spec.recipe import joint

_PANEL_SIDE = 1.3  # inches of a picture
_PARTS = ("reconstruction", "penalty")  # the parts of the cost


class Step(NamedTuple):
    """Inference after a step: the latents, the two parts of their cost (reconstruction and
    penalty), and the number of features that are not zero."""

    latents: Latents
    cost: tuple[float, float]
    nonzeros: int


def animation(
    model: DeconvNet,
    image: object,
    spec: InferenceSpec,
    progress: Callable[[int], None] = lambda steps: None,
) -> bytes:
    """Return the joint inference of one image as the bytes of a GIF, which repeats after a pause on
    the last frame.

    Parameters
    ----------
    model
        the model
    image
        one picture as `infer` takes it, such as a tensor [C, H, W]
    spec
        how it is inferred
    progress
        called after every step

    Examples
    --------
    >>> model, image = ww.load("mnist"), ww.data.load("digits")[0]
    >>> ww.figures.animation(model, image, ww.InferenceSpec(steps=2))[:6]
    b'GIF89a'
    """
    image = one_image(model, image)
    with torch.no_grad():
        return draw_steps(model, image, trace(model, image, spec, progress))


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let PyTorch compute in one thread: the maps of one image are so small that threads wait for
    each other longer than they compute, up to 40 times as long if other programs use the
    processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def draw_steps(model: DeconvNet, image: Tensor, steps: list[Step]) -> bytes:
    """Return the steps of an inference, which `trace` followed, as the bytes of a GIF."""
    last = len(steps) - 1
    # about 20: every one of the first steps, then increasingly far apart, and the last
    shown = {*range(min(last, 5)), *(np.geomspace(1, last + 1, 20) - 1).astype(int)}
    with matplotlib.rc_context(style.RC):
        drawing = Drawing(model, image, steps)
        frames = [to_pixels(drawing.show(now)) for now in sorted(shown)]
    # one palette for all frames prevents flicker; an octree keeps rare colours, which a median cut
    # would lose
    palette = Image.fromarray(np.concatenate(frames)).quantize(256, Image.Quantize.FASTOCTREE)
    first, *others = (
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE)
        for frame in frames
    )
    durations = [180] * len(others) + [2500]  # milliseconds
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


@_one_thread()
def trace(
    model: DeconvNet, image: Tensor, spec: InferenceSpec, progress: Callable[[int], None]
) -> list[Step]:
    """Return the joint inference of one image, before the first step and after each, until it is
    finished as in `infer` (`engines.convergence`)."""
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


class Drawing:
    """A figure of one inference: the image, its inference after a step, and below the two parts of
    the cost up to that step. It is made once, and `show` changes the step."""

    def __init__(self, model: DeconvNet, image: Tensor, steps: list[Step]) -> None:
        self.model = model
        self.image = image
        self.steps = steps
        self.figure = Figure(figsize=(5.6, 2.66))
        self.headings = []
        self.pictures = []
        for left in 0.05 + np.arange(4) * (_PANEL_SIDE + 0.1):
            self.headings.append(style.add_heading(self.figure, left, 0.04, ""))
            axes = style.add_picture(self.figure, left, 0.2, _PANEL_SIDE, self.rgb(image))
            self.pictures.append(axes.images[0])
        self.axes = self._cost_axes()
        self.curves = []
        self.ends = []
        self.costs = []
        for k, colour in enumerate(style.CURVES[: len(_PARTS)]):
            self.curves += self.axes.plot([], color=colour)
            self.ends += self.axes.plot([], "o", color=colour, clip_on=False)
            left = 0.42 + 1.5 * k
            self.costs.append(
                style.add_text(self.figure, left, 1.6, "", color=colour, fontweight="bold")
            )
        self.nonzeros = style.add_text(self.figure, 3.42, 1.6, "")

    def _cost_axes(self) -> Axes:
        axes = style.add_panel(self.figure, 0.42, 1.78, 5.05, 0.56)
        axes.set_axis_on()
        largest = max(max(step.cost) for step in self.steps)
        axes.set(xlim=(0, max(1, len(self.steps) - 1)), ylim=(0, 1.1 * largest))
        axes.set_xlabel("step", labelpad=1)
        axes.tick_params(length=2, color=style.GREY)
        axes.grid(axis="y", color=style.RULE)
        return axes

    @property
    def limit(self) -> float:
        return max(1.0, float(self.image.max()))

    @property
    def residual_limit(self) -> float:
        """The residual that has the full colour."""
        if self.model.spec.input.kind == "none":
            return self.limit
        # with an input stage, features draw only details, and their residual is small in the image
        background = self.model.at(*self.image.shape[1:]).decode(self.steps[0].latents)[0]
        return float((background - self.image).mean(0).abs().max())

    def rgb(self, image: Tensor) -> np.ndarray:
        return style.image_to_rgb(image, self.limit, ink=style.is_ink(self.image))

    def show(self, now: int) -> Figure:
        """Draw the figure, with inference after step `now`."""
        step = self.steps[now]
        for heading, picture, (words, rgb) in zip(
            self.headings, self.pictures, self.panels(now).items(), strict=True
        ):
            heading.set_text(words)
            picture.set_data(rgb)
        for k, name in enumerate(_PARTS):
            until_now = [step.cost[k] for step in self.steps[: now + 1]]
            self.curves[k].set_data(range(now + 1), until_now)
            self.ends[k].set_data([now], [step.cost[k]])
            self.costs[k].set_text(f"● {name} {step.cost[k]:.1f}")
        self.nonzeros.set_text(f"{step.nonzeros} non-zero features")
        return self.figure

    def panels(self, now: int) -> dict[str, np.ndarray]:
        """Return the pictures of a step as RGB, by their headings."""
        latents = self.steps[now].latents
        size = self.image.shape[1:]
        explained = decompose(self.model, latents, *size)
        reconstruction = self.model.at(*size).decode(latents)[0]
        residual = (reconstruction - self.image).mean(0).cpu().numpy()
        # features of an input stage draw details alone
        limit = self.limit if self.model.spec.input.kind == "none" else None
        return {
            "input": self.rgb(self.image),
            f"after {plural(now, 'step')}": self.rgb(reconstruction.clamp(min=0)),
            "residual": style.shade(residual, self.residual_limit, signed=True),
            f"{len(explained.active)} of {plural(explained.maps, 'map')}": explained.coloured(
                limit
            ),
        }


def to_pixels(figure: Figure) -> np.ndarray:
    """Return a figure as RGB pixels [H, W, 3]."""
    figure.set_dpi(100)
    canvas: Any = FigureCanvasAgg(figure)  # matplotlib declares no types of it
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
