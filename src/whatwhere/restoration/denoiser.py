"""A denoiser whose steps are learned from pairs of clean and noisy pictures.

Sparse coding with a stride: a code z explains squares of 2s × 2s pixels at distances of s = 8, so that every pixel
lies in four of them. T steps, unrolled, with filters of their own for each pass (Simon and Elad 2019):

    z ← shrink(z + A_k (y - B_k z), σ t_k),        picture = C (g z)

The threshold t_k of every feature and step and the gain g of every feature are functions of the noise level σ, given
at a few levels and interpolated in log σ: one set of filters serves all of them. The grid of squares can lie at s²
places; the mean over these shifts is the result. In blocks of s × s pixels, A is a product with the 2 × 2 blocks of a
square, and B and C add four products back: nothing but matrix products of [squares, 4 s²] and [4 s², features].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files

import torch
from safetensors.torch import load
from torch import Tensor

BLOCK = 8  # s, pixels
REACH = 64  # pixels beyond a tile that its result depends on, to less than 1e-4
LARGEST = 2.0  # values beyond it, of a picture from 0 to 1 with noise, mean other units
GREY = 0.5  # taken off a picture from 0 to 1, so that features explain deviations from it


@dataclass(frozen=True)
class Denoiser:
    """The numbers of the learned steps.

    analysis   A, [G, 4 s², M]; step k of T takes those of group k G // T
    residual   B, [G, M, 4 s²]
    synthesis  C, [M, 4 s²]
    levels     noise levels σ at which thresholds and gains are given, in units of white, [L]
    threshold  t / σ, its logarithm, [L, T, M]
    gain       g, its logarithm, [L, M]

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

    @property
    def device(self) -> torch.device:
        """Where the numbers are."""
        return self.levels.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the pictures that it takes."""
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
        progress: Callable[[int], None] | None = None,
    ) -> Tensor:
        """A picture [H, W] with values from 0 to 1 without its noise of standard deviation `noise`.

        shifts    of the grid that are averaged, 16 or 64; the steps are learned for the mean of as many
        tile      side of the tiles that a larger picture is cut into; the result does not depend on it
        progress  called with 1 after every tile
        """
        result = torch.empty_like(plane)
        padded = reflect(plane - GREY, REACH)
        height, width = plane.shape
        beyond = 2 * REACH + BLOCK
        for rows, columns in tiles(height, width, tile):
            around = padded[rows.start : rows.stop + beyond, columns.start : columns.stop + beyond]
            clean = self._mean_over_shifts(around, noise, shifts)[REACH:, REACH:]
            result[rows, columns] = clean[: rows.stop - rows.start, : columns.stop - columns.start]
            if progress is not None:
                progress(1)
        return result + GREY

    def _mean_over_shifts(self, plane: Tensor, noise: float, shifts: int) -> Tensor:
        """The mean of the pictures that the grid gives at several places; a margin of 2 s pixels is not complete."""
        t, g = noise * self.at_level(noise, self.threshold).exp(), self.at_level(noise, self.gain).exp()
        h, w = ((side - BLOCK + 1) // BLOCK for side in plane.shape)  # whole blocks, wherever the grid begins
        total = torch.zeros_like(plane)
        for top, left in grid_places(shifts):
            shifted = plane[top : top + h * BLOCK, left : left + w * BLOCK]
            total[top : top + h * BLOCK, left : left + w * BLOCK] += from_blocks(self._steps(to_blocks(shifted), t, g))
        return total / shifts

    def at_level(self, noise: float, values: Tensor) -> Tensor:
        """Values [L, …] at a noise level: interpolated in log σ, the nearest beyond both ends."""
        knots = self.levels.log()
        x = min(max(math.log(noise), float(knots[0])), float(knots[-1]))
        i = int(torch.searchsorted(knots[1:-1].contiguous(), torch.tensor(x, device=knots.device)))
        share = (x - float(knots[i])) / float(knots[i + 1] - knots[i])
        return values[i].lerp(values[i + 1], share)

    def _steps(self, y: Tensor, t: Tensor, g: Tensor) -> Tensor:
        """T steps on blocks y [h, w, s²]; thresholds t [T, M]."""
        z = shrink(squares(y) @ self.analysis[0], t[0])
        for k in range(1, len(t)):
            group = k * len(self.analysis) // len(t)
            error = y - overlap_add(z @ self.residual[group])
            z = shrink(z + squares(error) @ self.analysis[group], t[k])
        return overlap_add((z * g) @ self.synthesis)


def load_denoiser() -> Denoiser:
    """The denoiser that ships with the package, learned from 401 photographs (reproduction/train_denoiser.py).

    >>> denoiser = ww.restoration.load_denoiser()
    >>> noisy = 0.5 + 0.1 * torch.randn(1, 1, 40, 40)
    >>> bool(ww.restoration.denoise(denoiser, noisy, 0.1).std() < 0.03)
    True
    """
    numbers = load((files("whatwhere.restoration") / "denoiser.safetensors").read_bytes())
    return Denoiser(**{name: tensor.float() for name, tensor in numbers.items()})


@dataclass(frozen=True)
class TrainedRestorer:
    """A denoiser with the settings of one task, for images of one channel.

    shifts    of the grid that are averaged
    tile      side of the tiles that a larger picture is cut into
    progress  called with the number of tiles just done
    """

    denoiser: Denoiser
    shifts: int
    tile: int
    progress: Callable[[int], None] | None = None
    channels: int = 1

    def restore(self, images: Tensor, noise: float, mask: Tensor | None = None) -> Tensor:
        """Images [N, 1, H, W] without their noise."""
        assert mask is None, "a denoiser fills in nothing"
        # it has learned pictures from 0 to 1; others are brought to that range
        scale = max(1.0, float(images.abs().max()) / LARGEST)
        clean = [
            self.denoiser.denoise(plane / scale, noise / scale, self.shifts, self.tile, self.progress)
            for plane in images[:, 0]
        ]
        return torch.stack(clean)[:, None] * scale

    def count_tiles(self, channels: int, height: int, width: int) -> int:
        """How many tiles the restoration of one image takes."""
        return channels * len(list(tiles(height, width, self.tile)))


def shrink(z: Tensor, t: Tensor) -> Tensor:
    """The soft threshold of every feature."""
    return z - torch.minimum(torch.maximum(z, -t), t)


def squares(blocks: Tensor) -> Tensor:
    """The 2 × 2 blocks of every square:  [h, w, s²] → [h - 1, w - 1, 4 s²]."""
    return torch.cat([blocks[:-1, :-1], blocks[:-1, 1:], blocks[1:, :-1], blocks[1:, 1:]], 2)


def overlap_add(parts: Tensor) -> Tensor:
    """The adjoint of `squares`."""
    h, w, size = parts.shape
    total = parts.new_zeros(h + 1, w + 1, size // 4)
    for part, (row, column) in zip(parts.chunk(4, 2), ((0, 0), (0, 1), (1, 0), (1, 1)), strict=True):
        total[row : row + h, column : column + w] += part
    return total


def to_blocks(plane: Tensor) -> Tensor:
    """[h s, w s] → [h, w, s²]."""
    h, w = (side // BLOCK for side in plane.shape)
    return plane.view(h, BLOCK, w, BLOCK).permute(0, 2, 1, 3).reshape(h, w, BLOCK * BLOCK)


def from_blocks(blocks: Tensor) -> Tensor:
    """The inverse of `to_blocks`."""
    h, w, _ = blocks.shape
    return blocks.view(h, w, BLOCK, BLOCK).permute(0, 2, 1, 3).reshape(h * BLOCK, w * BLOCK)


def reflect(plane: Tensor, margin: int) -> Tensor:
    """The plane continued beyond its border by reflection, as often as its size needs; and up to a block more."""

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


def grid_places(shifts: int) -> list[tuple[int, int]]:
    """Where the grid begins, (row, column), for a number of shifts: evenly over a block."""
    stride = BLOCK // math.isqrt(shifts)
    return [(row, column) for row in range(0, BLOCK, stride) for column in range(0, BLOCK, stride)]
