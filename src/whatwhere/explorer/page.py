"""The explorer as one HTML page: the model, example images with their codes, style and code
inside."""

import base64
import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images
from whatwhere.engines.support import ANY, Kinds, Only, Support, Values
from whatwhere.errors import ImageError, SpecError, listed, plural
from whatwhere.html import ASSETS, assemble, bundle
from whatwhere.inference import infer
from whatwhere.model import DeconvNet
from whatwhere.spec import (
    Gaussian,
    InferenceSpec,
    LineSearch,
    Max,
    ModelSpec,
    Power,
    Recipe,
    Sum,
)


def _is_square(size: int | tuple[int, int] | None) -> bool:
    return not isinstance(size, tuple) or size[0] == size[1]


_SQUARE = Values(_is_square, "a square")

PAGE = Support(
    inference={
        "lam": ANY,
        "penalty": Kinds(Power),
        "penalty.alpha": ANY,
        "steps": ANY,
        "tolerance": ANY,  # the page takes all steps, and a person sees when to stop
        "step": Kinds(LineSearch),
        "step.per": ANY,  # it infers one image, which is its own batch
        "pooling_step": ANY,
        "moments.gamma_min": ANY,
        "moments.gamma_max": ANY,
        "moments.power": ANY,
    },
    model={
        "layers.each.maps": ANY,
        "layers.each.filter_size": _SQUARE,
        "layers.each.pooling": Kinds(Gaussian, Max, Sum),
        "layers.each.pool_size": _SQUARE,
        "layers.each.pool_stride": _SQUARE,
        "layers.each.fan_in": ANY,
        "channels": ANY,
        "nonnegative": ANY,
        "signed_filters": ANY,
        "normalise": ANY,
        "input.kind": Only("none", "highpass", "onoff"),
        "input.sigma": ANY,
        "input.white": ANY,  # what the brightest pixel becomes before the page sees it
        "input.contrast": ANY,
        "input.contrast_sigma": ANY,
        "input.contrast_floor": ANY,
    },
)
"""What the page's own engine supports (`assets/engine.js`), declared as every engine's is."""


def _require_shown(inference: InferenceSpec, model: ModelSpec) -> None:
    """Raise a SpecError that names a setting which the page's engine does not have."""
    reason = PAGE.unsupported_setting(replace(inference, step=LineSearch()), model)
    if reason is not None:
        raise SpecError(
            f"The explorer does not support {reason}. Give a model with square filters and square"
            " pooling regions, each within one map."
        )


def pack_model(model: DeconvNet) -> dict[str, Any]:
    """The model's input stage, and its layers: filters [below, maps, K, K] as float32 and
    connectivity as bytes."""
    _require_shown(InferenceSpec(), model.spec)
    layers = [
        {
            "maps": layer.maps,
            "filterSize": layer.filter_size,
            "kind": layer.pooling.kind,
            "poolSize": layer.pool_size,
            "stride": layer.strides[0],
            "filters": _to_base64(filters, np.float32),
            "connected": _to_base64(connected, np.uint8),
        }
        for layer, filters, connected in zip(
            model.spec.layers, model.filters, model.connectivity, strict=True
        )
    ]
    spec = model.spec
    stage = model.spec.input
    steps = {
        "contrast": stage.contrast,
        "contrastSigma": stage.contrast_sigma,
        "contrastFloor": stage.contrast_floor,
    }
    given = {"kind": stage.kind, "sigma": stage.sigma, **steps}
    return {
        "channels": spec.channels,
        "nonnegative": spec.nonnegative,
        "input": given,
        "layers": layers,
    }


def pack_settings(spec: InferenceSpec) -> dict[str, Any]:
    """The settings of inference under the names that the page uses."""
    assert isinstance(spec.penalty, Power), "`PAGE` declares no other penalty"
    return {
        "lambda": spec.lam,
        "alpha": spec.penalty.alpha,
        "steps": spec.steps,
        "poolingStep": spec.pooling_step,
        "gammaMin": spec.moments.gamma_min,
        "gammaMax": spec.moments.gamma_max,
        "momentPower": spec.moments.power,
    }


def _to_base64(values: Tensor, dtype: type[np.generic]) -> str:
    array = values.detach().cpu().numpy().astype(np.dtype(dtype).newbyteorder("<"))
    return base64.b64encode(array.tobytes()).decode("ascii")


EXAMPLES = 1_000
_EXAMPLE_BYTES = 2_000_000  # of pixels, before compression: larger images come in smaller numbers
PART = 50
CODE_STEPS = 100
INK = (0.1, 0.9)  # below: ground; above: ink
MOSTLY = 0.6  # share of ground from which on images are strokes
FEW = 0.2  # share of pixels between ground and ink up to which they are
_PAGE_STEPS = 200  # steps of the page at its start: twice as many leave half as many features


