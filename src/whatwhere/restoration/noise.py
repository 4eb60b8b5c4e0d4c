"""The noise of a picture as a value: white, or growing with the brightness, or correlated.

The variance of a pixel is gain · (brightness - offset) + σ². Photons give the gain, the electronics
give σ, and a camera that adds a constant to every pixel has this constant as its offset. The
generalised Anscombe transform makes the standard deviation 1 everywhere, so that methods for white
noise apply (Mäkitalo and Foi 2013).
"""

import json
import math
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeGuard

import torch
from torch import Tensor

from whatwhere.errors import InvalidSetting, SpecError
from whatwhere.files import json_fields

_FORMAT = "whatwhere noise 1"


@dataclass(frozen=True)
class NoiseEstimate:
    """Noise with the variance gain · (brightness - offset) + sigma², in units of the picture.

    Parameters
    ----------
    gain
        variance that a unit of brightness adds; 0: the noise is the same everywhere
    sigma
        standard deviation of the noise at the brightness `offset`
    offset
        brightness of a pixel that no photon reached; of either sign
    correlation
        width of the blur that makes white noise into this noise, as the standard deviation of a
        Gaussian in pixels; 0: neighbouring pixels have independent noise
    covariance
        covariance of the noise of red, green and blue, three rows, where it is correlated; empty:
        the channels have independent noise
    source
        what the noise was estimated from, in words; "given" for noise that a user gave
    error
        standard error of the noise's standard deviation, as a share of it
    points
        brightness, variance and number of blocks of the groups of blocks that the line was fitted
        to
    removed
        share of the noise that `denoise` removes: below 1 for an estimate that is so weak that it
        does not show, and that a clean picture may have; and for correlated noise that may be
        texture

    Examples
    --------
    >>> ww.restoration.NoiseEstimate(gain=0.01, sigma=0.02).variance_at(0.5)
    0.0054
    """

    gain: float = 0.0
    sigma: float = 0.0
    offset: float = 0.0
    correlation: float = 0.0
    covariance: tuple[tuple[float, ...], ...] = ()
    source: str = "given"
    error: float = 0.0
    points: tuple[tuple[float, float, int], ...] = ()
    removed: float = 1.0

    def __post_init__(self) -> None:
        valid = all(map(_is_number, (self.gain, self.sigma, self.offset, self.correlation)))
        if not valid or self.gain < 0 or self.sigma < 0 or self.correlation < 0:
            raise SpecError(
                f"Got noise of gain {self.gain!r}, sigma {self.sigma!r}, offset {self.offset!r} and"
                f" correlation {self.correlation!r}; expected finite numbers, all but the offset"
                " ≥ 0: sigma is a standard deviation."
            )

    @property
    def is_zero(self) -> bool:
        """Whether there is no noise to remove."""
        return self.removed == 0 or (self.gain == 0 and self.sigma == 0)

    @property
    def is_uniform(self) -> bool:
        """Whether dark and bright pixels have the same noise."""
        return self.gain == 0

    def variance_at(self, brightness: float) -> float:
        """Return the variance of the noise of a pixel of this expected brightness."""
        return max(0.0, self.gain * (brightness - self.offset) + self.sigma**2)

    def averaged(self, deviation: float) -> "NoiseEstimate":
        """Return the noise of a mean of frames whose standard deviation is this share of a
        frame's."""
        rows = tuple(tuple(deviation**2 * v for v in row) for row in self.covariance)
        gain, sigma = deviation**2 * self.gain, deviation * self.sigma
        return replace(self, gain=gain, sigma=sigma, covariance=rows)

    def stabilise(self, images: Tensor) -> Tensor:
        """Return images whose noise has a standard deviation of 1."""
        if self.is_uniform:
            return images / self.sigma
        counts = (images - self.offset) / self.gain
        return 2 * (counts + 3 / 8 + self._variance).clamp(min=0).sqrt()

    def restore_units(self, stabilised: Tensor) -> Tensor:
        """Return the expected images, given the expected values of what `stabilise` returns.

        This inverse has no bias, whereas the algebraic one darkens.
        """
        if self.is_uniform:
            return stabilised * self.sigma
        lowest = 2 * math.sqrt(3 / 8 + self._variance)
        d = stabilised.clamp(min=lowest)
        root = math.sqrt(3 / 2)
        counts = (
            d**2 / 4
            + root / (4 * d)
            - 11 / (8 * d**2)
            + 5 * root / (8 * d**3)
            - 1 / 8
            - self._variance
        )
        return self.offset + self.gain * counts.clamp(min=0)

    def too_dark(self, images: Tensor) -> Tensor:
        """Return by how much pixels are darker than such noise makes them, which `stabilise` loses:
        0 or negative."""
        if self.is_uniform:
            return torch.zeros_like(images)
        darkest = self.offset - self.gain * (3 / 8 + self._variance)
        return (images - darkest).clamp(max=0)

    @property
    def _variance(self) -> float:
        """The variance of the Gaussian part, in counts."""
        return (self.sigma / self.gain) ** 2

    def summary(self) -> str:
        """Return the noise in a few words."""
        if self.gain == self.sigma == 0:
            return "no white noise found"
        if self.is_uniform:
            words = f"σ = {self.sigma:.3g}"
        else:
            words = f"gain {self.gain:.3g}, σ {self.sigma:.3g}, offset {self.offset:.3g}"
        if self.correlation:
            words += f", correlated over {self.correlation:.1f} pixels"
        if self.removed < 1:
            left = "stays" if self.removed == 0 else f"is removed by {self.removed:.0%}"
            words += f", {'may be texture' if self.correlation else 'too faint to show'}, {left}"
        return words

    def to_json(self) -> str:
        """Return the estimate as the text of a noise file."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path) -> "NoiseEstimate":
        """Read the estimate in a noise file."""
        remedy = "give a file that `whatwhere denoise --keep-noise` wrote, or GAIN,SIGMA,OFFSET"
        with json_fields(path, _FORMAT, "noise file", remedy) as fields:
            points = tuple((float(x), float(v), int(n)) for x, v, n in fields.pop("points", ()))
            rows = tuple(tuple(map(float, row)) for row in fields.pop("covariance", ()))
            return cls(**fields, covariance=rows, points=points)


Noise = float | str | tuple[float, ...] | NoiseEstimate | None
"""Noise as a user gives it; None: it is estimated."""


def read_noise(noise: object) -> NoiseEstimate | str | None:
    """Return noise that a user gave as a value, "poisson" or None; raise a SpecError for an invalid
    one."""
    if noise is None or noise == "poisson" or isinstance(noise, NoiseEstimate):
        return noise
    if is_level(noise):
        return NoiseEstimate(sigma=float(noise))
    if (
        isinstance(noise, tuple)
        and len(noise) in (2, 3)
        and all(map(_is_number, noise))
        and noise[0] > 0
        and noise[1] >= 0
    ):
        gain, sigma, offset = map(float, (*noise, 0.0)[:3])
        return NoiseEstimate(gain, sigma, offset)
    raise InvalidSetting(
        {"noise": noise},
        "a standard deviation ≥ 0 in units of the images, 'poisson' for counts, (gain, sigma) or"
        " (gain, sigma, offset) with gain > 0, a NoiseEstimate, or None",
    )


def read_noise_text(text: str | None) -> Noise:
    """Return the noise that `--noise` of the command means: a number, `poisson`, two or three
    numbers, or a file."""
    if text is None or text == "poisson":
        return text
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        path = Path(text)
        if path.is_file():
            return NoiseEstimate.read(path)
        numbers = ()
    noise: Noise = numbers[0] if len(numbers) == 1 else numbers or text
    try:
        read_noise(noise)
    except SpecError:
        raise InvalidSetting(
            f"--noise {text}",
            "a standard deviation such as 0.1 (white is 1), poisson, GAIN,SIGMA or"
            " GAIN,SIGMA,OFFSET with GAIN > 0, or a file that --keep-noise wrote",
        ) from None
    return noise


def counts_noise(images: Tensor, step: float | None = None) -> NoiseEstimate:
    """Return the noise of images whose pixels count photons: a photon adds one step of the values.

    Parameters
    ----------
    step
        difference of neighbouring values, where the type of the pixels says it: 1 for whole
        numbers; None: it is seen from the values, and 1 if all are whole numbers
    """
    if step is not None:
        return NoiseEstimate(gain=step)
    values = images.detach().double().flatten().unique()
    if len(values) == 1 or bool((values == values.round()).all()):
        return NoiseEstimate(gain=1.0)
    smallest = float(torch.diff(values).min())
    steps = values / smallest
    # 16-bit steps of a float32 are exact to 1e-2; floats of any value have more steps
    if float(steps[-1] - steps[0]) > 2**16 or float((steps - steps.round()).abs().max()) > 0.05:
        raise InvalidSetting(
            "noise = 'poisson' for values that are no counts",
            "whole numbers, or multiples of a step",
            "Give (gain, sigma), or None to estimate the noise.",
        )
    return NoiseEstimate(gain=smallest)


def is_level(noise: object) -> TypeGuard[float]:
    """Whether this is a standard deviation."""
    return _is_number(noise) and noise >= 0


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


NO_NOISE = NoiseEstimate()
