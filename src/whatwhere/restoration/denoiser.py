"""A denoiser whose steps are learned from pairs of clean and noisy pictures.

Sparse coding with a stride: a code z explains squares of 2s × 2s pixels at distances of s = 8, so
that every pixel lies in four of them. T steps, unrolled, with filters of their own for each pass
(Simon and Elad 2019):

    z ← shrink(z + A_k (y - B_k z), σ t_k),        picture = C (g z)

The threshold t_k of every feature and step and the gain g of every feature are functions of the
noise level σ, given at a few levels and interpolated in log σ: one set of filters serves all of
them. The grid of squares can lie at s² places; the mean over these shifts is the result. In blocks
of s × s pixels, A is a product with the 2 × 2 blocks of a square, and B and C add four products
back: nothing but matrix products of [squares, 4 s²] and [4 s², features].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from safetensors.torch import load
from torch import Tensor

from whatwhere.html import notebook_strip
from whatwhere.restoration.fill import FillSettings, fill_in
from whatwhere.restoration.planes import Progress, Restore
from whatwhere.restoration.scales import at_half_size, mix
from whatwhere.restoration.settings import RestorationSpec

BLOCK = 8  # s, pixels
MARGIN = 16  # pixels by which a picture is continued
_REACH = 64  # pixels beyond a tile that its result depends on, to less than 1e-4
_SQUARES = 4096  # squares that are coded together
GREY = 0.5  # subtracted from a picture from 0 to 1, so that features explain deviations from it


@dataclass(frozen=True, kw_only=True)
class _Caution:
    """Settings of the rules that keep texture.

    Parameters
    ----------
    least_range
        standard deviations of the noise from black to white: the denoiser has learned 3.4 and more,
        and at 8 BSD68 with σ = 50 of 255 lost 0.03 dB
    filled
        share of the range from 0 to 1 that a picture in these units fills at least
    faint
        noise that is hard to tell from texture: how much of what was removed is noise is estimated
    few
        with this many pixels, noise must be twice as strong to be recognised
    faint_errors
        standard errors that are subtracted from this estimate, for faint noise
    clear_errors
        for stronger noise: up to twice the best share, no result is worse
    textured
        of the noise's variance: less is removed where texture hides a part of it
    probe
        standard deviations of the noise by which the input is changed for this
    cut_off
        from this share of equally dark or equally bright pixels on, values were cut off
    away
        standard deviations of the noise from black and white, from which on 2 % of it or less were
        cut off
    inside
        with this share of the pixels so far away, they alone say how much is removed
    caution
        with fewer: factor of the noise that is left, which then also depends on the picture, and
        its least value, where three tenths of the pixels were cut off, or more
    rare
        probability that a picture of noise has a wave that counts as texture
    """

    least_range: float = 5.0
    filled: float = 0.25
    faint: float = 12 / 255
    few: int = 2048
    faint_errors: float = 3.0
    clear_errors: float = 1.0
    textured: float = 0.7
    probe: float = 0.1
    cut_off: float = 0.02
    away: float = 2.0
    inside: float = 0.25
    caution: tuple[float, float] = (0.9, 0.75)
    rare: float = 0.01


_CAUTION = _Caution()


@dataclass(frozen=True)
class Denoiser:
    """The numbers of the learned steps.

    Parameters
    ----------
    analysis
        A, [G, 4 s², M]; step k of T uses those of group k G // T
    residual
        B, [G, M, 4 s²]
    synthesis
        C, [M, 4 s²]
    levels
        noise levels σ at which thresholds and gains are given, in units of white, [L]
    threshold
        t / σ, its logarithm, [L, T, M]
    gain
        g, its logarithm, [L, M]

    Examples
    --------
    >>> denoiser = ww.restoration.load_denoiser()
    >>> denoiser.denoise(torch.rand(24, 32), noise=0.1).shape
    torch.Size([24, 32])
    """

    analysis: Tensor
    residual: Tensor
    synthesis: Tensor
    levels: Tensor
    threshold: Tensor
    gain: Tensor

    def __repr__(self) -> str:
        (groups, patch, maps), (levels, steps, _) = self.analysis.shape, self.threshold.shape
        return (
            f"Denoiser({steps} steps, {groups} × {maps} filters of {patch} values, {levels} noise"
            f" levels; {str(self.dtype).removeprefix('torch.')}, {self.device})"
        )

    def _repr_html_(self) -> str:
        """Show the twelve strongest filters of the synthesis, under the line of `repr`."""
        side = math.isqrt(self.synthesis.shape[1])
        strongest = self.synthesis.square().sum(1).topk(12).indices
        filters = self.synthesis[strongest].reshape(-1, 1, side, side)
        return notebook_strip(repr(self), list(0.5 + 0.5 * filters / filters.abs().amax()))

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.levels.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the pictures that it takes."""
        return self.levels.dtype

    def to(self, device: torch.device | str) -> Denoiser:
        """The same on another device."""
        return Denoiser(*(getattr(self, name).to(device) for name in self.__dataclass_fields__))

    def denoise(
        self,
        plane: Tensor,
        noise: float,
        shifts: int = 16,
        tile: int = 512,
        progress: Progress | None = None,
        first: int = 0,
    ) -> Tensor:
        """A picture [H, W] with values from 0 to 1 without its noise of standard deviation `noise`.

        Noise below the lowest level that it learned is removed in part, in proportion to the
        variance.

        Parameters
        ----------
        shifts
            number of shifted grids to average: 16 or more for the best result
        tile
            side of the tiles that a larger picture is cut into; the result does not depend on it
        progress
            called after every tile with its number of pixels
        first
            the first of the 64 places of the grid to use, in an order in which successive places
            are spread evenly
        """
        if noise < (least := float(self.levels[0])):
            return plane.lerp(
                self.denoise(plane, least, shifts, tile, progress, first), (noise / least) ** 2
            )
        result = torch.empty_like(plane)
        padded = reflect(plane - GREY, MARGIN)
        places = grid_places(shifts, first)
        for rows, columns in tiles(plane.shape[0], plane.shape[1], tile):
            (top, bottom), (left, right) = (
                around(rows, padded.shape[0]),
                around(columns, padded.shape[1]),
            )
            clean = self._mean_over_shifts(padded[top:bottom, left:right], noise, places)
            first_row = rows.start + MARGIN - top
            first_column = columns.start + MARGIN - left
            height = rows.stop - rows.start
            width = columns.stop - columns.start
            result[rows, columns] = clean[
                first_row : first_row + height, first_column : first_column + width
            ]
            if progress is not None:
                progress(height * width)
        return result + GREY

    def _mean_over_shifts(
        self, plane: Tensor, noise: float, places: list[tuple[int, int]]
    ) -> Tensor:
        """The mean of the pictures that the grid gives at several places; a margin of 2 s pixels
        is not complete."""
        t = noise * self.at_level(noise, self.threshold).exp()
        g = self.at_level(noise, self.gain).exp()
        # whole blocks, wherever the grid begins
        h, w = ((side - BLOCK + 1) // BLOCK for side in plane.shape)
        total = torch.zeros_like(plane)
        together = max(1, _SQUARES // (h * w))
        for first in range(0, len(places), together):
            windows = [
                (slice(top, top + h * BLOCK), slice(left, left + w * BLOCK))
                for top, left in places[first : first + together]
            ]
            blocks = torch.stack([to_blocks(plane[window]) for window in windows])
            for window, clean in zip(windows, self._steps(blocks, t, g), strict=True):
                total[window] += from_blocks(clean)
        return total / len(places)

    def at_level(self, noise: float, values: Tensor) -> Tensor:
        """Values [L, …] at a noise level: interpolated in log σ, the nearest beyond both ends."""
        knots = self.levels.log()
        x = min(max(math.log(noise), float(knots[0])), float(knots[-1]))
        i = int(torch.searchsorted(knots[1:-1].contiguous(), torch.tensor(x, device=knots.device)))
        share = (x - float(knots[i])) / float(knots[i + 1] - knots[i])
        return values[i].lerp(values[i + 1], share)

    def _steps(self, y: Tensor, t: Tensor, g: Tensor) -> Tensor:
        """T steps on blocks y [S, h, w, s²] of S pictures; thresholds t [T, M], gains g [M]."""
        steps = len(t)
        groups = len(self.analysis)
        z = y.new_zeros(len(y), y.shape[1] - 1, y.shape[2] - 1, t.shape[1])
        explained = torch.zeros_like(y)
        for k in range(steps):
            u = squares(y - explained) @ self.analysis[k * groups // steps]
            last = k + 1 == steps
            B = g[:, None] * self.synthesis if last else self.residual[(k + 1) * groups // steps]
            z, parts = shrink_product(z, u, t[k], B)
            explained = overlap_add(parts)
        return explained


def shrink_product(z: Tensor, u: Tensor, t: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
    """The features z + u [S, h, w, M], shrunk, and what they explain of each square by B [M, 4
    s²]."""
    if z.device.type == "cpu" and z.dtype == torch.float32 and find_spec("numba") is not None:
        from whatwhere.restoration import shrinkage

        return shrinkage.shrink_product(z, u, t, B)
    z = shrink(z + u, t)
    return z, z @ B


def load_denoiser() -> Denoiser:
    """The denoiser that ships with the package, learned from 401 photographs
    (benchmarks/restoration/denoiser.py).

    >>> denoiser = ww.restoration.load_denoiser()
    >>> noisy = 0.5 + 0.1 * torch.randn(1, 1, 40, 40)
    >>> bool(ww.restoration.denoise(noisy, denoiser, 0.1).std() < 0.03)
    True
    """
    numbers = load((files("whatwhere.restoration") / "denoiser.safetensors").read_bytes())
    return Denoiser(**{name: tensor.float() for name, tensor in numbers.items()})


def plane_restorer(
    denoiser: Denoiser, spec: RestorationSpec, progress: Progress | None = None
) -> Restore:
    """Return the function that restores a plane with the denoiser."""

    def denoise(
        plane: Tensor,
        noise: float,
        shifts: int = spec.quality,
        first: int = 0,
        progress: Progress | None = progress,
    ) -> Tensor:
        return denoiser.denoise(plane, noise, shifts, spec.tile, progress, first)

    def two_scales(plane: Tensor, noise: float, progress: Progress | None) -> Tensor:
        shifts = spec.quality // 4

        def coarse() -> Tensor:
            return at_half_size(
                lambda small, grid: denoise(small, noise / 2, shifts, grid * shifts, None), plane
            )

        fine = denoise(plane, noise, progress=progress)
        return mix(fine, coarse, noise) if noise >= 2 * float(denoiser.levels[0]) else fine

    def restore(plane: Tensor, noise: float, mask: Tensor | None) -> Tensor:
        black, white = _value_range(plane, noise) if mask is None else _known_range(plane, mask)
        unit = (plane - black) / (white - black)
        level = noise / (white - black)
        if mask is None:
            clean = _denoise_safely(two_scales, unit, level, progress)
        else:
            settings = FillSettings(rounds=spec.rounds)
            clean = fill_in(denoise, unit, mask, level, spec.quality, settings)
        return black + (white - black) * clean

    return restore


class _TwoPasses:
    """Report two passes over a plane as one; the second may be left out."""

    def __init__(self, progress: Progress | None, pixels: int) -> None:
        self._progress = progress
        self._left = pixels

    def report(self, pixels: int) -> None:
        """Count pixels of one pass."""
        self._advance(pixels // 2)

    def finish(self) -> None:
        """Count what is left."""
        self._advance(self._left)

    def _advance(self, pixels: int) -> None:
        pixels = min(pixels, self._left)
        self._left -= pixels
        if self._progress is not None and pixels:
            self._progress(pixels)


def _denoise_safely(
    denoise: Callable[..., Tensor], plane: Tensor, noise: float, progress: Progress | None = None
) -> Tensor:
    """The plane without noise; texture that looks like noise stays."""
    passes = _TwoPasses(progress, plane.numel())
    clean = _denoise_twice(
        lambda noisy: denoise(noisy, noise, progress=passes.report), plane, noise
    )
    passes.finish()
    return clean


def _denoise_twice(
    denoise: Callable[[Tensor], Tensor], plane: Tensor, noise: float, rules: _Caution = _CAUTION
) -> Tensor:
    """The plane without noise, after a second pass where the first may have removed texture."""

    def denoise_textured(noisy: Tensor) -> Tensor:
        clean = denoise(noisy)
        return clean + _periodic_part(noisy - clean, noise)

    clean = denoise_textured(plane)
    whole = _where_noise_is_whole(plane, clean, noise)
    left = noise
    if not whole.any():
        left = _noise_within_range(plane, clean, noise)
        whole = torch.ones_like(whole)
    removed = plane - clean if whole.all() else (plane - clean)[whole]
    is_clear = left == noise >= rules.faint * (1 + rules.few / removed.numel())
    if is_clear and float(removed.square().mean()) >= rules.textured * noise**2:
        return plane.lerp(clean, share_at_most_the_noise(removed, noise))
    generator = torch.Generator().manual_seed(0)
    signs = 2.0 * torch.randint(2, plane.shape, generator=generator).to(plane) - 1
    change = denoise_textured(plane + rules.probe * noise * signs) - clean
    divergence = float((signs * change)[whole].mean()) / (rules.probe * noise)
    errors = rules.clear_errors if is_clear else rules.faint_errors
    return plane.lerp(clean, share_of_noise(removed, left, divergence, errors))


def _where_noise_is_whole(
    noisy: Tensor, clean: Tensor, noise: float, rules: _Caution = _CAUTION
) -> Tensor:
    """Where the noise was not cut off at black and white: everywhere, unless a picture has its
    lowest or its highest value many times; then pixels far enough from both, and none if these are
    few."""
    low, high = noisy.min(), noisy.max()
    ends = (noisy == low) | (noisy == high)
    if float(ends.float().mean()) < rules.cut_off:
        return torch.ones_like(ends)
    distance = torch.minimum(clean - low, high - clean)
    whole = distance > rules.away * noise
    return whole & (whole.float().mean() >= rules.inside)


def _noise_within_range(
    noisy: Tensor, clean: Tensor, noise: float, rules: _Caution = _CAUTION
) -> float:
    """The noise that is left of `noise` where values beyond black and white were cut off: a value
    x ± σ n near these has a smaller error."""
    low = float(noisy.min())
    high = float(noisy.max())
    share = float(((noisy == low) | (noisy == high)).float().mean())
    normal = torch.distributions.Normal(0.0, 1.0)
    kept = 0.0
    for distance in (clean - low, high - clean):
        # the half of the noise that leads towards one end: E min(σ |n|, distance)² / 2
        d = distance.double().clamp(min=0) / noise
        tail = 1 - normal.cdf(d)
        inner = 0.5 - tail - d * torch.exp(-d.square() / 2) / math.sqrt(2 * math.pi)
        kept += float((inner + d.square() * tail).mean())
    # The more was cut off, the more the estimate depends on a picture that is not known.
    most, least = rules.caution
    return max(most - share / 2, least) * noise * math.sqrt(min(max(kept, 0.0), 1.0))


def _periodic_part(removed: Tensor, noise: float, rules: _Caution = _CAUTION) -> Tensor:
    """The waves in what was removed [H, W] that noise of this standard deviation does not have.

    White noise has a Fourier coefficient of n σ² · t with the probability exp(-t); among n of them
    none is above t = log (n / rare). Lattices, stripes and halftones, which a denoiser of
    photographs takes for noise, have few coefficients, far above.
    """
    count = removed.numel()
    spectrum = torch.fft.rfft2(removed)
    power = spectrum.real.square() + spectrum.imag.square()
    limit = count * noise**2 * math.log(count / rules.rare)
    strong = power > limit
    if not strong.any():
        return torch.zeros_like(removed)
    return torch.fft.irfft2(spectrum * strong, s=removed.shape)


def share_at_most_the_noise(removed: Tensor, noise: float) -> float:
    """The part of what was removed that has no more than the variance of the noise; the rest was
    texture."""
    return min(1.0, noise**2 / max(float(removed.square().mean()), 1e-20))


def share_of_noise(
    removed: Tensor, noise: float, divergence: float, errors: float = _CAUTION.faint_errors
) -> float:
    """The part of what was removed whose removal leaves the smallest expected error (Stein 1981).

    The error of y - a r is σ² - 2 a σ² (1 - divergence) + a² ‖r‖², with means over pixels, for a
    result y - r. What the noise has in common with r, σ² (1 - divergence), is uncertain by σ ‖r‖ /
    √pixels: `errors` times as much is subtracted.
    """
    strength = max(float(removed.square().mean()), 1e-20)
    common = noise**2 * (1 - divergence) - errors * noise * math.sqrt(strength / removed.numel())
    return min(max(common / strength, 0.0), 1.0)


def _value_range(plane: Tensor, noise: float, rules: _Caution = _CAUTION) -> tuple[float, float]:
    """The values that stand for 0 and 1, between which the denoiser has learned, for a plane in any
    units.

    They are the least and the largest mean of 3 × 3 pixels, which has a third of the noise, but at
    least five standard deviations of the noise apart (`least_range`).
    """
    means = F.avg_pool2d(plane[None], 3, 1)[0] if min(plane.shape) >= 3 else plane
    low, high = float(means.min()), float(means.max())
    middle = (low + high) / 2
    half = max(high - low, rules.least_range * noise) / 2
    return (middle - half, middle + half) if half > 0 else (low, low + 1)


def _known_range(plane: Tensor, known: Tensor, rules: _Caution = _CAUTION) -> tuple[float, float]:
    """The values that stand for 0 and 1 for a plane with gaps, where `known` is 0.

    They are 0 and 1 for a plane that fills a good part of this range; for others the least and the
    largest known value.
    """
    values = plane[known > 0]
    low, high = float(values.min()), float(values.max())
    if low == high or (low >= 0 and high <= 1 and high - low >= rules.filled):
        return 0.0, 1.0
    return low, high


def shrink(z: Tensor, t: Tensor) -> Tensor:
    return z - torch.minimum(torch.maximum(z, -t), t)


def squares(blocks: Tensor) -> Tensor:
    """The 2 × 2 blocks of every square:  [S, h, w, s²] → [S, h - 1, w - 1, 4 s²]."""
    above = blocks[:, :-1]
    below = blocks[:, 1:]
    return torch.cat([above[:, :, :-1], above[:, :, 1:], below[:, :, :-1], below[:, :, 1:]], 3)


def overlap_add(parts: Tensor) -> Tensor:
    """The adjoint of `squares`."""
    S, h, w, size = parts.shape
    total = parts.new_zeros(S, h + 1, w + 1, size // 4)
    for part, (row, column) in zip(
        parts.chunk(4, 3), ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True
    ):
        total[:, row : row + h, column : column + w] += part
    return total


def to_blocks(plane: Tensor) -> Tensor:
    """[h s, w s] → [h, w, s²]."""
    return F.pixel_unshuffle(plane[None], BLOCK).permute(1, 2, 0)


def from_blocks(blocks: Tensor) -> Tensor:
    return F.pixel_shuffle(blocks.permute(2, 0, 1), BLOCK)[0]


def reflect(plane: Tensor, margin: int) -> Tensor:
    """The plane continued beyond its border by reflection, as often as its size needs; and up to a
    block more."""

    def places(size: int) -> Tensor:
        period = max(2 * size - 2, 1)
        i = torch.arange(-margin, size + margin + BLOCK, device=plane.device) % period
        return torch.where(i < size, i, period - i)

    return plane[places(plane.shape[0])][:, places(plane.shape[1])]


def tiles(height: int, width: int, side: int) -> Iterator[tuple[slice, slice]]:
    """The tiles of a picture, at multiples of the block, so that all of them share one grid."""
    side = max(BLOCK, side // BLOCK * BLOCK)
    for top in range(0, height, side):
        for left in range(0, width, side):
            yield slice(top, min(top + side, height)), slice(left, min(left + side, width))


def around(extent: slice, size: int) -> tuple[int, int]:
    """Where the part of the padded picture begins and ends that rows or columns of a tile depend
    on."""
    return max(0, extent.start + MARGIN - _REACH), min(size, extent.stop + MARGIN + _REACH + BLOCK)


def grid_places(shifts: int, first: int = 0) -> list[tuple[int, int]]:
    """Where the grid begins, (row, column): `shifts` places of the order, from number
    `first` on."""
    return [_grid_place((first + i) % BLOCK**2) for i in range(shifts)]


def _grid_place(number: int) -> tuple[int, int]:
    """A place of 8 × 8: the first 4 of this order are 4 apart, the first 16 are 2 apart (Bayer
    1973)."""
    row = column = 0
    for distance in (4, 2, 1):
        number, quarter = divmod(number, 4)
        down, right = ((0, 0), (1, 1), (0, 1), (1, 0))[quarter]
        row = row + distance * down
        column = column + distance * right
    return row, column
