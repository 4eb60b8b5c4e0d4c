"""Average the frames of a film where they show the same, before a frame is restored.

Every neighbour of a frame is scaled to its brightness and moved onto it. Where the difference of
the two is noise, it counts; where something moved by itself, it does not, so that nothing is seen
twice. The mean of n frames has noise of 1 / √n, which the denoiser then removes.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.restoration.noise import NoiseEstimate


@dataclass(frozen=True, kw_only=True)
class StackSettings:
    """Settings of the mean over frames.

    Parameters
    ----------
    smoothing
        standard deviation, in pixels, of the blur under which frames are aligned
    rounds
        steps of the alignment after a first guess by correlation
    least
        shift in pixels from which on a frame is moved: the interpolation of less costs more than it
        gains
    square
        side in pixels of the squares whose brightness is compared
    factors
        least and largest factor between the brightnesses of two frames
    boxes
        sides, in pixels, of the squares whose mean difference is tested: small ones show filaments,
        large ones faint changes
    same
        standard errors up to which a mean difference is noise, and those from which on it is none;
        between them the weight falls
    """

    smoothing: float = 1.5
    rounds: int = 6
    least: float = 0.05
    square: int = 16
    factors: tuple[float, float] = (0.5, 2.0)
    boxes: tuple[int, ...] = (3, 7, 15)
    same: tuple[float, float] = (2.5, 4.0)


@dataclass(frozen=True)
class Merged:
    """The weighted mean of frames.

    Parameters
    ----------
    mean
        [C, H, W]
    deviation
        standard deviation of its noise, [H, W], where a frame has 1
    """

    mean: Tensor
    deviation: Tensor


_DEFAULT = StackSettings()


def scale_to(
    frames: Tensor, index: int, noise: NoiseEstimate, settings: StackSettings = _DEFAULT
) -> tuple[Tensor, list[float]]:
    """Return frames [F, C, H, W] of the brightness of frame `index`, and the factors.

    What moves into a frame does not change them: each is the median, weighted by brightness, over
    squares of the ratio of the mean brightnesses.
    """
    light = frames - noise.offset
    side = min(settings.square, *frames.shape[2:])
    squares = F.avg_pool2d(light.mean(1, keepdim=True), side).flatten(1)
    factors = [_factor(squares[index], other, settings) for other in squares]
    return noise.offset + light * light.new_tensor(factors)[:, None, None, None], factors


def _factor(frame: Tensor, other: Tensor, settings: StackSettings) -> float:
    """Return the factor that gives another frame the brightness of a frame, from the brightnesses
    of squares, [N] each."""
    seen = (frame > 0) & (other > 0)
    if not seen.any():
        return 1.0
    ratio, order = (frame[seen] / other[seen]).sort()
    weight = (frame[seen] + other[seen])[order].cumsum(0)
    middle = int(torch.searchsorted(weight, weight[-1] / 2))
    least, most = settings.factors
    return min(max(float(ratio[middle]), least), most)


def merge_frames(
    frames: Tensor,
    index: int,
    noise: NoiseEstimate,
    factors: list[float],
    settings: StackSettings = _DEFAULT,
) -> Merged:
    """Average frames [F, C, H, W] where they show the same as frame `index`.

    What is the same is seen in frames whose noise was stabilised. The frames themselves are
    averaged, since the mean of few photons says more than the mean of their roots.

    Parameters
    ----------
    factors
        by which every frame was scaled before: the variance of its noise is larger by as much
    """
    stable = noise.stabilise(frames)
    total = frames[index].clone()
    weights = torch.ones_like(total[0])
    variance = torch.ones_like(total[0])
    # the deviation of the mean of many pixels, where white noise has 1
    coarse = max(1.0, 2 * math.sqrt(math.pi) * noise.correlation)
    for number in range(len(frames)):
        if number == index:
            continue
        shift = find_shift(stable[number], stable[index], settings)
        moved, inside, kept = shifted(stable[number], shift)
        noise_here = factors[number] * kept
        difference = moved - stable[index]
        weight = inside * _sameness(difference, (1 + noise_here) * coarse**2, settings)
        total += weight * shifted(frames[number], shift)[0]
        weights += weight
        variance += weight.square() * noise_here
    return Merged(total / weights, variance.sqrt() / weights)


def _sameness(difference: Tensor, variance: float, settings: StackSettings) -> Tensor:
    """How far a difference [C, H, W] of this variance may be noise: weights [H, W], 0 to 1."""
    error = torch.zeros_like(difference[0])
    for side in settings.boxes:
        if min(difference.shape[1:]) < side:
            continue
        mean = F.avg_pool2d(difference[None], side, 1, side // 2, count_include_pad=False)[0]
        largest = mean.abs().amax(0) * side / math.sqrt(variance)
        # a difference in a square concerns all its pixels
        error = error.maximum(F.max_pool2d(largest[None], side, 1, side // 2)[0])
    least, most = settings.same
    # the largest of many standard normals is larger than one
    chance = math.sqrt(2 * math.log(max(difference[0].numel(), 2) / 9)) - 2.5
    return ((most + chance - error) / (most - least)).clamp(0, 1)


Shift = tuple[float, float]
"""Pixels, down and to the right."""


def find_shift(other: Tensor, frame: Tensor, settings: StackSettings = _DEFAULT) -> Shift:
    """Return how far a frame [C, H, W] shows the same further down and right than another one; 0
    where it is hardly anything."""
    a, b = (_blur(x.mean(0), settings.smoothing) for x in (frame, other))
    best, shift = min((_misfit(a, b, guess), guess) for guess in ((0.0, 0.0), _correlate(a, b)))
    for _ in range(settings.rounds):
        moved = _read_at(b[None], shift)[0]
        rows, columns = _slopes(moved)
        rest = (a - moved)[2:-2, 2:-2]
        # what moves by itself is left out
        common = rest.abs() <= 3 * rest.abs().median()
        normal = torch.stack([rows[common], columns[common]], 1)
        step = torch.linalg.lstsq(normal, rest[common][:, None]).solution[:, 0]
        if not bool(step.isfinite().all()):
            break
        new = (shift[0] + float(step[0]), shift[1] + float(step[1]))
        misfit = _misfit(a, b, new)
        if misfit >= best:
            break
        shift, best = new, misfit
    return shift if max(map(abs, shift)) >= settings.least else (0.0, 0.0)


def shifted(frame: Tensor, shift: Shift) -> tuple[Tensor, Tensor, float]:
    """Move a frame [C, H, W] by a shift.

    Returns it, 1 where it was seen, [H, W], and the variance of its noise, which interpolation
    lowers.
    """
    if shift == (0.0, 0.0):
        return frame, torch.ones_like(frame[0]), 1.0
    rows, columns = (
        torch.arange(side, dtype=frame.dtype, device=frame.device) + s
        for side, s in zip(frame.shape[1:], shift, strict=True)
    )
    inside = ((rows >= 0) & (rows <= frame.shape[1] - 1))[:, None] & (
        (columns >= 0) & (columns <= frame.shape[2] - 1)
    )
    kept = math.prod(sum(w * w for w in _cubic(s)) for s in shift)
    return _read_at(frame, shift), inside.to(frame), kept


def _misfit(a: Tensor, b: Tensor, shift: tuple[float, float]) -> float:
    """The median difference of two planes, one of them moved, less a margin."""
    margin = min(8, min(a.shape) // 4)
    inner = slice(margin, -margin or None)
    return float((a - _read_at(b[None], shift)[0])[inner, inner].abs().median())


def _correlate(a: Tensor, b: Tensor) -> tuple[float, float]:
    """The whole number of pixels at which b correlates best with a."""
    spectrum = torch.fft.rfft2(a - a.mean()).conj() * torch.fft.rfft2(b - b.mean())
    correlation = torch.fft.irfft2(spectrum, s=a.shape)
    place = int(correlation.argmax())
    row, column = divmod(place, a.shape[1])
    height, width = a.shape
    return float((row + height // 2) % height - height // 2), float(
        (column + width // 2) % width - width // 2
    )


def _slopes(plane: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences along rows and columns, less two pixels at each border."""
    rows = (plane[3:-1, 2:-2] - plane[1:-3, 2:-2]) / 2
    columns = (plane[2:-2, 3:-1] - plane[2:-2, 1:-3]) / 2
    return rows, columns


