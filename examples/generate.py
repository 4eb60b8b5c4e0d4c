"""New digits from the codes of others, a transfer and a morph:  python examples/generate.py"""

from dataclasses import replace
from pathlib import Path

import whatwhere as ww
from whatwhere.model.picture import png, tiles

model, digits = ww.load("mnist"), ww.data.load("digits")
examples = ww.infer(model, digits[:1000], ww.InferenceSpec(steps=20, step=ww.LineSearch(momentum=True)))


def some(rows: slice) -> ww.Solution:
    return replace(examples, latents=examples.latents[rows])


pictures = {
    "generated.png": tiles(ww.generate(examples, 40), 10, 0, 1),
    "transferred.png": tiles(ww.transfer(some(slice(0, 10)), some(slice(10, 20))), 10, 0, 1),
    "morphed.png": tiles(ww.morph(some(slice(0, 1)), some(slice(1, 2)), 10)[:, 0], 10, 0, 1),
}
for name, picture in pictures.items():
    Path(name).write_bytes(png(picture))
    print(f"wrote {name}")
