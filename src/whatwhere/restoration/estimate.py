"""Estimate the noise of a picture from this picture alone, or from all that were taken alike.

The diagonal difference of 2 × 2 pixels has the variance of white noise, and texture only adds to
it. So in blocks of 8 × 8 pixels of about the same brightness, a low quantile of the mean square of
these differences is close to the noise, and a line through brightness and variance says how the
noise grows with the brightness. The same differences at half the size tell whether neighbouring
pixels have independent noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.data.arrays import is_one_picture
from whatwhere.errors import InvalidImages, plural
from whatwhere.restoration.camera import CameraSettings, camera_noise
from whatwhere.restoration.correlation import difference, half_size, width_of
from whatwhere.restoration.forms import open_form
from whatwhere.restoration.noise import NO_NOISE, NoiseEstimate
from whatwhere.restoration.white_noise import estimate_sigma, noise_of


@dataclass(frozen=True, kw_only=True)
class EstimationSettings:
    """Settings of the estimate of noise.

    Parameters
    ----------
    square
        side in pixels of the squares that stand for a large picture
    squares
        their number, at least, along each side of it
    block
        side of the blocks in pixels: 16 differences, whose mean square is within 35 % of the
        noise's
    quantile
        of the blocks of about one brightness: texture raises the mean, a minimum depends on chance
    bins
        groups of equal width in brightness, before groups of few blocks are joined
    fewest
        blocks in a group; neighbours share half their pixels
    clipped
        share of a block's pixels with the darkest or the brightest value of the picture from which
        on its noise was cut off
    model_error
        relative error of a group's variance that more blocks do not reduce
    most_excess
        limit of the cost of a group above the line, which may have texture: standard errors
    growth
        the noise counts as growing with the brightness if its variance grows by this factor; below,
        one number describes it well
    better
        and if the line's cost is below this share of the cost of one number: at most 0.65 on
        photographs with photon noise, at least 0.5 for those with white noise
    whiteness
        least share of the noise's standard deviation that the smallest eigenvalue explains where
        noise is white: 0.55 and more on micrographs, 0.2 on photographs without noise, 0.57 and
        more for 61 colour pictures with white noise, 0 for 70 with correlated noise
    impossible
        largest share of the noise's variance by which pixels may be darker than its line allows: at
        most 0.011 for 192 pictures with the noise of photons and 4e-5 on micrographs, 0.04 and more
        for a texture that the line fitted by chance
    coarser
        noise at half size as a multiple of white noise's: from here on it is correlated; 1.35 at
        most where noise is white, 2.7 and more in wide-field micrographs
    coarsest
        the same from half to quarter size, at most: texture without noise keeps growing
    even
        limits of the 5 % and 50 % quantiles as multiples of the 30 % quantile: only where noise
        covers the whole picture can correlated noise be told from texture
    strong
        least share of the picture's range that correlated noise must have
    faint
        noise of up to this share of the picture's range stays, and from the second share on all of
        it is removed. Pictures that count as clean have up to 0.011 (Set12, means of 50
        micrographs), single micrographs 0.03 to 0.13
    camera
        settings for the correlated noise of colour pictures
    """

    square: int = 512
    squares: int = 4
    block: int = 8
    quantile: float = 0.3
    bins: int = 32
    fewest: int = 48
    clipped: float = 0.02
    model_error: float = 0.05
    most_excess: float = 3.0
    growth: float = 2.2
    better: float = 0.6
    whiteness: float = 0.5
    impossible: float = 0.02
    coarser: float = 2.2
    coarsest: float = 1.8
    even: tuple[float, float] = (0.9, 1.08)
    strong: float = 0.05
    faint: tuple[float, float] = (0.014, 0.019)
    camera: CameraSettings = field(default_factory=CameraSettings)


@dataclass(frozen=True)
class _Blocks:
    """Brightness and variance of the blocks of a picture, [N] each."""

    brightness: Tensor
    variance: Tensor


@dataclass(frozen=True)
class _Groups:
    """Brightness, variance and number of blocks of groups of blocks, [B] each."""

    brightness: Tensor
    variance: Tensor
    count: Tensor

    def cost(self, gain: Tensor, level: Tensor, settings: EstimationSettings) -> Tensor:
        """Return the costs [L] of lines gain · brightness + level, [L] each."""
        line = gain[:, None] * self.brightness + level[:, None]
        excess = (self.variance / line - 1) / self.spread(settings)
        costs = torch.where(excess > 0, excess.clamp(max=settings.most_excess), -excess.clamp(-6))
        total = (costs * self.weight).sum(1)
        return torch.where((line > 0).all(1), total, torch.inf)

    def spread(self, settings: EstimationSettings) -> Tensor:
        """Return the relative standard error of every group's variance."""
        return (0.3 / self.independent + settings.model_error**2).sqrt()

    @property
    def weight(self) -> Tensor:
        return self.independent.sqrt()

    @property
    def independent(self) -> Tensor:
        """The number of blocks that share no pixels, limited so that no group outweighs all
        others."""
        return self.count.clamp(max=1000) / 4