def _read_at(planes: Tensor, shift: tuple[float, float]) -> Tensor:
    """Planes [C, H, W] read `shift` pixels further down and right, by cubic interpolation."""
    result = planes
    for axis, s in ((1, shift[0]), (2, shift[1])):
        whole = math.floor(s)
        places = torch.arange(planes.shape[axis], device=planes.device) + whole
        total = torch.zeros_like(result)
        for k, weight in enumerate(_cubic(s)):
            at = (places + k - 1).clamp(0, planes.shape[axis] - 1)
            total += weight * result.index_select(axis, at)
        result = total
    return result


def _cubic(shift: float) -> tuple[float, float, float, float]:
    """Weights of the four nearest pixels (Catmull and Rom)."""
    t = shift - math.floor(shift)
    return (
        (-t + 2 * t**2 - t**3) / 2,
        (2 - 5 * t**2 + 3 * t**3) / 2,
        (t + 4 * t**2 - 3 * t**3) / 2,
        (-(t**2) + t**3) / 2,
    )


def _blur(plane: Tensor, sigma: float) -> Tensor:
    """A plane [H, W] blurred by a Gaussian."""
    radius = min(math.ceil(3 * sigma), min(plane.shape) - 1)
    x = torch.arange(-radius, radius + 1, dtype=plane.dtype, device=plane.device)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = kernel / kernel.sum()
    padded = F.pad(plane[None, None], (radius, radius, radius, radius), mode="replicate")
    rows = F.conv2d(padded, kernel[None, None, :, None])
    return F.conv2d(rows, kernel[None, None, None, :])[0, 0]