class Explorer:
    """The page of a model, and the codes of its examples, which can follow the page in parts.

    It begins with the settings of the top layer's training, whose codes are sparse.

    name        name of the model on the page
    examples    at most this many of `images`, spread over all of them
    engine      engine for the examples' inference
    code_steps  steps of inference for the codes of the examples
    part_size   number of examples whose codes come together
    """

    def __init__(
        self,
        model: DeconvNet,
        recipe: Recipe,
        images: Images,
        *,
        name: str,
        examples: int = EXAMPLES,
        engine: str = "auto",
        code_steps: int = CODE_STEPS,
        part_size: int = PART,
    ) -> None:
        if images.shape[0] != model.spec.channels:
            raise ImageError(
                f"{images.name} has {plural(images.shape[0], 'channel')}, but the model explains"
                f" images of {model.spec.channels}. Give other images."
            )
        self.model = model
        self.recipe = recipe
        self.name = name
        self.engine = engine
        self.code_steps = code_steps
        self.part_size = part_size
        # the rule that the page's engine has
        self.training = replace(recipe.learning[-1].inference, step=LineSearch())
        _require_shown(self.training, model.spec)
        self.packed = pack_model(model)
        self.images = images.subset(choose_examples(images, examples))
        self.parts = -(-len(self.images) // part_size)

    def codes(self, part: int) -> str:
        """The codes of `part_size` examples, compressed; they are inferred now."""
        first = part * self.part_size
        rows = np.arange(first, min(first + self.part_size, len(self.images)))
        spec = replace(self.training, steps=self.code_steps)
        return pack_codes(infer(self.model, self.images[rows], spec, engine=self.engine).features)

    def page(self, codes: Sequence[str] = (), *, served: bool = False) -> str:
        """The page with these codes; a served one asks for the others at `codes/PART`."""
        _, height, width = self.images.shape
        tested = pack_settings(self.recipe.inference)
        data = {
            "name": self.name,
            "about": about(self.model, self.images),
            "strokes": are_strokes(self.model, self.images),
            "height": height,
            "width": width,
            "model": self.packed,
            "settings": pack_settings(replace(self.training, steps=_PAGE_STEPS)),
            "testSettings": {
                name: tested[name] for name in ("lambda", "alpha", "steps", "poolingStep")
            },
            "examples": (
                pack_examples(self.images)
                | {
                    "codes": list(codes),
                    "parts": self.parts if served else len(codes),
                    "part": self.part_size,
                    "steps": self.code_steps,
                }
            ),
        }
        connect = "'self'" if served else "'none'"
        sources = f"img-src data: blob:; worker-src blob:; connect-src {connect}"
        more = {"worker-source": bundle(ASSETS, "worker")}
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        return assemble(ASSETS / "index.html", "main", style, sources, data, **more)

    def export(self, progress: Callable[[int], None] = lambda images: None) -> str:
        """The page with the codes of all examples, which needs no other file.

        progress  called with the number of images inferred
        """
        codes = []
        for part in range(self.parts):
            codes.append(self.codes(part))
            progress(min(self.part_size, len(self.images) - part * self.part_size))
        return self.page(codes)


def choose_examples(images: Images, most: int) -> np.ndarray:
    """Rows spread evenly over a set, as many as are asked for and as the page can carry."""
    count = max(1, min(most, len(images), _EXAMPLE_BYTES // int(np.prod(images.shape))))
    return np.arange(count) * len(images) // count


def are_strokes(model: DeconvNet, images: Images) -> bool:
    """Whether images are strokes of ink, so that one can draw such an image: mostly ground, and
    little between ground and ink."""
    if model.spec.channels != 1 or model.spec.input.kind != "none":
        return False
    some = images[np.arange(min(len(images), 100))]
    ground = float((some < INK[0]).float().mean())
    between = float(((some >= INK[0]) & (some <= INK[1])).float().mean())
    return ground > MOSTLY and between < FEW


def about(model: DeconvNet, images: Images) -> str:
    maps = [layer.maps for layer in model.spec.layers]
    noun = "feature map" if maps == [1] else "feature maps"
    return (
        f"A model of {plural(model.spec.depth, 'layer')} with {listed(maps)} {noun}, learned"
        f" without labels. {plural(len(images), 'example')} of {images.name}."
        " Everything runs in this page; nothing is sent anywhere."
    )


def pack_examples(images: Images) -> dict[str, Any]:
    """Images as bytes, with their labels."""
    pixels = [
        np.round(255 * images[rows].clamp(0, 1).numpy()).astype(np.uint8)
        for rows in images.batches(250)
    ]
    return {
        "count": len(images),
        "images": compress(np.concatenate(pixels).tobytes()),
        "labels": (
            [None] * len(images)
            if images.labels is None
            else [int(label) for label in images.labels]
        ),
        "classes": list(images.classes or ()),
    }


def pack_codes(p: torch.Tensor) -> str:
    """Features [N, B, H, W]: how many of each image are not 0, the largest, their places, and a
    byte for each value."""
    codes = p.flatten(1).cpu().abs().numpy()
    largest = codes.max(1)
    levels = np.round(255 * codes / np.maximum(largest, 1e-12)[:, None]).astype(np.uint8)
    rows, places = levels.nonzero()
    parts = [
        np.bincount(rows, minlength=len(codes)).astype("<u4"),
        largest.astype("<f4"),
        places.astype("<u4"),
        levels[rows, places],
    ]
    return compress(b"".join(part.tobytes() for part in parts))


def compress(content: bytes) -> str:
    """gzip in base64; the same content gives the same text."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