_DEFAULT = EstimationSettings()


def estimate_noise(image: object, settings: EstimationSettings = _DEFAULT) -> NoiseEstimate:
    """Estimate the noise of an image, or of several that were taken alike; it is taken to be the
    same in all channels.

    Parameters
    ----------
    image
        a picture, or several, as `denoise` takes them, in any units; a list may have pictures of
        any sizes, and its tensors may be [C, H, W]. The noise of several is one: dark and bright
        pictures then tell together how it grows
    settings
        limits between noise and texture

    Examples
    --------
    >>> noisy = [0.5 + 0.1 * torch.randn(1, 96, 96) for _ in range(4)]
    >>> noise = ww.restoration.estimate_noise(noisy[0])
    >>> bool(0.09 < noise.sigma < 0.11)
    True
    >>> noise = ww.restoration.estimate_noise(noisy)
    >>> noise.source
    '4 pictures'
    """
    given = _pictures(image)
    _check_alike(given)
    images = [part.detach().double().cpu() for each in given for part in _parts(each, settings)]
    pixels = sum(each[0].numel() for each in images)
    size = f"{given[0].shape[-2]} × {given[0].shape[-1]} pixels"
    source = size if len(given) == 1 else plural(len(given), "picture")
    low = min(float(each.min()) for each in images)
    scale = max(float(each.max()) for each in images) - low
    if not math.isfinite(scale) or scale <= 0:
        return NO_NOISE
    units = [(each - low) / scale for each in images]
    groups = _group([_blocks(plane, settings) for each in units for plane in each], settings)
    white = noise_of(units)
    found = _growing(units, groups, settings) or _correlated(units, white, settings)
    found = found or NoiseEstimate(sigma=white)
    if groups is not None:
        found = replace(found, points=_points(groups))
    noise = _in_units(found, low, scale, source, _error(pixels))
    # what tells correlated noise from texture asks for more than faint noise
    return noise if noise.correlation else replace(noise, removed=_worth(images, noise, settings))


def _pictures(image: object) -> list[Tensor]:
    """Return pictures [C, H, W] in their own units."""
    if not isinstance(image, list | tuple):
        return list(open_form(image).images)
    pictures: list[Tensor] = []
    for one in image:
        is_open = isinstance(one, Tensor) and one.ndim == 3 and not is_one_picture(one.shape)
        pictures += [one] if is_open else _pictures(one)
    return pictures


def _parts(image: Tensor, settings: EstimationSettings) -> list[Tensor]:
    """Return an image [C, H, W], or squares spread evenly over a large one."""
    side = settings.square
    grid = [max(1, round(n / (settings.squares * side))) for n in image.shape[1:]]
    if max(grid) == 1:
        return [image]
    tops, lefts = (
        range(0, max(n - side, 0) + 1, step * side)
        for n, step in zip(image.shape[1:], grid, strict=True)
    )
    return [image[:, top : top + side, left : left + side] for top in tops for left in lefts]


def _check_alike(images: Sequence[Tensor]) -> None:
    """Raise an ImageError unless there are pictures, all grey or all of as many channels."""
    shapes = [list(each.shape) for each in images]
    if not shapes or any(len(shape) != 3 or shape[0] != shapes[0][0] for shape in shapes):
        raise InvalidImages(
            f"pictures of shapes {shapes[:4]}",
            "at least one [C, H, W], all of as many channels",
            "Estimate the noise of colour and grey pictures separately.",
        )


def _worth(images: Sequence[Tensor], noise: NoiseEstimate, settings: EstimationSettings) -> float:
    """Return the share of the noise that is worth removing: 0 where it is too faint to show."""
    every = 2 if sum(image.numel() for image in images) > 10**6 else 1
    few = torch.cat([image[:, ::every, ::every].flatten() for image in images])
    low, high = map(float, np.quantile(few.numpy(), (0.001, 0.999)))
    variance = noise.gain * (few - noise.offset).clamp(min=0).mean() + noise.sigma**2
    least, enough = settings.faint
    ratio = float(variance) ** 0.5 / max(high - low, 1e-300)
    return min(max((ratio - least) / (enough - least), 0.0), 1.0)


