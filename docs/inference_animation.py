"""Inference of one image, step by step, as a GIF: reconstruction, residual, features and cost.

docs/figure_pictures.py draws docs/images/inference.gif with it.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from whatwhere.figures import style
from whatwhere.figures.decomposition import decompose
from whatwhere.inference import ista, resolve_lam
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, Phase
from whatwhere.spec.recipe import joint

DPI = 100
FRAME_MS, LAST_FRAME_MS = 180, 2500


@dataclass(frozen=True)
class Snapshot:
    """One image after some steps of inference: its latents, the parts of its cost, and the residual v̂ - v [C, H, W]."""

    step: int
    latents: Latents
    reconstruction: float
    penalty: float
    nonzeros: int
    residual: Tensor

    @property
    def cost(self) -> float:
        return self.reconstruction + self.penalty


def trace(
    model: DeconvNet,
    image: Tensor,
    spec: InferenceSpec,
    phase: Phase | None = None,
    *,
    progress: Callable[[int], None] = lambda steps: None,
) -> list[Snapshot]:
    """Snapshots of the inference of one image, before the first step and after each step.

    model     the model
    image     [C, H, W]
    spec      how it is inferred
    phase     what is inferred; None: everything, jointly
    progress  called after every step
    """
    phase, spec = phase or joint(model.spec.depth)[0], resolve_lam(model, image[None], spec)
    signal, background = model.input_stage.forward(image[None])
    problem, snapshots = Problem(model, signal, phase, spec), []
    with torch.no_grad():
        state = ista.start(problem)
        for step in range(spec.steps + 1):
            if step:
                state, _, _ = ista.step(problem, state)
                progress(1)
            latents, parts = replace(state.latents, background=background), problem.objective(state.latents)
            cost = float(parts.reconstruction), float(parts.penalty), int(parts.nonzeros)
            snapshots.append(Snapshot(step, latents, *cost, (problem.sized.decode(latents) - image)[0]))
    return snapshots


def steps_shown(steps: int, frames: int = 20) -> list[int]:
    """The steps that become frames: every one of the first five, then increasingly far apart, and the last."""
    spaced = np.geomspace(1, steps + 1, frames) - 1
    return sorted({0, steps, *range(min(steps, 5)), *(int(step) for step in spaced)})


def frame_figure(model: DeconvNet, image: Tensor, snapshots: Sequence[Snapshot], now: int) -> Figure:
    """The figure of one frame: the image, its inference after step `now`, and the cost up to that step."""
    snapshot, limit, ink = snapshots[now], max(1.0, float(image.max())), style.is_ink(image)
    figure, side = Figure(figsize=(5.6, 2.66)), 1.3
    contributions = decompose(model, snapshot.latents, *image.shape[1:])
    residual = snapshot.residual.mean(0).cpu().numpy()
    scale = limit if model.spec.input.kind == "none" else None  # else features draw details alone
    panels = {
        "input": style.image_to_rgb(image, limit, ink=ink),
        f"after {snapshot.step} steps": style.image_to_rgb((image + snapshot.residual).clamp(min=0), limit, ink=ink),
        "residual": style.shade(residual, limit, signed=True),
        f"{len(contributions.features)} features": contributions.coloured(scale),
    }
    for i, (heading, rgb) in enumerate(panels.items()):
        style.add_heading(figure, 0.05 + i * (side + 0.1), 0.04, heading)
        style.add_picture(figure, 0.05 + i * (side + 0.1), 0.2, side, rgb)
    _draw_cost(figure, snapshots, now)
    return figure


def _draw_cost(figure: Figure, snapshots: Sequence[Snapshot], now: int) -> None:
    """The two parts of the cost up to step `now`, with their names above in the colours of the curves."""
    axes = style.add_panel(figure, 0.42, 1.78, 5.05, 0.56)
    axes.set_axis_on()
    past, left = snapshots[: now + 1], 0.42
    for name, colour in zip(("reconstruction", "penalty"), style.CURVES, strict=False):
        values = [getattr(snapshot, name) for snapshot in past]
        axes.plot([snapshot.step for snapshot in past], values, color=colour)
        axes.plot(past[-1].step, values[-1], "o", color=colour, clip_on=False)
        style.add_text(figure, left, 1.6, f"● {name} {values[-1]:.1f}", color=colour, fontweight="bold")
        left += 1.5
    style.add_text(figure, left, 1.6, f"{past[-1].nonzeros} non-zero features")
    axes.set_xlim(0, snapshots[-1].step)
    axes.set_ylim(0, 1.1 * max(max(snapshot.reconstruction, snapshot.penalty) for snapshot in snapshots))
    axes.set_xlabel("step", labelpad=1)
    axes.tick_params(length=2, color=style.GREY)
    axes.grid(axis="y", color=style.RULE)


def animation(model: DeconvNet, image: Tensor, snapshots: Sequence[Snapshot]) -> bytes:
    """The inference of one image as the bytes of a GIF, which repeats after a pause on the last frame.

    model      the model
    image      [C, H, W]
    snapshots  of its inference, from `trace`
    """
    steps = steps_shown(len(snapshots) - 1)
    with matplotlib.rc_context(style.RC):
        frames = [_rendered(frame_figure(model, image, snapshots, step)) for step in steps]
    every_frame = np.concatenate([np.asarray(image) for image in frames])
    # one palette for all frames prevents flicker; an octree keeps rare colours, which a median cut would lose
    palette = Image.fromarray(every_frame).quantize(256, Image.Quantize.FASTOCTREE)
    frames = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in frames]
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_FRAME_MS]
    file = io.BytesIO()
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False, disposal=1
    )
    return file.getvalue()


def _rendered(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return Image.open(file).convert("RGB")
