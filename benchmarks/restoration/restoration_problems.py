"""The problems of the restoration benchmark: pictures, noise and missing pixels, the same for
every method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

PICTURES = (
    "camera",
    "coins",
    "moon",
    "chelsea",
    "coffee",
    "astronaut",
)  # the table; nothing is learned or chosen on them
# top and left of the crops that settings are chosen on
VALIDATION = {
    "china": (120, 220),
    "flower": (130, 230),
}
CROP = 192
# σ of 255; per cent of the pixels missing
TASKS = {
    "denoise": (15, 25, 50),
    "inpaint": (30, 50, 80),
}
GREY = np.array([0.2125, 0.7154, 0.0721])


@dataclass(frozen=True)
class Problem:
    """A picture in [0, 1], [H, W] or [H, W, 3], what was done to it, and what a method may know.

    noise   standard deviation; 0 where pixels are missing
    mask    True where a pixel is known, [H, W]
    """

    name: str
    task: str
    level: int
    truth: np.ndarray
    damaged: np.ndarray
    noise: float
    mask: np.ndarray


def read_picture(name: str, colour: bool = False) -> np.ndarray:
    """One picture of scikit-image, or a crop of one of scikit-learn, in [0, 1]."""
    if name in VALIDATION:
        import sklearn
        from PIL import Image

        file = Path(sklearn.__file__).parent / "datasets" / "images" / f"{name}.jpg"
        top, left = VALIDATION[name]
        pixels = np.asarray(Image.open(file))[top : top + CROP, left : left + CROP]
    else:
        import skimage.data

        pixels = getattr(skimage.data, name)()
    values = pixels.astype(np.float64) / 255
    return (values if colour or values.ndim == 2 else values @ GREY).astype(np.float32)


def make_problem(name: str, task: str, level: int, colour: bool = False) -> Problem:
    """The same noise, or the same missing pixels, for every method."""
    truth = read_picture(name, colour)
    seed = [list(TASKS).index(task), level, sum(name.encode())]
    random = np.random.default_rng(seed)
    if task == "denoise":
        noise = level / 255
        damaged = (truth + noise * random.standard_normal(truth.shape)).astype(np.float32)
        return Problem(name, task, level, truth, damaged, noise, np.ones(truth.shape[:2], bool))
    mask = random.random(truth.shape[:2]) >= level / 100
    known = mask if truth.ndim == 2 else mask[..., None]
    return Problem(name, task, level, truth, (truth * known).astype(np.float32), 0.0, mask)


def psnr(result: np.ndarray, truth: np.ndarray) -> float:
    """In dB, for values in [0, 1]."""
    error = np.mean((np.clip(result, 0, 1).astype(np.float64) - truth) ** 2)
    return float(-10 * np.log10(max(error, 1e-20)))


def ssim(result: np.ndarray, truth: np.ndarray) -> float:
    from skimage.metrics import structural_similarity

    axis = 2 if truth.ndim == 3 else None
    return float(
        structural_similarity(
            np.clip(result, 0, 1).astype(np.float32), truth, data_range=1.0, channel_axis=axis
        )
    )