def _in_units(
    noise: NoiseEstimate, low: float, scale: float, source: str, error: float
) -> NoiseEstimate:
    """Return the noise of a picture low + scale · unit, given the noise of `unit`."""
    # The line is 0 at `dark`, and no pixel is darker. The offset is 0, or the darkest pixel, if the
    # line is positive there.
    points = tuple((low + scale * x, scale**2 * v, n) for x, v, n in noise.points)
    if noise.is_uniform:
        sigma = scale * noise.sigma
        covariance = tuple(tuple(scale**2 * v for v in row) for row in noise.covariance)
        return replace(
            noise, sigma=sigma, covariance=covariance, source=source, error=error, points=points
        )
    gain = scale * noise.gain
    dark = low + scale * (noise.offset - noise.sigma**2 / noise.gain)
    offset = max(dark, min(low, 0.0) if low < 0 else 0.0)
    sigma = math.sqrt(max(0.0, gain * (offset - dark)))
    return NoiseEstimate(gain, sigma, offset, noise.correlation, (), source, error, points)


def _growing(
    images: Sequence[Tensor], groups: _Groups | None, settings: EstimationSettings
) -> NoiseEstimate | None:
    """Return noise that grows with the brightness; None where one number describes it as well."""
    if groups is None or len(groups.count) < 3:
        return None
    gain, level, cost, uniform_cost = _fit_line(groups, settings)
    if not math.isfinite(cost):
        return None
    ends = gain * groups.brightness[[0, -1]] + level
    if gain <= 0 or ends[1] < settings.growth * ends[0] or cost > settings.better * uniform_cost:
        return None
    found = NoiseEstimate(gain=gain, offset=-level / gain)
    if _impossible(images, found) > settings.impossible:
        return None
    channels = zip(*(found.stabilise(image) for image in images), strict=True)
    whiteness = min(estimate_sigma(planes) for planes in channels)
    return found if whiteness > settings.whiteness else None


def _impossible(images: Sequence[Tensor], noise: NoiseEstimate) -> float:
    """Return the mean square by which pixels are darker than noise of photons can be, as a share of
    the mean variance of the noise."""
    values = torch.cat([image.flatten() for image in images])
    variance = noise.gain * (values - noise.offset).clamp(min=0).mean()
    return float(noise.too_dark(values).square().mean() / variance)


