"""One image's inference step by step: reconstruction, residual, decomposition and cost, as a GIF."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from whatwhere.figures.decomposition import coloured, take_apart
from whatwhere.figures.style import CURVES, GREY, RC, RULE, frame, place, sheet, styled, title, write
from whatwhere.figures.tiles import picture, shade
from whatwhere.inference import ista
from whatwhere.inference.plan import joint
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, Phase

DPI, MILLISECONDS, HOLD = 100, 180, 2500


@dataclass(frozen=True)
class Snapshot:
    """One image after some steps of inference: latents, the parts of its cost, and the residual v̂ - v [C, H, W]."""

    step: int
    latents: Latents
    reconstruction: float
    penalty: float
    nonzeros: int
    residual: Tensor

    @property
    def cost(self) -> float:
        return self.reconstruction + self.penalty


def trace(model: DeconvNet, image: Tensor, spec: InferenceSpec, phase: Phase | None = None) -> list[Snapshot]:
    """The state of one image [C, H, W] before the first step, and after each."""
    phase, v = phase or joint(model.spec.depth)[0], image[None]
    moving, snapshots = ista.moving_layers(model, phase), []
    with torch.no_grad():
        state = ista.start(model, v, Latents(), phase, spec)
        for step in range(spec.steps + 1):
            if step:
                state, _, _ = ista.step(model, v, state, moving, spec)
            snapshots.append(_snapshot(model, v, step, Latents(state.p, state.theta), spec))
    return snapshots


def _snapshot(model: DeconvNet, v: Tensor, step: int, latents: Latents, spec: InferenceSpec) -> Snapshot:
    assert latents.p is not None
    weights = model.weights(latents.pooling_params, *v.shape[2:])
    parts = model.objective(v, latents.p, weights, spec.lam, spec.alpha)
    residual = (model.reconstruct(latents.p, weights) - v)[0]
    return Snapshot(step, latents, float(parts.reconstruction), float(parts.penalty), int(parts.nonzeros), residual)


def steps_shown(steps: int, frames: int = 20) -> list[int]:
    """Which steps become frames: all of the first ones, then fewer and fewer, always the first and the last."""
    grown = np.geomspace(1, steps + 1, frames) - 1
    return sorted({0, steps, *range(min(steps, 5)), *(int(g) for g in grown)})


def frame_figure(model: DeconvNet, image: Tensor, snapshots: Sequence[Snapshot], now: int) -> Figure:
    """The figure of one frame: the image, what is there after step `now`, and the cost up to it."""
    shot, limit = snapshots[now], max(1.0, float(image.max()))
    assert shot.latents.p is not None
    figure, side, y = sheet(5.6, 2.66), 1.3, 0.2
    parts = take_apart(model, shot.latents, *image.shape[1:])
    residual = shot.residual.mean(0).cpu().numpy()
    panels = {
        "input": picture(image, limit),
        f"after {shot.step} steps": picture((image + shot.residual).clamp(min=0), limit),
        "residual": shade(residual, limit, signed=True),
        f"{len(parts.features)} features": coloured(parts, shot.latents.p.shape[1], limit),
    }
    for i, (heading, shown) in enumerate(panels.items()):
        title(figure, 0.05 + i * (side + 0.1), 0.04, heading)
        axes = place(figure, 0.05 + i * (side + 0.1), y, side, side)
        axes.imshow(shown)
        frame(axes, RULE, 0.8)
    _draw_cost(figure, snapshots, now)
    return figure


def _draw_cost(figure: Figure, snapshots: Sequence[Snapshot], now: int) -> None:
    """The two parts of the cost up to now; their names stand above, each in the colour of its curve."""
    axes = place(figure, 0.42, 1.78, 5.05, 0.56)
    axes.set_axis_on()
    past, left = snapshots[: now + 1], 0.42
    for name, colour in zip(("reconstruction", "penalty"), CURVES, strict=False):
        values = [getattr(shot, name) for shot in past]
        axes.plot([shot.step for shot in past], values, color=colour)
        axes.plot(past[-1].step, values[-1], "o", color=colour, clip_on=False)
        write(figure, left, 1.6, f"● {name} {values[-1]:.1f}", color=colour, fontweight="bold")
        left += 1.5
    write(figure, left, 1.6, f"{past[-1].nonzeros} non-zero features")
    axes.set_xlim(0, snapshots[-1].step)
    axes.set_ylim(0, 1.1 * max(max(shot.reconstruction, shot.penalty) for shot in snapshots))
    axes.set_xlabel("step", labelpad=1)
    axes.tick_params(length=2, color=GREY)
    axes.grid(axis="y", color=RULE)


@styled
def last_frame(model: DeconvNet, image: Tensor, snapshots: Sequence[Snapshot]) -> Figure:
    """The end of the animation as a figure, for paper."""
    return frame_figure(model, image, snapshots, len(snapshots) - 1)


def animation(model: DeconvNet, image: Tensor, snapshots: Sequence[Snapshot]) -> bytes:
    """The GIF: it runs through the steps, holds at the end, and starts again."""
    shown = steps_shown(len(snapshots) - 1)
    with matplotlib.rc_context(RC):
        frames = [_rendered(frame_figure(model, image, snapshots, step)) for step in shown]
    some = np.concatenate([np.asarray(one) for one in frames[:: max(1, len(frames) // 5)]])
    # one palette for all, so that nothing flickers; by octree, so that rare hues are not lost among many greys
    palette = Image.fromarray(some).quantize(256, Image.Quantize.FASTOCTREE)
    frames = [one.quantize(palette=palette, dither=Image.Dither.NONE) for one in frames]
    durations = [MILLISECONDS] * (len(frames) - 1) + [HOLD]
    file = io.BytesIO()
    frames[0].save(
        file, "GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0, optimize=False, disposal=1
    )
    return file.getvalue()


def _rendered(figure: Figure) -> Image.Image:
    figure.set_dpi(DPI)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy())
