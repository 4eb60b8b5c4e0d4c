"""Estimate the noise of a picture from this picture alone.

The diagonal difference of 2 × 2 pixels has the variance of white noise, and texture only adds to
it. So in blocks of 8 × 8 pixels of about the same brightness, a low quantile of the mean square of
these differences is close to the noise, and a line through brightness and variance says how the
noise grows with the brightness. The same differences at half the size tell whether neighbouring
pixels have independent noise.
"""

import functools
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.restoration.noise import NO_NOISE, NoiseEstimate
from whatwhere.restoration.planes import OPPONENT, to_opponent
from whatwhere.restoration.white_noise import estimate_sigma, noise_of


@dataclass(frozen=True, kw_only=True)
class EstimationSettings:
    """Settings of the estimate of noise.

    block        side of the blocks in pixels: 16 differences, whose mean square is within 35 % of
                 the noise's
    quantile     of the blocks of about one brightness: texture raises the mean, a minimum depends
                 on chance
    bins         groups of equal width in brightness, before groups of few blocks are joined
    fewest       blocks in a group, of which neighbours share half their pixels
    clipped      share of a block's pixels with the darkest or the brightest value of the picture
                 from which on its noise was cut off
    model_error  relative error of a group's variance that more blocks do not reduce
    most_excess  limit of the cost of a group above the line, which may have texture: standard
                 errors
    growth       the noise counts as growing with the brightness if its variance grows by this
                 factor; below, one number describes it well
    better       and if the line's cost is below this share of the cost of one number: at most 0.65
                 on photographs with photon noise, at least 0.5 for those with white noise
    whiteness    least standard deviation of stabilised noise by the smallest eigenvalue, which is
                 near 0 for texture: 0.55 and more on micrographs, 0.2 on photographs without noise
    coarser      noise at half size as a multiple of white noise's: from here on it is correlated;
                 1.35 at most where noise is white, 2.7 and more in wide-field micrographs
    coarsest     the same from half to quarter size, at most: texture without noise keeps growing
    even         limits of the 5 % and 50 % quantiles as multiples of the 30 % quantile: only where
                 noise covers the whole picture can correlated noise be told from texture
    strong       least share of the picture's range that correlated noise must have
    camera       settings for the correlated noise of colour pictures
    """

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
    coarser: float = 2.2
    coarsest: float = 1.8
    even: tuple[float, float] = (0.9, 1.08)
    strong: float = 0.05
    camera: "CameraSettings" = field(default_factory=lambda: CameraSettings())


@dataclass(frozen=True, kw_only=True)
class CameraSettings:
    """Settings of the estimate of correlated noise in colour pictures, from their flattest blocks.

    block      side of the blocks in pixels: 256 differences of each direction
    flattest   share of the blocks that are taken for flat, and their least number
    coarser    range of the noise at half size as a multiple of white noise's: 1.9 to 2.9 for
               cameras that interpolate colours
    coarsest   the same from half to quarter size, at most: for brightness, for colour
    colour     least noise of red against blue at half size, as a share of the brightness': 0.25 to
               1.2 for cameras, below 0.2 for textures that look like noise
    weakest    least standard deviation, as a share of the picture's range
    kurtosis   most that differences inside a block may have; it is 3 for noise, 3.0 to 3.9 for
               eight photographs of cameras and above 4.1 for flat parts of pictures without noise
    direction  most that the energies of horizontal and of vertical differences may differ, as the
               absolute logarithm of their ratio, at full and at half size: noise has none
    """

    block: int = 32
    flattest: tuple[float, int] = (0.05, 3)
    coarser: tuple[float, float] = (1.7, 3.0)
    coarsest: tuple[float, float] = (2.25, 3.2)
    colour: float = 0.22
    weakest: float = 0.007
    kurtosis: float = 4.0
    direction: tuple[float, float] = (0.25, 0.5)


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


def estimate_noise(image: Tensor, settings: EstimationSettings = _DEFAULT) -> NoiseEstimate:
    """Estimate the noise of an image, which is taken to be the same in all channels.

    image     floats [C, H, W] in any units
    settings  limits between noise and texture

    >>> noisy = 0.5 + 0.1 * torch.randn(1, 96, 96)
    >>> noise = ww.restoration.estimate_noise(noisy)
    >>> bool(0.09 < noise.sigma < 0.11)
    True
    """
    planes = image.detach().double().cpu()
    size = f"{image.shape[-2]} × {image.shape[-1]} pixels"
    low = float(planes.min())
    scale = float(planes.max()) - low
    if not math.isfinite(scale) or scale <= 0:
        return NO_NOISE
    unit = (planes - low) / scale
    found = _growing(unit, settings) or _correlated(unit, settings)
    if found is None:
        sigma = scale * noise_of(unit)
        return NoiseEstimate(sigma=sigma, source=size, error=_error(planes[0].numel()))
    return _in_units(found, low, scale, size, _error(planes[0].numel()))


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
        return NoiseEstimate(0.0, sigma, 0.0, noise.correlation, covariance, source, error, points)
    gain = scale * noise.gain
    dark = low + scale * (noise.offset - noise.sigma**2 / noise.gain)
    offset = max(dark, min(low, 0.0) if low < 0 else 0.0)
    sigma = math.sqrt(max(0.0, gain * (offset - dark)))
    return NoiseEstimate(gain, sigma, offset, noise.correlation, (), source, error, points)


