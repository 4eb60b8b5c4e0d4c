"""The methods of the restoration benchmark. Each takes a problem and one setting and returns the
restored picture.

Every method has a list of settings for each problem; which one is used is decided on the validation
crops alone. Packages are imported when they are used: SPORCO needs an environment of its own (numpy
below 2).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from benchmarks.restoration.restoration_problems import Problem

Setting = dict[str, Any]
DICTIONARY = "G:8x8x32"


def grid(**values: tuple[Any, ...]) -> list[Setting]:
    return [
        dict(zip(values, combination, strict=True)) for combination in product(*values.values())
    ]


def by_channel(
    restore: Callable[[Problem, np.ndarray], np.ndarray], problem: Problem
) -> np.ndarray:
    """A method for grey pictures, channel by channel."""
    if problem.damaged.ndim == 2:
        return restore(problem, problem.damaged)
    return np.stack([restore(problem, problem.damaged[..., c]) for c in range(3)], 2)


# SPORCO -------------------------------------------------------------------------------------------


def gaussian_lowpass(picture: np.ndarray, mask: np.ndarray, sigma: float) -> np.ndarray:
    """The weighted mean of the known pixels around each place."""
    from scipy.ndimage import gaussian_filter

    def blur(x: np.ndarray) -> np.ndarray:
        return gaussian_filter(x, sigma, mode="constant", truncate=3)

    return blur(picture * mask) / np.maximum(blur(mask.astype(picture.dtype)), 1e-6)


def sporco_options(module: Any, setting: Setting) -> dict[str, Any]:
    """Those of its own examples: 5e-3 as tolerance, penalty chosen automatically."""
    return {
        "MaxMainIter": setting["steps"],
        "RelStopTol": 5e-3,
        "HighMemSolve": True,
        "FastSolve": False,
        "Verbose": False,
    }


def sporco_denoise(problem: Problem, setting: Setting) -> np.ndarray:
    from sporco import signal, util
    from sporco.admm import cbpdn

    D = util.convdicts()[DICTIONARY].astype(np.float32)

    def restore(problem: Problem, y: np.ndarray) -> np.ndarray:
        low, high = signal.tikhonov_filter(y, setting["highpass"], 16)
        options = cbpdn.ConvBPDN.Options(sporco_options(cbpdn, setting))
        lmbda = setting["threshold"] * problem.noise
        solver = cbpdn.ConvBPDN(D, _pad(high.astype(np.float32)), np.float32(lmbda), options)
        solver.solve()
        return low + _crop(solver.reconstruct().squeeze(), y)

    return by_channel(restore, problem)


def sporco_inpaint(problem: Problem, setting: Setting) -> np.ndarray:
    from sporco import util
    from sporco.admm import cbpdn

    D = util.convdicts()[DICTIONARY].astype(np.float32)

    def restore(problem: Problem, y: np.ndarray) -> np.ndarray:
        mask = problem.mask.astype(np.float32)
        low = gaussian_lowpass(y, mask, setting["sigma"])
        high, weights = _pad((y - low) * mask), _pad(mask)
        if setting["solver"] == "AddMaskSim":
            options = cbpdn.ConvBPDN.Options(sporco_options(cbpdn, setting))
            solver = cbpdn.AddMaskSim(
                cbpdn.ConvBPDN, D, high, weights, np.float32(setting["lmbda"]), opt=options
            )
        else:
            options = cbpdn.ConvBPDNMaskDcpl.Options(
                {**sporco_options(cbpdn, setting), "rho": setting["lmbda"] * 200 + 1e-1}
            )
            solver = cbpdn.ConvBPDNMaskDcpl(D, high, np.float32(setting["lmbda"]), weights, options)
        code = solver.solve()
        full = (
            solver.reconstruct(code) if setting["solver"] == "AddMaskSim" else solver.reconstruct()
        )
        return np.where(problem.mask, y, low + _crop(np.asarray(full).squeeze(), y))

    return by_channel(restore, problem)


FRAME = 7  # its convolution is circular: a frame of zeros keeps the opposite border away


def _pad(x: np.ndarray) -> np.ndarray:
    """The picture with a frame, in a size for which its transforms are fast."""
    from scipy.fft import next_fast_len

    return np.pad(x, [(0, next_fast_len(n + FRAME, real=True) - n) for n in x.shape]).astype(
        np.float32
    )


def _crop(x: np.ndarray, like: np.ndarray) -> np.ndarray:
    return x[: like.shape[0], : like.shape[1]]


# scikit-image and BM3D ----------------------------------------------------------------------------


def total_variation(problem: Problem, setting: Setting) -> np.ndarray:
    from skimage.restoration import denoise_tv_chambolle

    axis = 2 if problem.damaged.ndim == 3 else None
    weight = setting["weight"] * problem.noise
    return denoise_tv_chambolle(
        problem.damaged, weight=weight, max_num_iter=500, eps=1e-5, channel_axis=axis
    )


def non_local_means(problem: Problem, setting: Setting) -> np.ndarray:
    from skimage.restoration import denoise_nl_means

    axis = 2 if problem.damaged.ndim == 3 else None
    return denoise_nl_means(
        problem.damaged,
        patch_size=setting["patch"],
        patch_distance=setting["distance"],
        h=setting["h"] * problem.noise,
        sigma=problem.noise,
        fast_mode=True,
        channel_axis=axis,
    )


def bm3d(problem: Problem, setting: Setting) -> np.ndarray:
    import bm3d as package

    restore = package.bm3d if problem.damaged.ndim == 2 else package.bm3d_rgb
    return restore(problem.damaged.astype(np.float64), sigma_psd=problem.noise)


def biharmonic(problem: Problem, setting: Setting) -> np.ndarray:
    from skimage.restoration import inpaint_biharmonic

    axis = 2 if problem.damaged.ndim == 3 else None
    return inpaint_biharmonic(problem.damaged, ~problem.mask, channel_axis=axis)


def as_it_is(problem: Problem, setting: Setting) -> np.ndarray:
    """The noisy picture; missing pixels get the mean of the known ones."""
    known = problem.mask if problem.damaged.ndim == 2 else problem.mask[..., None]
    return np.where(known, problem.damaged, problem.damaged[problem.mask].mean())


# whatwhere ----------------------------------------------------------------------------------------


@lru_cache
def denoiser() -> Any:
    from whatwhere.restoration import load_denoiser

    return load_denoiser()


def ours(problem: Problem, setting: Setting) -> np.ndarray:
    from whatwhere.restoration import denoise, inpaint

    y = (
        problem.damaged[None, None]
        if problem.damaged.ndim == 2
        else problem.damaged.transpose(2, 0, 1)[None]
    )
    if problem.task == "denoise":
        result = denoise(y, denoiser(), problem.noise)
    else:
        result = inpaint(y, problem.mask[None, None], denoiser())
    return result[0, 0] if problem.damaged.ndim == 2 else result[0].transpose(1, 2, 0)


# All of them --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Method:
    """How a method restores, and the settings it may choose from, for each task that it serves."""

    restore: Callable[[Problem, Setting], np.ndarray]
    settings: dict[str, list[Setting]]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(self.settings)


def set_threads(threads: int) -> None:
    """For every library that is installed here; start the process with OMP_NUM_THREADS for the
    others."""
    for package, setter in (("torch", "set_num_threads"), ("numba", "set_num_threads")):
        with suppress(ImportError):
            getattr(importlib.import_module(package), setter)(threads)
    with suppress(ImportError):
        importlib.import_module("sporco.fft").pyfftw_threads = threads


NONE: list[Setting] = [{}]
METHODS = {
    "input": Method(as_it_is, {"denoise": NONE, "inpaint": NONE}),
    "sporco": Method(
        sporco_denoise, {"denoise": grid(threshold=(2.0, 2.5), highpass=(2.0,), steps=(15, 30))}
    ),
    "sporco masked": Method(
        sporco_inpaint,
        {"inpaint": grid(lmbda=(0.01, 0.03), sigma=(2.0,), steps=(30,), solver=("AddMaskSim",))},
    ),
    "tv": Method(total_variation, {"denoise": grid(weight=(0.4, 0.6, 0.8, 1.0))}),
    "nlm": Method(
        non_local_means, {"denoise": grid(patch=(5, 7), distance=(9,), h=(0.4, 0.6, 0.8))}
    ),
    "bm3d": Method(bm3d, {"denoise": NONE}),
    "biharmonic": Method(biharmonic, {"inpaint": NONE}),
    "whatwhere, trained": Method(ours, {"denoise": NONE, "inpaint": NONE}),
}
