"""The slow part of a recording, and the hum of the mains: what an input stage of the kind
'baseline' subtracts.

    hum        a sine of the frequency `hum` and its harmonics, whose amplitude and phase change
               slowly: 2 (G cos) ∗ x / G ∗ w, with a Gaussian G of many periods
    slow part  the smoothed running median of `span` samples of the rest. Events that cover less
               than half of a span do not move a median, so that waveforms keep their shape, slow
               ones as well

Both are computed in the same way at every place of a recording, so that its tiles agree. An unknown
sample has no influence.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class BaselineSettings:
    """How the slow part and the hum are computed.

    Parameters
    ----------
    taps
        values of a span whose median is taken, each the mean of the samples around it
    smooth
        the deviation of the Gaussian that smooths the medians is a span divided by this
    harmonics
        of the mains, the first one included
    periods
        the smallest deviation of the hum's Gaussian, in periods of the hum
    spans
        the same in spans: a waveform must be short in comparison
    level
        the deviation, in periods, of the Gaussian whose mean is subtracted before
    reach
        standard deviations at which a Gaussian ends
    """

    taps: int = 16
    smooth: int = 8
    harmonics: int = 5
    periods: int = 5
    spans: int = 2
    level: float = 0.5
    reach: float = 3.0

    def tap_distance(self, span: int) -> int:
        """Return an odd number of samples, so that a local mean has a centre."""
        return max(1, span // self.taps) | 1

    def hum_deviation(self, span: int, hum: float) -> float:
        """Return the deviation of the Gaussian within which the hum keeps its amplitude and phase,
        in samples."""
        return max(self.periods / hum, self.spans * span)

    def gaussian_reach(self, deviation: float) -> int:
        """Return the samples on each side of the centre of a Gaussian."""
        return math.ceil(self.reach * deviation)

    def gaussian(self, deviation: float, like: Tensor) -> Tensor:
        """Compute a Gaussian of sum 1, cut off at its reach."""
        reach = self.gaussian_reach(deviation)
        place = torch.arange(-reach, reach + 1, dtype=torch.float64)
        kernel = torch.exp(-(place**2) / (2 * deviation**2))
        return (kernel / kernel.sum()).to(like)


_USUAL = BaselineSettings()


def baseline_reach(span: int, hum: float, how: BaselineSettings = _USUAL) -> int:
    """Return how far away, in samples, a sample can influence the baseline."""
    step = how.tap_distance(span)
    slow = how.taps // 2 * step + step // 2 + how.gaussian_reach(span / how.smooth)
    if not hum:
        return slow
    deviation = how.hum_deviation(span, hum)
    return slow + how.gaussian_reach(deviation) + how.gaussian_reach(how.level / hum)


def baseline(
    x: Tensor,
    span: int,
    hum: float = 0.0,
    weight: Tensor | None = None,
    how: BaselineSettings = _USUAL,
) -> Tensor:
    """Compute the slow part of signals [N, C, 1, T], and their hum.

    Parameters
    ----------
    span
        samples of the running median
    hum
        cycles per sample; 0: there is none
    weight
        [N, 1 or C, 1, T], 0 where a sample is unknown
    """
    known = torch.ones_like(x) if weight is None else (weight > 0).to(x).expand_as(x)
    x = torch.where(known > 0, x, 0)
    if not hum:
        return _slow_part(x, known, span, how)
    # the hum first: at an end, or at a gap, a median would follow its slope
    sine = _hum_part(x, known, span, hum, how)
    return sine + _slow_part((x - sine) * known, known, span, how)


def _slow_part(x: Tensor, known: Tensor, span: int, how: BaselineSettings) -> Tensor:
    """Compute the smoothed running median; where no sample is known within reach, the mean of
    all."""
    medians = _running_median(x, known, how.tap_distance(span), how.taps)
    mean = (x.sum(-1) / known.sum(-1).clamp(min=1))[..., None]
    seen = (~medians.isnan()).to(x)
    medians = medians.nan_to_num(0)
    kernel = how.gaussian(span / how.smooth, x)
    weight = convolve(seen, kernel)
    enough = weight > 1e-6
    smoothed = convolve(medians, kernel) / torch.where(enough, weight, 1)
    return torch.where(enough, smoothed, mean)


def _running_median(x: Tensor, known: Tensor, step: int, taps: int) -> Tensor:
    """Compute the median of `taps` + 1 local means around every place, `step` samples apart; NaN
    without a known one."""
    box = torch.full((step,), 1 / step, dtype=x.dtype, device=x.device)
    count = convolve(known, box)
    enough = count > 0.5 / step
    means = torch.where(enough, convolve(x, box) / torch.where(enough, count, 1), torch.nan)
    margin = taps // 2 * step
    padded = F.pad(means, (margin, margin), value=torch.nan)
    length = x.shape[-1]
    chunk = 1 << 16  # places whose medians are computed together, in the caches of a core
    parts = []
    for first in range(0, length, chunk):
        last = min(first + chunk, length)
        near = [padded[..., first + k * step : last + k * step] for k in range(taps + 1)]
        if any(bool(means.isnan().any()) for means in near):
            parts.append(torch.stack(near, -1).nanmedian(-1).values)
        else:
            parts.append(median_of(near))
    return torch.cat(parts, -1)


def median_of(values: list[Tensor]) -> Tensor:
    """Compute the median of an odd number of tensors, element by element.

    The smallest and the largest of a few of them cannot be the median, so both are dropped and
    the next one is taken, until one is left: a hundred comparisons of whole tensors, which take a
    tenth of the time of `median`.
    """
    some = list(values[: len(values) // 2 + 2])
    rest = list(values[len(some) :])
    while len(some) > 1:
        last = len(some) - 1
        for k in range(len(some) // 2):
            _sort_pair(some, k, last - k)
        for k in range(1, (len(some) + 1) // 2):
            _sort_pair(some, 0, k)
            _sort_pair(some, last - k, last)
        some = some[1:-1]
        if rest:
            some.append(rest.pop())
    return some[0]


def _sort_pair(values: list[Tensor], low: int, high: int) -> None:
    """Put the smaller of two tensors first, element by element."""
    a, b = values[low], values[high]
    values[low] = torch.minimum(a, b)
    values[high] = torch.maximum(a, b)


def _hum_part(x: Tensor, known: Tensor, span: int, hum: float, how: BaselineSettings) -> Tensor:
    """Compute the hum of signals; unknown samples are 0. The mean over a period is subtracted
    before, so that a drift has no influence."""
    local = how.gaussian(how.level / hum, x)
    level = convolve(x, local) / convolve(known, local).clamp(min=1e-6)
    x = (x - level) * known
    envelope = how.gaussian(how.hum_deviation(span, hum), x)
    reach = len(envelope) // 2
    place = torch.arange(-reach, reach + 1, dtype=torch.float64, device=x.device)
    orders = [k for k in range(1, how.harmonics + 1) if k * hum < 0.5]
    waves = sum(torch.cos(2 * math.pi * k * hum * place) for k in orders)
    kernel = 2 * envelope * torch.as_tensor(waves, device=x.device).to(x)
    return convolve(x, kernel) / convolve(known, envelope).clamp(min=1e-6)


def convolve(x: Tensor, kernel: Tensor) -> Tensor:
    """x [..., T] with a kernel of odd length, of the same length as x, 0 beyond the ends."""
    if len(kernel) <= 64:  # a longer kernel is faster by its spectrum
        return _convolve_by_matrix(x, kernel)
    length = x.shape[-1]
    reach = len(kernel) // 2
    size = length + len(kernel) - 1
    size = 1 << (size - 1).bit_length()
    spectrum = torch.fft.rfft(x, size) * torch.fft.rfft(kernel, size)
    full = torch.fft.irfft(spectrum, size)
    return full[..., reach : reach + length]


def _convolve_by_matrix(x: Tensor, kernel: Tensor) -> Tensor:
    """Compute the same as a product of overlapping pieces of x and a matrix [taps + outputs - 1,
    outputs], whose columns are the kernel, each a place further: `conv1d` of one channel is several
    times slower."""
    outputs = 64  # places that a row of the product has
    length = x.shape[-1]
    taps = len(kernel)
    reach = taps // 2
    pieces = -(-length // outputs)
    size = taps + outputs - 1
    padded = F.pad(x, (reach, pieces * outputs - length + reach))
    matrix = F.pad(kernel.flip(0), (0, outputs)).repeat(outputs)[: size * outputs]
    matrix = matrix.view(outputs, size).T
    products = padded.unfold(-1, size, outputs) @ matrix
    return products.flatten(-2)[..., :length]
