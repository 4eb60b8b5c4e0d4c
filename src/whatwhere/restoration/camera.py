"""Estimate the correlated noise of a camera from the flattest blocks of a colour picture.

A camera interpolates colours, smooths them and compresses the picture, so its noise is blurred, and
texture is blurred, too. Nine measures of the flattest blocks tell them apart: how the deviation
grows at half and at quarter size, in brightness and in colour, how normal its distribution is,
whether it has a direction, and whether blocks agree. A logistic regression weighs them, which
learned from photographs and simulated cameras (benchmarks/restoration/camera_noise.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.restoration.correlation import fit_width, half_size
from whatwhere.restoration.likeness import ramp
from whatwhere.restoration.noise import NoiseEstimate
from whatwhere.restoration.planes import OPPONENT, to_opponent


@dataclass(frozen=True, kw_only=True)
class CameraSettings:
    """Settings of the estimate of correlated noise in colour pictures, from their flattest blocks.

    Parameters
    ----------
    block
        side of the blocks in pixels: 256 differences of each direction
    flattest
        share of the blocks that are taken for flat, and their least number
    weights
        of the measures of `CameraFeatures` without the first
    middle
        weighted sum at which noise is as likely as texture
    sure
        how far the sum has to be above; the odds are e to this power. With 0.8, one clean
        photograph in 60 is taken for noisy, and 7 of 10 simulated cameras are recognised
    weakest
        least standard deviation, as a share of the picture's range
    cell
        side in pixels of the squares in which what was removed must have no direction
    directed
        ninth decile over the squares of how much one direction dominates, from 0 to 1: up to the
        first value it is noise and is removed, from the second on it is texture and stays. The
        noise of eight real cameras has 0.34 to 0.384
    square
        side in pixels of the squares in which removed energy is compared with structure
    energy
        variance of what was removed, in variances of the estimated noise: up to the first value the
        estimate may be twice too high, because fine texture covers the picture; from the second on
        it is not
    shares
        share of what was removed that is worth removing for these two. A share of less than twice
        the best one makes nothing worse; the best one is 0.26 or more on 96 pictures with 18 kinds
        of noise, and 0.81 or more for eight real cameras
    flat
        mean energy of what was removed in the flattest quarter of the squares, as a share of that
        in all: up to the first value it is mostly texture, from the second on noise
    textured
        factor of the share for texture
    coloured
        pixels by which the blur of colours is wider than that of brightness: up to the first value
        the noise is not one of a camera, which interpolates and smooths colours; from the second on
        it is. Eight real cameras have 0.5 to 1.3
    plain
        share of what was removed that is worth removing without this, at most
    """

    block: int = 32
    flattest: tuple[float, int] = (0.05, 3)
    weights: tuple[float, ...] = (3.46, 2.07, -5.08, -1.12, -1.29, -1.57, -1.27, -0.65, -0.78)
    middle: float = -8.34
    sure: float = 0.8
    weakest: float = 0.007
    cell: int = 12
    directed: tuple[float, float] = (0.385, 0.39)
    square: int = 8
    energy: tuple[float, float] = (0.7, 0.95)
    shares: tuple[float, float] = (0.5, 0.9)
    flat: tuple[float, float] = (0.65, 0.85)
    textured: float = 0.7
    coloured: tuple[float, float] = (0.25, 0.45)
    plain: float = 0.5


@dataclass(frozen=True)
class CameraFeatures:
    """Measures of the flattest blocks of a colour picture.

    Parameters
    ----------
    values
        logarithms of the deviation at half size, in shares of the picture's range; of its growth
        from full to half size; of the share of colour; of the growth from half to quarter size in
        brightness and in colour; of the kurtosis at full and half size; how much the energies of
        directions differ at full and half size; how much the blocks' energies differ
    deviations
        standard deviations of the details at full, half and quarter size, [3, P], of brightness and
        two differences of colour
    """

    values: Tensor
    deviations: Tensor


_DEFAULT = CameraSettings()


def camera_features(
    images: Sequence[Tensor], settings: CameraSettings = _DEFAULT
) -> CameraFeatures | None:
    """Measure the flattest blocks of pictures [3, H, W] with values from 0 to 1; return None for
    pictures that are too small, or flat parts without any noise."""
    share, fewest = settings.flattest
    parts = [_detail_blocks(image, settings) for image in images]
    details = [torch.cat(sizes, 2) for sizes in zip(*parts, strict=True)]
    blocks = details[0].shape[2]
    if blocks < 2 * fewest:
        return None
    energy = torch.stack([detail.square().mean(-1) for detail in details])
    score = energy[1, 0].mean(0) + energy[2, 0].mean(0) / 2
    flat = score.argsort()[: max(fewest, int(share * blocks))]
    deviations = energy[..., flat].mean((2, 3)).sqrt()
    if min(float(energy[:, 0][..., flat].min()), float(deviations.min())) <= 0:
        return None
    light, colour = deviations[:, 0], deviations[:, 1]
    ratios = [light[1], light[1] / light[0], colour[1] / light[1]]
    ratios += [light[2] / light[1], colour[2] / colour[1]]
    ratios += [_kurtosis(details[k][0][:, flat]) for k in (0, 1)]
    spreads = [(energy[k, 0, 1, flat] / energy[k, 0, 2, flat]).log().abs().median() for k in (0, 1)]
    spreads.append(energy[1, 0].mean(0)[flat].log().std())
    return CameraFeatures(torch.cat([torch.stack(ratios).log(), torch.stack(spreads)]), deviations)


def camera_noise(images: Sequence[Tensor], settings: CameraSettings) -> NoiseEstimate | None:
    """Return the correlated noise in the flattest blocks of colour pictures [3, H, W] with values
    from 0 to 1; None where it may be texture."""
    found = camera_features(images, settings)
    if found is None:
        return None
    weights = torch.tensor(settings.weights, dtype=found.values.dtype)
    if float(weights @ found.values[1:]) < settings.middle + settings.sure:
        return None
    widths, sigmas = zip(*(fit_width(found.deviations[:, p]) for p in range(3)), strict=True)
    inverse = OPPONENT.inverse()
    covariance = inverse @ torch.diag(torch.tensor(sigmas).double().square()) @ inverse.T
    sigma = float(covariance.trace() / 3) ** 0.5
    if sigma < settings.weakest:
        return None
    rows = tuple(tuple(row) for row in covariance.tolist())
    wider = ramp((widths[1] + widths[2]) / 2 - widths[0], settings.coloured)
    removed = settings.plain + (1 - settings.plain) * wider
    return NoiseEstimate(sigma=sigma, correlation=widths[0], covariance=rows, removed=removed)


def share_of_camera_noise(
    removed: Tensor,
    clean: Tensor,
    deviation: float,
    most: float = 1.0,
    settings: CameraSettings = _DEFAULT,
) -> float:
    """Return the share of what was removed from a colour picture, [3, H, W], that is worth
    removing, so that the result is not worse than the picture.

    Little of it is worth removing where the estimate may be too high, or where more was removed
    next to structure than in flat parts, because texture was removed with the noise.

    Parameters
    ----------
    deviation
        of the estimated noise in brightness
    most
        largest share, before what has a direction is left out
    """
    light = _brightness(removed)
    low, high = settings.shares
    found = float(light.square().mean()) / max(deviation**2, 1e-300)
    share = low + (high - low) * ramp(found, settings.energy)
    flat = _energy_of_flat_parts(light, _brightness(clean), settings)
    limit = settings.textured + (1 - settings.textured) * ramp(flat, settings.flat)
    return min(share, high * limit, most) * share_without_direction(removed, settings)


def _energy_of_flat_parts(removed: Tensor, clean: Tensor, settings: CameraSettings) -> float:
    """Return the mean energy of what was removed [H, W] in the flattest quarter of the squares, as
    a share of the mean in all; 1 for a picture without any."""
    side = settings.square
    if min(removed.shape) <= side:
        return 1.0
    slopes = torch.zeros_like(clean)
    slopes[:-1, :-1] = (clean[:-1, 1:] - clean[:-1, :-1]).square()
    slopes[:-1, :-1] += (clean[1:, :-1] - clean[:-1, :-1]).square()
    both = F.avg_pool2d(torch.stack([removed.square(), slopes])[None], side)[0].flatten(1)
    energy, structure = both
    if float(energy.mean()) <= 0:
        return 1.0
    flattest = structure.argsort()[: max(1, len(structure) // 4)]
    return float(energy[flattest].mean() / energy.mean())


def _brightness(image: Tensor) -> Tensor:
    """Return the brightness [H, W] of a colour picture in float64."""
    return to_opponent(image)[0].double()


def share_without_direction(removed: Tensor, settings: CameraSettings = _DEFAULT) -> float:
    """Return the share of what was removed from a colour picture, [3, H, W], that is worth
    removing: 0 for texture.

    Noise has no direction, whereas grass, stripes and edges have one in every small square. It is
    measured by the structure tensor of the brightness.
    """
    light = _brightness(removed)
    smooth = light.new_tensor([0.25, 0.5, 0.25])
    kernel = (smooth[:, None] * smooth)[None, None]
    light = F.conv2d(light[None, None], kernel)[0, 0]
    along = light[1:-1, 2:] - light[1:-1, :-2]
    across = light[2:, 1:-1] - light[:-2, 1:-1]
    if min(along.shape) < settings.cell:
        return 1.0
    products = torch.stack([along.square(), across.square(), along * across])
    xx, yy, xy = F.avg_pool2d(products[None], settings.cell)[0].flatten(1)
    energy = xx + yy
    seen = energy > 0
    if not seen.any():
        return 1.0
    direction = ((xx - yy).square() + 4 * xy.square()).sqrt()[seen] / energy[seen]
    place = math.ceil(0.9 * len(direction))
    return 1 - ramp(float(direction.kthvalue(place).values), settings.directed)


def _detail_blocks(image: Tensor, settings: CameraSettings) -> list[Tensor]:
    """Return the Haar differences of a picture [3, H, W] in blocks, at full, half and quarter size,
    in brightness and differences of colour: [P, 3, N, side²] each."""
    height, width = (side // settings.block * settings.block for side in image.shape[1:])
    level = to_opponent(image)[:, :height, :width]
    details: list[Tensor] = []
    for _ in range(3):
        side = settings.block // 2 ** len(details) // 2
        if min(height, width) == 0:
            details.append(level.new_zeros(3, 3, 0, side**2))
            continue
        details.append(_details(level, side))
        # scaled so that white noise keeps its standard deviation
        level = 2 * half_size(level)
    return details


def _details(planes: Tensor, side: int) -> Tensor:
    """Return the Haar differences of planes [P, H, W] in blocks of side × side of them, [P, 3, N,
    side²]: diagonal, between rows, between columns."""
    a, b = planes[:, ::2, ::2], planes[:, ::2, 1::2]
    c, d = planes[:, 1::2, ::2], planes[:, 1::2, 1::2]
    details = torch.stack([a - b - c + d, a + b - c - d, a - b + c - d], 1) / 2
    blocks = details.unfold(2, side, side).unfold(3, side, side)
    return blocks.flatten(2, 3).flatten(3)


def _kurtosis(details: Tensor) -> Tensor:
    """Return the median kurtosis of blocks [3, N, P], which is 3 for normal distributions."""
    x = details - details.mean(-1, keepdim=True)
    return (x.pow(4).mean(-1) / x.square().mean(-1).square()).median()