def _growing(planes: Tensor, settings: EstimationSettings) -> NoiseEstimate | None:
    """Return noise that grows with the brightness; None where one number describes it as well."""
    groups = _group([_blocks(plane, settings) for plane in planes], settings)
    if groups is None or len(groups.count) < 3:
        return None
    gain, level, cost, uniform_cost = _fit_line(groups, settings)
    ends = gain * groups.brightness[[0, -1]] + level
    if gain <= 0 or ends[1] < settings.growth * ends[0] or cost > settings.better * uniform_cost:
        return None
    found = NoiseEstimate(gain=gain, offset=-level / gain, points=_points(groups))
    whiteness = min(estimate_sigma(found.stabilise(plane)) for plane in planes)
    return found if whiteness > settings.whiteness else None


def _correlated(planes: Tensor, settings: EstimationSettings) -> NoiseEstimate | None:
    """Return correlated noise that covers a grey picture; None where it may be texture."""
    if len(planes) == 3:
        return _camera_noise(planes, settings.camera)
    profiles = []
    plane = planes[0]
    for _ in range(3):
        blocks = _blocks(plane, settings)
        if len(blocks.variance) < settings.fewest:
            return None
        profiles.append([_quantile(blocks.variance, q, settings) for q in (0.05, 0.3, 0.5)])
        plane = half_size(plane)
    if min(low for low, _, _ in profiles) <= 0:
        return None
    least, most = settings.even
    even = all(low >= least * mid and high <= most * mid for low, mid, high in profiles[:2])
    coarser, coarsest = (2 * profiles[k + 1][1] / profiles[k][1] for k in (0, 1))
    if not even or coarser < settings.coarser or coarsest > settings.coarsest:
        return None
    width = _width_of(coarser)
    sigma = 2 * profiles[1][1] / _difference(width, 2) ** 2
    spread = torch.quantile(planes[0].flatten()[:: max(1, planes[0].numel() // 10**5)], _ENDS)
    if sigma < settings.strong * float(spread[1] - spread[0]):
        return None
    return NoiseEstimate(sigma=sigma, correlation=width)


def _camera_noise(image: Tensor, settings: CameraSettings) -> NoiseEstimate | None:
    """Return the correlated noise in the flattest blocks of a colour picture [3, H, W]; None where
    it may be texture."""
    height, width = (side // settings.block * settings.block for side in image.shape[1:])
    share, fewest = settings.flattest
    if height * width < 2 * fewest * settings.block**2:
        return None
    level = to_opponent(image)[:, :height, :width]
    details: list[Tensor] = []
    for _ in range(3):
        details.append(_details(level, settings.block // 2 ** len(details) // 2))
        # scaled so that white noise keeps its standard deviation
        level = 2 * half_size(level)
    energy = torch.stack([detail.square().mean(-1) for detail in details])
    score = energy[1, 0].mean(0) + energy[2, 0].mean(0) / 2
    flat = score.argsort()[: max(fewest, int(share * len(score)))]
    deviations = energy[..., flat].mean((2, 3)).sqrt()
    if float(energy[:, 0][..., flat].min()) <= 0 or not _is_noise(details, energy, flat, settings):
        return None
    widths, sigmas = zip(*(_fit_width(deviations[:, p]) for p in range(3)), strict=True)
    inverse = OPPONENT.inverse()
    covariance = inverse @ torch.diag(torch.tensor(sigmas).double().square()) @ inverse.T
    if float(covariance.trace() / 3) < settings.weakest**2:
        return None
    return NoiseEstimate(
        sigma=float(covariance.trace() / 3) ** 0.5,
        correlation=widths[0],
        covariance=tuple(tuple(row) for row in covariance.tolist()),
    )


def _details(planes: Tensor, side: int) -> Tensor:
    """Haar differences of planes [P, H, W] in blocks of side × side of them: [P, 3, N, side²]."""
    a, b = planes[:, ::2, ::2], planes[:, ::2, 1::2]
    c, d = planes[:, 1::2, ::2], planes[:, 1::2, 1::2]
    details = torch.stack([a - b - c + d, a + b - c - d, a - b + c - d], 1) / 2
    blocks = details.unfold(2, side, side).unfold(3, side, side)
    return blocks.flatten(2, 3).flatten(3)


def _is_noise(
    details: list[Tensor], energy: Tensor, flat: Tensor, settings: CameraSettings
) -> bool:
    """Whether flat blocks vary as noise does: the same in all directions, like a normal
    distribution, in colour too, and hardly more at quarter size than at half size."""
    light, colour = (energy[:, p][..., flat].mean((1, 2)).sqrt() for p in (0, 1))
    least, most = settings.coarser
    if not least <= float(light[1] / light[0]) <= most or colour[1] < settings.colour * light[1]:
        return False
    coarsest = torch.stack([light[2] / light[1], colour[2] / colour[1]])
    if bool((coarsest > torch.tensor(settings.coarsest)).any()):
        return False
    for k in (0, 1):
        x = details[k][0][:, flat]
        x = x - x.mean(-1, keepdim=True)
        kurtosis = x.pow(4).mean(-1) / x.square().mean(-1).square()
        direction = (energy[k, 0, 1, flat] / energy[k, 0, 2, flat]).log().abs()
        if float(kurtosis.median()) > settings.kurtosis:
            return False
        if float(direction.median()) > settings.direction[k]:
            return False
    return True


def _fit_width(deviations: Tensor) -> tuple[float, float]:
    """The width and the standard deviation of blurred noise whose Haar differences have these
    standard deviations at full, half and quarter size, [3]."""
    best = (math.inf, 0.0, 0.0)
    for step in range(6, 61):
        width = step / 20
        expected = torch.tensor([_detail(width, 2**k) for k in range(3)], dtype=torch.float64)
        ratio = (deviations / expected).log()
        misfit = float((ratio - ratio.mean()).square().sum())
        best = min(best, (misfit, width, math.exp(float(ratio.mean()))))
    return best[1:]


def _detail(width: float, side: int) -> float:
    """The root mean square of the Haar differences of all three directions of such noise."""
    low, high = _sum(width, side), _difference(width, side)
    return math.sqrt((high**4 + 2 * (low * high) ** 2) / 3)


_ENDS = torch.tensor([0.02, 0.98], dtype=torch.float64)


def half_size(plane: Tensor) -> Tensor:
    """Return the means of 2 × 2 pixels of a plane [H, W]."""
    return F.avg_pool2d(plane[None], 2)[0]


def sigma_at_half_size(width: float) -> float:
    """Return the standard deviation of the mean of 2 × 2 pixels of noise of standard deviation 1
    that was blurred by this width."""
    return (1 + _covariance(width, 1)) / 2


def _covariance(width: float, distance: float) -> float:
    """The correlation along an axis of white noise that was blurred by a Gaussian."""
    return math.exp(-(distance**2) / (4 * width**2)) if width > 0 else float(distance == 0)


def _difference(width: float, side: int) -> float:
    """The standard deviation, along an axis, of the Haar difference of 2 · side pixels of such
    noise."""
    return _deviation(width, [1.0] * side + [-1.0] * side)


def _sum(width: float, side: int) -> float:
    """The same for the sum of 2 · side pixels."""
    return _deviation(width, [1.0] * (2 * side))


@functools.cache
def _covariances(width: float, count: int) -> list[float]:
    return [_covariance(width, distance) for distance in range(count)]


def _deviation(width: float, signs: list[float]) -> float:
    """The standard deviation of a unit filter with these signs."""
    covariances = _covariances(width, len(signs))
    total = sum(
        a * b * covariances[abs(i - j)] for i, a in enumerate(signs) for j, b in enumerate(signs)
    )
    return math.sqrt(max(total, 0.0) / len(signs))


def _width_of(coarser: float) -> float:
    """The width whose noise has this ratio of half size to full size, by bisection."""
    low, high = 0.2, 3.0
    for _ in range(40):
        middle = (low + high) / 2
        ratio = (_difference(middle, 2) / _difference(middle, 1)) ** 2
        low, high = (middle, high) if ratio < coarser else (low, middle)
    return low


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
    """Return gain and level of the best rising line, its cost, and the cost of the best level."""
    x, v = groups.brightness, groups.variance
    zero = torch.zeros_like(v)
    uniform_cost = float(groups.cost(zero, v, settings).min())
    first, second = torch.combinations(torch.arange(len(x))).unbind(1)
    gain = (v[second] - v[first]) / (x[second] - x[first]).clamp(min=1e-12)
    gain = gain.clamp(min=0)
    level = v[first] - gain * x[first]
    costs = groups.cost(gain, level, settings)
    best = int(costs.argmin())
    refined = _refine(groups, float(gain[best]), float(level[best]), settings)
    return *refined, float(costs[best]), uniform_cost


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
