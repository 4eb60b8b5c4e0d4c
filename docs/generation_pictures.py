"""Draw the picture of howto/generate.md:  python docs/generation_pictures.py"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from torch import Tensor

import whatwhere as ww

IMAGES = Path(__file__).parent / "images"
COLUMNS = 12


def independent(examples: ww.Solution, count: int) -> Tensor:
    """Every feature and every pooling variable from an example of its own."""
    generator = torch.Generator().manual_seed(0)

    def draw(values: Tensor) -> Tensor:
        return values.gather(0, torch.randint(len(values), (count, *values.shape[1:]), generator=generator))

    assert examples.decoder is not None
    return examples.decoder.decode(examples.latents.map(draw))


def rows() -> dict[str, Tensor]:
    model, digits = ww.load("mnist"), ww.data.load("digits")
    examples = ww.infer(model, digits[:700], ww.InferenceSpec(steps=15, step=ww.LineSearch(momentum=True)))

    def some(numbers: list[int]) -> ww.Solution:
        return replace(examples, latents=examples.latents[numbers])

    what, where = some(list(range(20, 20 + COLUMNS))), some(list(range(40, 40 + COLUMNS)))
    new = ww.generate(examples, 3 * COLUMNS)
    threes, eights = (torch.from_numpy(digits.labels[:700] == kind).nonzero()[0].tolist() for kind in (3, 8))
    sevens, nines = (torch.from_numpy(digits.labels[:700] == kind).nonzero()[0].tolist() for kind in (7, 9))
    return {
        "generated": new[:COLUMNS],
        " ": new[COLUMNS : 2 * COLUMNS],
        "  ": new[2 * COLUMNS :],
        "every feature\nby itself": independent(examples, COLUMNS),
        "what of these": what.reconstruction,
        "where of these": where.reconstruction,
        "both: transfer": ww.transfer(what, where),
        "morph": ww.morph(some(threes), some(eights), COLUMNS)[:, 0],
        "   ": ww.morph(some(sevens), some(nines), COLUMNS)[:, 0],
    }


def main() -> None:
    drawn = rows()
    figure, axes = plt.subplots(len(drawn), COLUMNS, figsize=(8, 0.62 * len(drawn)))
    for line, (name, pictures) in zip(axes, drawn.items(), strict=True):
        line[0].set_ylabel(name.strip(), rotation=0, ha="right", va="center", fontsize=8)
        for axis, picture in zip(line, pictures, strict=True):
            axis.imshow(picture[0], cmap="gray", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
    figure.subplots_adjust(wspace=0.05, hspace=0.05)
    figure.savefig(IMAGES / "generate.png", dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
