"""Checks of what inference is given, before any of it reaches an engine's compiled code."""

from __future__ import annotations

import warnings
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import EngineError, ImageError, SpecError
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet, SizedModel
from whatwhere.model.deconvnet import all_finite
from whatwhere.spec import InferenceSpec, ModelSpec, Phase

FLOAT_LIMIT = 2.0  # times white; non-negative floats beyond it are probably bytes


class ImageSource(Protocol):
    """Anything that gives images [n, C, H, W] for a slice: a tensor, or a data set that reads lazily."""

    def __len__(self) -> int: ...
    def __getitem__(self, images: slice, /) -> Tensor: ...


def as_image_source(images: object, channels: int) -> ImageSource:
    """Images as `infer` takes them: a tensor, a NumPy array as a tensor, or an object that gives tensors for slices."""
    if isinstance(images, np.ndarray):
        return _as_tensor(images)
    if isinstance(images, Tensor):
        return images
    lazy = hasattr(images, "__len__") and hasattr(images, "__getitem__")
    if lazy and not isinstance(images, list | tuple | dict | str | bytes):
        return cast(ImageSource, images)
    raise ImageError(
        f"{type(images).__name__} was given; expected a float tensor or array [N, {channels}, H, W], "
        "or images that whatwhere.data.load returns (torch.as_tensor converts lists)"
    )


def in_model_units(spec: ModelSpec, images: Any) -> Any:
    """Images that scale integers (`data.Images`) in the units of a model; others as they are."""
    return images.with_white(spec.input.white) if hasattr(images, "with_white") else images


def warn_of_bytes(spec: ModelSpec, image: Tensor) -> None:
    """Warn of non-negative floats far beyond the model's white: they are probably bytes that were not scaled."""
    largest, white = float(image.nan_to_num(0).max()), spec.input.white
    if largest > FLOAT_LIMIT * white and float(image.nan_to_num(0).min()) >= 0:
        warnings.warn(
            f"images with values up to {largest:.4g} were given to a model whose white is {white:g}; floats are used "
            f"as they are: scale them to [0, {white:g}], or train with model.input.white = {largest:.4g}",
            stacklevel=3,
        )


def _as_tensor(array: np.ndarray) -> Tensor:
    if array.dtype.kind != "f":
        raise ImageError(
            f"an array of {array.dtype} was given; expected floats (whatwhere.data.load(array) scales whole numbers)"
        )
    native = array.dtype.newbyteorder("=")
    copy = None if array.flags.writeable else True  # a tensor may be written to, and torch warns of one that may not
    return torch.from_numpy(np.array(array, dtype=native, order="C", copy=copy))


def check_problem(
    model: DeconvNet, images: Tensor, latents: Latents, phase: Phase, mask: Tensor | None = None
) -> SizedModel:
    """The model at the images' size, once shapes, dtypes and devices fit together; every engine begins with this.

    It looks at no values, so that it never waits for a GPU.
    """
    if phase.layer > model.spec.depth:
        raise SpecError(f"a phase of layer {phase.layer} was given; the model has {model.spec.depth} layers")
    channels = model.spec.signal_channels
    if images.ndim != 4 or images.shape[1] != channels or min(images.shape) == 0:
        raise ImageError(
            f"images of shape {list(images.shape)} were given; expected [N, {channels}, H, W], none of them 0"
        )
    if (images.dtype, images.device) != (model.dtype, model.device):
        raise ImageError(
            f"images of {images.dtype} on {images.device} were given; "
            f"expected those of the model, {model.dtype} on {model.device}"
        )
    N, _, H, W = images.shape
    if mask is not None and (
        mask.shape not in ((N, 1, H, W), images.shape) or (mask.dtype, mask.device) != (images.dtype, images.device)
    ):
        raise ImageError(
            f"a mask {list(mask.shape)} of {mask.dtype} on {mask.device} was given for images {list(images.shape)} of "
            f"{images.dtype} on {images.device}; expected [{N}, 1 or {channels}, {H}, {W}] of the same dtype and device"
        )
    sized = model.at(H, W)
    check_latents(sized, latents, N)
    return sized


