"""The explorer as one HTML page: the model, example images with their codes, style and code
inside."""

import base64
import gzip
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images
from whatwhere.engines.support import ANY, Kinds, Only, Support, Values
from whatwhere.errors import InvalidImages, InvalidSetting, listed, plural
from whatwhere.explorer.settings import ExplorerSettings
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
        raise InvalidSetting(
            reason,
            "a model with square filters and square pooling regions, each within one map, for the"
            " explorer",
        )


def pack_model(model: DeconvNet) -> dict[str, object]:
    """Return the model's input stage, and its layers: filters [below, maps, K, K] as float32 and
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


def pack_settings(spec: InferenceSpec) -> dict[str, object]:
    """Return the settings of inference under the names that the page uses."""
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


class Explorer:
    """The page of a model, and the codes of its examples, which can follow the page in parts.

    It begins with the settings of the top layer's training, whose codes are sparse.

    Parameters
    ----------
    images
        examples are spread over all of them
    name
        name of the model on the page
    engine
        engine for the examples' inference
    learned_from
        images that the model learned from, in words; '' if nobody knows
    settings
        how much the page carries
    """

    def __init__(
        self,
        model: DeconvNet,
        recipe: Recipe,
        images: Images,
        *,
        name: str,
        engine: str = "auto",
        learned_from: str = "",
        settings: ExplorerSettings | None = None,
    ) -> None:
        self.settings = settings or ExplorerSettings()
        if images.shape[0] != model.spec.channels:
            given = f"{images.name}, images of {plural(images.shape[0], 'channel')}"
            raise InvalidImages(given, f"{model.spec.channels}, as the model explains")
        self.model = model
        self.recipe = recipe
        self.name = name
        self.engine = engine
        self.learned_from = learned_from
        # the rule that the page's engine has
        self.training = replace(recipe.learning[-1].inference, step=LineSearch())
        _require_shown(self.training, model.spec)
        self.packed = pack_model(model)
        self.images = images.subset(choose_examples(images, self.settings))
        self.parts = -(-len(self.images) // self.settings.part)

    def codes(self, part: int) -> str:
        """Infer the codes of a part of the examples, compressed."""
        first = part * self.settings.part
        rows = np.arange(first, min(first + self.settings.part, len(self.images)))
        spec = replace(self.training, steps=self.settings.code_steps)
        return pack_codes(infer(self.model, self.images[rows], spec, engine=self.engine).features)

    def page(self, codes: Sequence[str] = (), *, served: bool = False) -> str:
        """Return the page with these codes; a served one asks for the others at `codes/PART`."""
        _, height, width = self.images.shape
        tested = pack_settings(self.recipe.inference)
        data = {
            "name": self.name,
            "about": _about(self.model, self.images, self.learned_from),
            "learnedFrom": self.learned_from,
            "strokes": are_strokes(self.model, self.images, self.settings),
            "height": height,
            "width": width,
            "model": self.packed,
            "settings": pack_settings(replace(self.training, steps=self.settings.page_steps)),
            "testSettings": {
                name: tested[name] for name in ("lambda", "alpha", "steps", "poolingStep")
            },
            "examples": (
                pack_examples(self.images)
                | {
                    "codes": list(codes),
                    "parts": self.parts if served else len(codes),
                    "part": self.settings.part,
                    "steps": self.settings.code_steps,
                }
            ),
        }
        connect = "'self'" if served else "'none'"
        sources = f"img-src data: blob:; worker-src blob:; connect-src {connect}"
        more = {"worker-source": bundle(ASSETS, "worker")}
        style = (ASSETS / "style.css").read_text(encoding="utf-8")
        return assemble(ASSETS / "index.html", "main", style, sources, data, **more)

    def export(self, progress: Callable[[int], None] = lambda images: None) -> str:
        """Return the page with the codes of all examples, which needs no other file.

        Parameters
        ----------
        progress
            called with the number of images inferred
        """
        codes = []
        for part in range(self.parts):
            codes.append(self.codes(part))
            progress(min(self.settings.part, len(self.images) - part * self.settings.part))
        return self.page(codes)


def choose_examples(images: Images, settings: ExplorerSettings) -> np.ndarray:
    """Choose rows spread evenly over a set, as many as the page can carry."""
    fit = settings.example_bytes // int(np.prod(images.shape))
    count = max(1, min(settings.examples, len(images), fit))
    return np.arange(count) * len(images) // count


def are_strokes(model: DeconvNet, images: Images, settings: ExplorerSettings | None = None) -> bool:
    """Tell whether images are strokes of ink, so that one can draw such an image: mostly ground,
    and little between ground and ink."""
    settings = settings or ExplorerSettings()
    if model.spec.channels != 1 or model.spec.input.kind != "none":
        return False
    some = images[np.arange(min(len(images), 100))]
    ground = float((some < settings.ground).float().mean())
    between = float(((some >= settings.ground) & (some <= settings.ink)).float().mean())
    return ground > settings.mostly and between < settings.few


def _about(model: DeconvNet, images: Images, learned_from: str) -> str:
    maps = [layer.maps for layer in model.spec.layers]
    noun = "feature map" if maps == [1] else "feature maps"
    source = f" from {learned_from}" if learned_from else ""
    return (
        f"A model of {plural(model.spec.depth, 'layer')} with {listed(maps)} {noun},"
        f" learned{source} without labels. {plural(len(images), 'example')} of {images.name}."
        " Everything runs in this page; nothing is sent anywhere."
    )


def pack_examples(images: Images) -> dict[str, object]:
    """Return images as bytes, with their labels."""
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