def _correlated(
    images: Sequence[Tensor], white: float, settings: EstimationSettings
) -> NoiseEstimate | None:
    """Return correlated noise; None where it may be texture, and in colour pictures where noise of
    the standard deviation `white` by the smallest eigenvalue explains it."""
    if len(images[0]) == 3:
        camera = camera_noise(images, settings.camera)
        return None if camera is None or white > settings.whiteness * camera.sigma else camera
    profiles = []
    planes = [image[0] for image in images]
    for _ in range(3):
        variance = torch.cat([_blocks(plane, settings).variance for plane in planes])
        if len(variance) < settings.fewest:
            return None
        profiles.append([_quantile(variance, q, settings) for q in (0.05, 0.3, 0.5)])
        planes = [half_size(plane) for plane in planes if min(plane.shape) > 1]
    if min(low for low, _, _ in profiles) <= 0:
        return None
    least, most = settings.even
    even = all(low >= least * mid and high <= most * mid for low, mid, high in profiles[:2])
    coarser, coarsest = (2 * profiles[k + 1][1] / profiles[k][1] for k in (0, 1))
    if not even or coarser < settings.coarser or coarsest > settings.coarsest:
        return None
    width = width_of(coarser)
    sigma = 2 * profiles[1][1] / difference(width, 2) ** 2
    brightness = torch.cat([image[0].flatten() for image in images])
    few = brightness[:: max(1, len(brightness) // 10**5)]
    darkest, brightest = torch.quantile(few, few.new_tensor([0.02, 0.98]))
    if sigma < settings.strong * float(brightest - darkest):
        return None
    return NoiseEstimate(sigma=sigma, correlation=width)


def _blocks(plane: Tensor, settings: EstimationSettings) -> _Blocks:
    """Measure the blocks of a plane [H, W], less those in which values were cut off."""
    h, w = (side // 2 * 2 for side in plane.shape)
    side = settings.block
    if min(h, w) < side:
        return _Blocks(plane.new_zeros(0), plane.new_zeros(0))
    even = plane[:h, :w]
    difference = (even[::2, ::2] - even[::2, 1::2] - even[1::2, ::2] + even[1::2, 1::2]) / 2
    ends = ((even <= even.min()) | (even >= even.max())).to(plane)
    variance = F.avg_pool2d(difference.square()[None], side // 2, side // 4)[0].flatten()
    brightness = F.avg_pool2d(even[None], side, side // 2)[0].flatten()
    kept = F.avg_pool2d(ends[None], side, side // 2)[0].flatten() < settings.clipped
    return _Blocks(brightness[kept], variance[kept])


def _quantile(variances: Tensor, share: float, settings: EstimationSettings) -> float:
    """The standard deviation of noise whose blocks have this quantile, [N]."""
    place = min(int(share * len(variances)), len(variances) - 1) + 1
    value = float(variances.kthvalue(place).values)
    return math.sqrt(value / _chi_square_quantile(share, settings.block**2 // 4))


def _chi_square_quantile(share: float, count: int) -> float:
    """A quantile of the mean square of `count` standard normals (Wilson and Hilferty 1931)."""
    z = float(torch.special.ndtri(torch.tensor(share, dtype=torch.float64)))
    return (1 - 2 / (9 * count) + z * math.sqrt(2 / (9 * count))) ** 3


def _group(parts: list[_Blocks], settings: EstimationSettings) -> _Groups | None:
    """Group blocks of all planes by their brightness."""
    brightness = torch.cat([part.brightness for part in parts])
    variance = torch.cat([part.variance for part in parts])
    if len(brightness) < 2 * settings.fewest:
        return None
    brightness, order = brightness.sort()
    variance = variance[order]
    width = (brightness[-1] - brightness[0]) / settings.bins
    edges = brightness[0] + width * torch.arange(1, settings.bins + 1, dtype=width.dtype)
    ends = torch.searchsorted(brightness, edges, right=True).tolist()
    ends[-1] = len(brightness)
    groups = []
    start = 0
    for end in ends:
        if end - start >= settings.fewest:
            groups.append([start, end])
            start = end
    groups[-1][1] = len(brightness)
    rows = [
        (
            float(brightness[a:b].mean()),
            _quantile(variance[a:b], settings.quantile, settings) ** 2,
            b - a,
        )
        for a, b in groups
    ]
    return _Groups(*torch.tensor(rows, dtype=torch.float64).unbind(1))


def _fit_line(groups: _Groups, settings: EstimationSettings) -> tuple[float, float, float, float]:
    """Return gain and level of the best rising line, its cost, and the cost of the best level; the
    costs are infinite where no line is positive, because groups have no noise."""
    x, v = groups.brightness, groups.variance
    zero = torch.zeros_like(v)
    uniform_cost = float(groups.cost(zero, v, settings).min())
    first, second = torch.combinations(torch.arange(len(x))).unbind(1)
    gain = (v[second] - v[first]) / (x[second] - x[first]).clamp(min=1e-12)
    gain = gain.clamp(min=0)
    level = v[first] - gain * x[first]
    costs = groups.cost(gain, level, settings)
    best = int(costs.argmin())
    line = float(gain[best]), float(level[best])
    if math.isfinite(cost := float(costs[best])):
        line = _refine(groups, *line, settings)
    return *line, cost, uniform_cost


def _refine(
    groups: _Groups, gain: float, level: float, settings: EstimationSettings
) -> tuple[float, float]:
    """Fit the line by least squares, in which groups far above it, which have texture, count
    less."""
    x, v = groups.brightness, groups.variance
    design = torch.stack([x, torch.ones_like(x)], 1)
    for _ in range(20):
        line = gain * x + level
        excess = (v / line - 1) / groups.spread(settings)
        above = (1 + (excess / 1.5) ** 2) ** -1.5
        below = 1 / (1 + (excess / 3) ** 2)
        weight = torch.where(excess > 0, above, below) * groups.weight
        weight = weight / line.square() / groups.spread(settings)
        if not weight.isfinite().all():
            break  # variances far below the smallest step of the values
        solution = torch.linalg.lstsq(
            design * weight.sqrt()[:, None], v[:, None] * weight.sqrt()[:, None]
        ).solution
        new_gain, new_level = solution[:, 0].tolist()
        if not new_gain > 0 or bool((new_gain * x + new_level <= 0).any()):
            break
        gain, level = new_gain, new_level
    return gain, level


def _points(groups: _Groups) -> tuple[tuple[float, float, int], ...]:
    rows = zip(groups.brightness, groups.variance, groups.count, strict=True)
    return tuple((float(x), float(v), int(n)) for x, v, n in rows)


def _error(pixels: int) -> float:
    """The relative standard error of σ from the diagonal differences of all pixels."""
    return math.sqrt(0.5 / max(1, pixels // 4))