def check_filter_problem(
    model: DeconvNet, k: int, images: Tensor, latents: Latents, mask: Tensor | None = None
) -> Phase:
    """`check_problem` for a filter update of layer k, which needs all latents; the phase that they are the end of."""
    top = len(latents.pooling_params)
    if latents.p is None or not 1 <= k <= top:
        raise ImageError(
            f"latents of {top} layers {'with' if latents.p is not None else 'without'} features were given for the "
            f"filters of layer {k}; expected features, and pooling variables of at least {k} layers"
        )
    phase = Phase(layer=top)
    check_problem(model, images, latents, phase, mask)
    return phase


def require_supported(engine: str, reason: str | None) -> None:
    """Raise an EngineError with the reason why an engine does not support a problem, where there is one."""
    if reason is not None:
        raise EngineError(f"engine {engine!r} does not support this: {reason} (engine='auto' takes one that does)")


def check_latents(model: SizedModel, latents: Latents, images: int) -> None:
    """Raise an ImageError for latents whose number, shape, dtype or device is not that of so many images' latents."""
    depth = len(latents.pooling_params)
    if depth > len(model.regions) or (latents.p is not None and depth == 0):
        raise ImageError(
            f"latents with pooling variables of {depth} layers were given; the model has {len(model.regions)}"
        )
    for k, (theta, regions) in enumerate(zip(latents.pooling_params, model.regions, strict=False), start=1):
        expected = (images, len(regions.axes), *regions.grid)
        for tensor in (theta.mu, theta.gamma):
            _check_latent(model, tensor, expected, k)
    if latents.p is not None:
        _check_latent(model, latents.p, (images, *model.regions[depth - 1].grid), depth)


def _check_latent(model: SizedModel, tensor: Tensor, expected: tuple[int, ...], k: int) -> None:
    if tuple(tensor.shape) != expected:
        raise ImageError(
            f"latents of shape {list(tensor.shape)} were given for layer {k}; those of these images have "
            f"{list(expected)} (give what `infer` returned for the same images)"
        )
    if (tensor.dtype, tensor.device) != (model.model.dtype, model.model.device):
        raise ImageError(
            f"latents of {tensor.dtype} on {tensor.device} were given for layer {k}; "
            f"expected those of the model, {model.model.dtype} on {model.model.device}"
        )


def convert_latents(model: DeconvNet, latents: Latents) -> Latents:
    """Latents on the model's device and in its dtype, once their values are possible ones."""
    for tensor in latents.tensors():
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ImageError(f"latents of {kind} were given; expected float tensors, as `infer` returns them")
        if not tensor.isfinite().all():
            raise ImageError("latents with NaN or Inf were given; expected finite values")
    for k, (theta, layer) in enumerate(zip(latents.pooling_params, model.spec.layers, strict=False), start=1):
        reach = (max(layer.pool_size, layer.pool_maps) - 1) / 2
        if (theta.gamma < 0).any() or (theta.mu.abs() > reach).any():
            raise ImageError(
                f"pooling variables with γ down to {theta.gamma.min():.4g} and |μ| up to {theta.mu.abs().max():.4g} "
                f"were given for layer {k}; expected γ ≥ 0 and |μ| ≤ {reach} (give what `infer` returned)"
            )
    return latents.to(model.device, model.dtype)


def check_filters(model: DeconvNet) -> None:
    """Raise a SpecError for filters with NaN or Inf."""
    for k, f in enumerate(model.filters, start=1):
        if not all_finite(f):
            raise SpecError(f"a model whose filters are not finite at layer {k} was given (train it again)")


def check_start(images: Tensor, latents: Latents, spec: InferenceSpec, cost: Tensor) -> None:
    """Raise an error where the objective that inference starts from is beyond the range of the dtype."""
    if all_finite(cost):
        return
    largest = float(images.abs().max())
    feature = 0.0 if latents.p is None else float(latents.p.abs().max())
    given = f"images up to {largest:.4g}, features up to {feature:.4g} and lam = {spec.lam_value:.4g} were given"
    range_of = f"their objective is beyond the range of {images.dtype}"
    if images.cpu().double().square().flatten(1).sum(1).max() > torch.finfo(images.dtype).max:
        raise ImageError(f"{given}; {range_of} (scale the images, for instance to [0, 1])")
    raise SpecError(f"{given}; {range_of} (choose a smaller lam, or start from smaller features)")
