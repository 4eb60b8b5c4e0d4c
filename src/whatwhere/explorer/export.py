"""The explorer as one HTML file: the model, example images with their codes, style and code inside."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from whatwhere.data import Images
from whatwhere.errors import ImageError
from whatwhere.explorer.bundle import bundle, read
from whatwhere.explorer.pack import pack_model, pack_settings
from whatwhere.inference import infer
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LineSearch, Recipe

EXAMPLES = 2_000
EXAMPLE_BYTES = 2_000_000  # of pixels, before compression: larger images come in smaller numbers
CODE_STEPS = 100  # of inference for the codes of the examples
PAGE_STEPS = 200  # with which the page begins: twice as many leave half as many features


def export(
    model: DeconvNet,
    recipe: Recipe,
    images: Images,
    *,
    name: str,
    examples: int = EXAMPLES,
    engine: str = "auto",
    progress: Callable[[int], None] | None = None,
) -> str:
    """The page. It begins with the settings of the top layer's training, whose codes are sparse.

    name      of the model, as the page shows it
    examples  at most this many of `images`, spread over all of them
    progress  called with the number of images inferred
    """
    training = recipe.learning[-1].inference
    training = replace(training, step=LineSearch(), shrinkage="gradient")
    chosen = choose_examples(images, examples)
    channels, height, width = images.shape
    if channels != model.spec.channels:
        raise ImageError(
            f"{images.name} has {channels} channels; the model explains images of {model.spec.channels} "
            " (give other images)"
        )
    data = {
        "name": name,
        "about": about(model, images, len(chosen)),
        "height": height,
        "width": width,
        "model": pack_model(model),
        "settings": pack_settings(replace(training, steps=PAGE_STEPS)),
        "testSettings": test_settings(recipe.inference),
        "examples": pack_examples(model, images.subset(chosen), replace(training, steps=CODE_STEPS), engine, progress),
    }
    return assemble(data)


def assemble(data: dict[str, Any]) -> str:
    """The page around its data. Nothing may be loaded from anywhere: the page's own policy forbids it."""
    script, style = bundle("main"), read("style.css")
    policy = (
        f"default-src 'none'; script-src {sha256(script)}; style-src {sha256(style)}; img-src data: blob:; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    scripts = (
        f'<script type="application/json" id="data">{embed(data)}</script>\n'
        f'<script type="application/json" id="worker-source">{embed(bundle("worker"))}</script>\n'
        f"<script>{script}</script>"
    )
    parts = {
        "security": f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        "style": f"<style>{style}</style>",
        "scripts": scripts,
    }
    page = read("index.html")
    for place, content in parts.items():
        page = page.replace(f"<!--{place}-->", content)
    return page


def embed(value: Any) -> str:
    """JSON that no HTML parser mistakes for markup, whatever the names and labels in it are."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def sha256(content: str) -> str:
    """A source expression of a content security policy that allows exactly this script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def choose_examples(images: Images, most: int) -> np.ndarray:
    """Rows spread evenly over a set, as many as are asked for and as the page can carry."""
    count = max(1, min(most, len(images), EXAMPLE_BYTES // int(np.prod(images.shape))))
    return np.arange(count) * len(images) // count


def test_settings(spec: InferenceSpec) -> dict[str, float]:
    packed = pack_settings(spec)
    return {name: packed[name] for name in ("lambda", "alpha", "steps", "poolingStep")}


def about(model: DeconvNet, images: Images, examples: int) -> str:
    maps = " and ".join(str(layer.maps) for layer in model.spec.layers)
    return (
        f"A model of {model.spec.depth} layer{'s' if model.spec.depth > 1 else ''} with {maps} features, learned "
        f"without labels. {examples:,} examples of {images.name}. "
        "Everything runs in this page; nothing is sent anywhere."
    )


def pack_examples(
    model: DeconvNet, images: Images, spec: InferenceSpec, engine: str, progress: Callable[[int], None] | None
) -> dict[str, Any]:
    """Images as bytes, and their codes: places and values of the features that are not 0, a byte for each value."""
    counts, largest, places, values = [], [], [], []
    pixels = []
    for rows in images.batches(250):
        batch = images[rows]
        pixels.append(np.round(255 * batch.clamp(0, 1).numpy()).astype(np.uint8))
        p = infer(model, batch, spec, engine=engine).features.flatten(1).cpu()
        for code in p:
            level, place = quantise(code)
            counts.append(len(place))
            largest.append(float(code.abs().max()))
            places.append(place)
            values.append(level)
        if progress is not None:
            progress(len(batch))
    codes = b"".join(
        [
            np.array(counts, "<u4").tobytes(),
            np.array(largest, "<f4").tobytes(),
            np.concatenate(places).astype("<u4").tobytes(),
            np.concatenate(values).astype(np.uint8).tobytes(),
        ]
    )
    labels = [None] * len(images) if images.labels is None else [int(label) for label in images.labels]
    return {
        "count": len(images),
        "images": compress(np.concatenate(pixels).tobytes()),
        "labels": labels,
        "classes": list(images.classes or ()),
        "codes": compress(codes),
        "steps": spec.steps,
    }


def quantise(code: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Levels 1 … 255 of a code's magnitudes by its own largest, and the places of all that do not round to 0."""
    magnitude = code.abs().numpy()
    level = np.round(255 * magnitude / max(float(magnitude.max()), 1e-12))
    place = np.flatnonzero(level)
    return level[place], place


def compress(content: bytes) -> str:
    """gzip in base64; the same content gives the same text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
