"""How much a recording rises: what an input stage of the kinds 'rise' and 'louder' keeps.

    rise    the mean of the `span` samples that begin at a place, minus the mean of the `span`
            samples before it. An event that begins suddenly and decays slowly, such as a transient
            of calcium, becomes a short peak at its beginning, wherever the decay of earlier ones is
    louder  the rise of the loudness: the power of the differences of samples in windows of a
            twentieth of `span`, each up to a place, in decibels. A burst of any waveform, such as
            an earthquake, becomes a peak at its beginning

A place with fewer than half of the samples on one side, at an end or at a gap, has no rise.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class RiseSettings:
    """How a rise is computed.

    Parameters
    ----------
    windows
        in a span, whose power is a loudness each
    known
        share of the samples on each side of a place that are known at least
    """

    windows: int = 20
    known: float = 0.5


_USUAL = RiseSettings()


def rise_reach(span: int) -> int:
    """Return how far away, in samples, a sample can influence a rise."""
    return 2 * span + 1


def rise(x: Tensor, span: int, weight: Tensor | None = None, how: RiseSettings = _USUAL) -> Tensor:
    """Compute how much signals [N, C, 1, T] rise at each sample.

    Parameters
    ----------
    span
        samples on each side whose means are compared
    weight
        [N, 1 or C, 1, T], 0 where a sample is unknown
    """
    known = _known(x, weight)
    values = torch.where(known > 0, x, 0).double()
    length = x.shape[-1]
    # with the places before the first, whose sums end after it
    sums, counts = (F.pad(each, (span, 0)) for each in (values, known))
    sums, counts = _sums(sums, counts, span)
    before, after = sums[..., :length], sums[..., span:]
    count_before, count_after = counts[..., :length], counts[..., span:]
    enough = torch.minimum(count_before, count_after) >= how.known * span
    step = after / count_after.clamp(min=1) - before / count_before.clamp(min=1)
    return torch.where(enough, step, 0).to(x)


def louder(
    x: Tensor, span: int, weight: Tensor | None = None, how: RiseSettings = _USUAL
) -> Tensor:
    """Compute by how many decibels signals [N, C, 1, T] become louder at each sample: the mean over
    the channels that are heard, as every channel. Silence, such as of a sensor that is off, is
    unknown."""
    known = _known(x, weight)
    both = (known * F.pad(known, (1, 0))[..., :-1]) > 0
    steps = torch.where(both, x - F.pad(x, (1, 0))[..., :-1], 0)
    size = max(1, span // how.windows)
    # windows that end at each place: a loud sample decides the loudness of all that have it
    squares = F.pad(steps.double().square(), (size - 1, 0))
    counted = F.pad(both.double(), (size - 1, 0))
    power, count = (sums[..., : x.shape[-1]] for sums in _sums(squares, counted, size))
    heard = (power > 0) & (count > 0)
    loudness = 10 * torch.log10(torch.where(heard, power / count.clamp(min=1), 1))
    mean = loudness.sum(1, keepdim=True) / heard.sum(1, keepdim=True).clamp(min=1)
    any_heard = heard.any(1, keepdim=True).double()
    return rise(mean, span, any_heard, how).to(x).expand(x.shape)


def _known(x: Tensor, weight: Tensor | None) -> Tensor:
    ones = torch.ones_like(x, dtype=torch.float64)
    return ones if weight is None else (weight > 0).double().expand_as(x)


def _sums(x: Tensor, known: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Compute the sums of the `size` values that begin at each place, and how many are known."""

    def sums(values: Tensor) -> Tensor:
        total = F.pad(values.cumsum(-1), (1, size), mode="constant")
        total[..., values.shape[-1] + 1 :] = total[..., values.shape[-1], None]
        return total[..., size:][..., : values.shape[-1]] - total[..., : values.shape[-1]]

    return sums(x), sums(known)
