"""Draw the pictures of Start, the tutorial and the model page:  python docs/tutorial_pictures.py

The model is the one that ships with the package, trained on all of MNIST at the scale of the paper.
"""

from __future__ import annotations

from pathlib import Path

import torch
from figure_pictures import png
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
SPARSE = ww.InferenceSpec(lam=0.5, alpha=0.5, steps=200)


def each_alone(latents: ww.Latents) -> ww.Latents:
    """Latents with one feature each, from the latents of one image."""
    assert latents.p is not None
    active = latents.p[0].nonzero()
    p = torch.zeros(len(active), *latents.p.shape[1:])
    for i, (b, y, x) in enumerate(active.tolist()):
        p[i, b, y, x] = latents.p[0, b, y, x]
    where = (theta.map(lambda t: t.expand(len(active), *t.shape[1:])) for theta in latents.pooling_params)
    return ww.Latents(p, tuple(where))


def row_of(pictures: list[tuple[str, Tensor]], columns: int, width: float) -> Figure:
    """Pictures with titles, each of its own contrast, ink on paper."""
    rows = -(-len(pictures) // columns)
    side = width / columns
    figure, axes = plt.subplots(rows, columns, figsize=(width, rows * (side + 0.16)), layout="constrained")
    for axis in axes.flat:
        axis.set_axis_off()
    for axis, (title, picture) in zip(axes.flat, pictures, strict=False):
        axis.imshow(picture.squeeze(), cmap="gray_r", vmin=0)
        axis.set_title(title, fontsize=7, pad=2)
    return figure


def main() -> None:
    model, digits = ww.load(ww.models.path("mnist")), ww.data.load("digits", split="test")
    solution = ww.infer(model, digits[:2], SPARSE)
    seven, two = solution.latents[:1], solution.latents[1:]
    at = model.at(28, 28)
    parts, drawn = at.decode(each_alone(seven)), solution.reconstruction
    shown = [("image", digits[0]), ("all parts", drawn[0])]
    shares = parts.flatten(1).sum(1) / parts.sum()
    shown += [(f"{100 * shares[i]:.0f} %", parts[i]) for i in shares.argsort(descending=True).tolist()]
    exchanged = [
        ("seven", drawn[0]),
        ("two", drawn[1]),
        ("what of seven, where of two", at.decode(ww.Latents(seven.p, two.pooling_params))),
        ("what of two, where of seven", at.decode(ww.Latents(two.p, seven.pooling_params))),
    ]
    pictures = {
        "start": ww.figures.decomposition(model, digits[0], seven),
        "parts": row_of(shown, 9, 7.0),
        "exchange": row_of(exchanged, 4, 7.0),
    }
    for name, figure in pictures.items():
        (IMAGES / f"{name}.png").write_bytes(png(figure))


if __name__ == "__main__":
    main()
