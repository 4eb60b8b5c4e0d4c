"""What a picture shows at every place: features of photographs, found through the statistics of
normal pictures.

Most of what a surface shows is not a defect: uneven light, lines of grinding, grain. The covariance
Σ of normal patches describes all of it, so the detector looks for a feature f of photographs with
the filter that separates it best,

    w = Σ⁻¹ f / √(fᵀ Σ⁻¹ f)            a matched filter: its response to normal pictures has
    variance 1

at several scales. Brightness is taken as a logarithm, so that exposure only adds a constant, which
the filters ignore; in small pictures, it is relative to the mean of the picture (`brightness`). In
colour pictures the filters see the mean of the three channels, because the differences of channels
are mostly noise at the size of a pixel; what is left of them in squares of pixels is the colour.
 For aligned objects features and brightness are used as they are. `Cells` summarises
the responses in squares of pixels. Signals are pictures of height 1: their features are cosines
(`cosines`), filters have height 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.curves import CURVES, in_own_units, largest_sums, strokes
from whatwhere.anomaly.squares import max_pool, mean_pool, min_pool
from whatwhere.errors import ImageError
from whatwhere.ops.input_stage import lowpass
from whatwhere.progress import no_op

SIDE = 13  # side of the filters: features of 8 pixels, with their surroundings
FILL = 8.0  # pixels: unknown pixels become a low-pass of this width
QUIET = 0.01  # added to an energy before its logarithm is taken


@dataclass(frozen=True, kw_only=True)
class FilterSpec:
    """Settings of filters.

    Parameters
    ----------
    cosines
        features of signals
    dark
        share of the mean brightness; darker values count as equally dark
    noise
        share of the mean variance; smaller variances count as rounding errors
    least_variance
        the variance of the rounding of 8 bits
    patches
        of each picture, at most, that a covariance is measured on
    clean
        share of known pixels around a cell whose responses are used
    fewest_clean
        share of such cells; with fewer, those near gaps are used, too
    """

    cosines: int = 7
    dark: float = 1 / 32
    noise: float = 1e-3
    least_variance: float = 1e-6
    patches: int = 2000
    clean: float = 0.99
    fewest_clean: float = 0.25


_FILTERS = FilterSpec()


@dataclass(frozen=True)
class Search:
    """How finely pictures are searched.

    Parameters
    ----------
    scales
        how many pixels of the picture are one pixel of a filter
    cell
        side of a cell, in pixels of the picture
    around
        cells: what a place is like is the mean of a square of this side around it
    own
        share of the mean energies of a picture that is subtracted from a place's, so that a texture
        is compared with itself
    nearest
        number of normal places that a place is compared with
    logarithm
        take the logarithm of brightness, so that dark marks stand out more than bright ones
    texture
        the same as `around`, for the texture alone; 0: as `around`
    gap
        cells between a place and those that it is predicted from; 0: no prediction
    detail
        units of a map for each factor e by which a response is smaller than the largest one nearby:
        it sharpens a map, whose places are as coarse as `around`
    reach
        cells: how far away nearby is
    curves
        look for long curves, too
    """

    scales: tuple[int, ...]
    cell: int
    around: int = 3
    own: float = 0.5
    nearest: int = 30
    logarithm: bool = False
    texture: int = 0
    gap: int = 0
    detail: float = 0.5
    reach: int = 1
    curves: bool = False


LARGE = Search(scales=(2, 4), cell=8, logarithm=True, texture=1, gap=5, detail=0.25, curves=True)
SMALL = Search(scales=(1,), cell=2, around=5, own=1.0, nearest=5, detail=2.0, reach=5)
SMALL_OBJECT = Search(scales=(1,), cell=4)
SIGNAL = Search(scales=(1, 2, 4), cell=4)


@dataclass(frozen=True)
class Cells:
    """A picture in squares of `cell` × `cell` pixels.

    Parameters
    ----------
    energy
        [D, rows, columns]: the logarithm of the mean size of each response, then the brightness of
        each channel; for aligned objects, the roots of the means of positive and of negative
        responses, of unit length together
    peaks
        [2 R, rows, columns]: the largest response, and the largest negative one
    known
        [rows, columns]: whether at least half of the pixels are known
    search
        the search that found them
    colour
        [K, rows, columns]: the mean colour; K is 0 unless the picture is in colour
    detail
        [h, w]: how much smaller the largest response is than the largest one nearby, as a
        logarithm, at the finest scale: it shows where in a cell a mark is. Empty if the features
        have no finer places
    curves
        [rows, columns]: the largest sums of responses along dark curves, in units of the picture;
        empty where curves are not looked for
    """

    energy: Tensor
    peaks: Tensor
    known: Tensor
    search: Search
    colour: Tensor = field(default_factory=lambda: torch.empty(0, 0, 0))
    detail: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    curves: Tensor = field(default_factory=lambda: torch.empty(0, 0))


class _ByCell(NamedTuple):
    """The responses in squares of pixels: the means of their sizes [R, rows, columns], `peaks` as
    in `Cells`, its `detail`, and its `curves`, not yet in units."""

    sizes: Tensor
    peaks: Tensor
    detail: Tensor
    curves: Tensor

    def rows_between(self, top: int, bottom: int, cell: int, scale: int) -> "_ByCell":
        """Return the part between two rows of pixels; `cell` and `scale` are the sides of a cell
        and of a place of the detail."""
        cells = slice(top // cell, -(-bottom // cell))
        return _ByCell(
            self.sizes[:, cells],
            self.peaks[:, cells],
            self.detail[top // scale : -(-bottom // scale)],
            self.curves[:, cells],
        )


@dataclass(frozen=True)
class Filters:
    """The filters for pictures of `channels` channels, learned from normal ones by `learn_filters`.

    Parameters
    ----------
    dark
        brightness that counts as dark (`brightness`); 0: values are used as they are
    mixing
        [C, C]: makes planes of the channels (`_learn_channels`)
    kernels
        [scales, P, F, SIDE, SIDE] for the first P planes, of signals [scales, P, F, 1, SIDE]. Other
        planes are colour
    aligned
        whether the pictures are of aligned objects
    strokes
        [K, SIDE, SIDE] for the first plane at the finest scale, which curves consist of; empty
        where curves are not looked for
    """

    dark: float
    mixing: Tensor
    kernels: Tensor
    search: Search
    aligned: bool
    strokes: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def for_signals(self) -> bool:
        return self.kernels.shape[-2] == 1

    @property
    def sees_colour(self) -> bool:
        """Whether there are planes of colour, which the filters do not see."""
        return self.kernels.shape[1] < len(self.mixing)

    def __call__(self, picture: Tensor) -> Cells:
        """Return what a picture [C, H, W] shows; NaN is an unknown pixel."""
        if self.for_signals and picture.shape[1] > 1:
            raise ImageError(
                f"Got a picture of {picture.shape[1]} rows; expected signals, as in fit."
            )
        planes, known = self.planes(picture)
        if self.aligned:
            return self.aligned_cells(planes, known)
        return self.cells(planes, known)

    def planes(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return the planes [C, H, W] of a picture [C, H, W], and which of its pixels are known
        [H, W]."""
        known = picture.isfinite().all(0)
        if known.all():
            values = brightness(picture, self.dark, self.search)
        else:
            values = torch.zeros_like(picture)
            values[:, known] = brightness(picture[:, known], self.dark, self.search)
            values = torch.where(
                known, values, lowpass(values[None], FILL, known[None, None].float())[0]
            )
        return torch.einsum("ij,jhw->ihw", self.mixing, values), known

    def responses(self, planes: Tensor) -> list[Tensor]:
        """Return what the filters find at each scale, [P F, H / scale, W / scale]."""
        seen = planes[: self.kernels.shape[1]]
        weights = self.kernels.flatten(1, 2)[:, :, None]
        size = self.kernels.shape[-2:]
        return [
            F.conv2d(padded(shrink(seen, scale), size), weight, groups=len(seen))[0]
            for scale, weight in zip(self.search.scales, weights, strict=True)
        ]

    def cell_size(self, cells: Cells, picture: Tensor) -> tuple[float, float]:
        """Return height and width of a cell in pixels."""
        return self.search.cell, self.search.cell

    def to_pixels(self, by_cell: Tensor, size: Sequence[int]) -> Tensor:
        """Return values of cells [rows, columns] at every pixel of a picture of this size."""
        return _enlarged(by_cell, self.search.cell, size)

    def detail_to_pixels(self, cells: Cells, size: Sequence[int]) -> Tensor:
        """Return the detail of cells in units of a map, at every pixel of a picture of this
        size."""
        if not cells.detail.numel():
            return torch.zeros(size[0], size[1])
        return self.search.detail * _enlarged(cells.detail, min(self.search.scales), size)

    def aligned_cells(self, planes: Tensor, known: Tensor) -> Cells:
        """Return the cells of an aligned object from its planes [C, H, W]."""
        known_cells = mean_pool(known[None].float(), self.search.cell)[0] >= 0.5
        signs = [
            mean_pool(torch.cat([r, -r]).relu(), side)
            for r, side in zip(self.responses(planes), self.sides, strict=True)
        ]
        roots = around(torch.cat(signs), self.search.around).sqrt() * known_cells
        energy = roots / roots.norm().clamp_min(QUIET)
        return Cells(energy, roots[:0], known_cells, self.search)

    def cells(self, planes: Tensor, known: Tensor) -> Cells:
        """Return the cells of a surface from its planes [C, H, W]."""
        cell = self.search.cell
        seen = self.kernels.shape[1]
        found = self.responses_by_cell(planes, known)
        light = mean_pool(planes, cell)
        energy = torch.cat([found.sizes.add(QUIET).log(), light[:seen]])
        colour = light[seen:]
        reliable = mean_pool(known[None].float(), cell)[0] >= 0.5
        if not known.all():
            reliable &= self.far_from_gaps(known, reliable)
            # The border of a gap is not texture, so such cells count as being like the rest of the
            # picture.
            energy = _like_the_rest(energy, reliable)
            colour = _like_the_rest(colour, reliable)
        peaks = found.peaks * reliable
        curves = torch.empty(0, 0)
        if len(found.curves):
            curves = in_own_units(found.curves, reliable) * reliable
        return Cells(energy, peaks, reliable, self.search, colour, found.detail, curves)

    @property
    def sides(self) -> list[int]:
        """Side of a cell at each scale."""
        return [self.search.cell // scale for scale in self.search.scales]

    def responses_by_cell(self, planes: Tensor, known: Tensor, strip: int = 2**18) -> "_ByCell":
        """Return what is kept of the responses. A large picture is seen in strips of about `strip`
        pixels, because its responses would need twenty times its memory."""
        height, width = planes.shape[1:]
        cell = self.search.cell
        nearby = (self.search.reach * self.sides[0] + 1) * self.search.scales[0]
        if self.strokes.numel():
            nearby = max(nearby, self.search.scales[0] * CURVES.reach)
        halo = cell * -(-(SIDE // 2 * max(self.search.scales) + nearby) // cell)
        rows = max(cell * (strip // width // cell), 2 * halo)
        if self.for_signals or height < 2 * rows:
            return self.by_cell(planes, known)
        found = []
        tops = range(0, height - rows + 1, rows)
        for top, bottom in zip(tops, [*tops[1:], height], strict=True):
            above = min(top, halo)
            near = slice(top - above, bottom + halo)
            part = self.by_cell(planes[:, near], known[near])
            extent = bottom - top if bottom < height else height
            found.append(part.rows_between(above, above + extent, cell, self.search.scales[0]))
        return _ByCell(
            torch.cat([part.sizes for part in found], 1),
            torch.cat([part.peaks for part in found], 1),
            torch.cat([part.detail for part in found]),
            torch.cat([part.curves for part in found], 1),
        )

    def by_cell(self, planes: Tensor, known: Tensor) -> "_ByCell":
        """Return what is kept of the responses to planes [C, H, W], known at [H, W]."""
        responses = self.responses(planes)
        by_scale = list(zip(responses, self.sides, strict=True))
        peaks = [peak for r, side in by_scale for peak in (max_pool(r, side), -min_pool(r, side))]
        # From here on, sizes take the place of the responses, which saves as much memory again.
        sizes = [mean_pool(r.abs_(), side) for r, side in by_scale]
        detail = _detail_of(responses[0], self.search.reach * self.sides[0])
        return _ByCell(torch.cat(sizes), torch.cat(peaks), detail, self.curves(planes, known))

    def curves(self, planes: Tensor, known: Tensor) -> Tensor:
        """Return the largest sums along dark curves in each cell, by direction, [K, rows, columns].
        The border of a gap is no curve: responses near unknown pixels do not count."""
        if not self.strokes.numel():
            return planes.new_empty(0, 0, 0)
        scale = self.search.scales[0]
        plane = shrink(planes[:1], scale)
        bright = F.conv2d(padded(plane, self.strokes.shape[1:]), self.strokes[:, None])[0]
        if not known.all():
            gaps = max_pool((~known)[None].float(), scale)
            near = F.max_pool2d(
                F.max_pool2d(gaps, (SIDE, 1), 1, (SIDE // 2, 0)), (1, SIDE), 1, (0, SIDE // 2)
            )
            bright = bright * (near == 0)
        return largest_sums(-bright, self.sides[0])

    def far_from_gaps(self, known: Tensor, half_known: Tensor) -> Tensor:
        """Return which cells [rows, columns] show what is known [H, W], and not the border of a
        gap; all of them if gaps are nearly everywhere.

        Parameters
        ----------
        half_known
            [rows, columns]: cells with at least half of their pixels known
        """
        reach = max(self.search.scales) * (SIDE // 2)
        window = (1 if self.for_signals else 2 * reach + 1, 2 * reach + 1)
        margin = (window[0] // 2, window[1] // 2)
        around_pixel = F.avg_pool2d(known[None].float(), window, 1, margin, count_include_pad=False)
        clean = mean_pool(around_pixel, self.search.cell)[0] >= _FILTERS.clean
        enough = int((clean & half_known).sum()) >= _FILTERS.fewest_clean * int(half_known.sum())
        return clean if enough else torch.ones_like(clean)


def _like_the_rest(values: Tensor, known: Tensor) -> Tensor:
    """Return values [D, rows, columns] whose unknown cells are the mean of the known ones."""
    return torch.where(known, values, values[:, known].mean(1)[:, None, None])


def _enlarged(values: Tensor, times: int, size: Sequence[int]) -> Tensor:
    """Return values [rows, columns] of squares of `times` × `times` pixels at every pixel [H,
    W]."""
    extent = [side * times for side in values.shape]
    pixels = F.interpolate(values[None, None], extent, mode="bilinear")[0, 0]
    return pixels[: size[0], : size[1]]


def _detail_of(sizes: Tensor, reach: int) -> Tensor:
    """Return the logarithm of the largest size of a response [F, h, w] around every place, less the
    largest one at most `reach` places away, [h, w]."""
    rows = 0 if sizes.shape[1] == 1 else 1  # signals have one row
    smooth = F.avg_pool2d(
        sizes.amax(0)[None],
        (2 * rows + 1, 3),
        1,
        (rows, 1),
        count_include_pad=False,
    )
    size = smooth.clamp_min(QUIET).log()
    # rows, then columns: far faster than squares
    nearby = F.max_pool2d(size, (2 * reach * rows + 1, 1), 1, (reach * rows, 0))
    return (size - F.max_pool2d(nearby, (1, 2 * reach + 1), 1, (0, reach)))[0]


def learn_filters(
    pictures: Sequence[Tensor],
    features: Tensor,
    search: Search,
    aligned: bool,
    advance: Callable[[int], None] = no_op,
) -> Filters:
    """Return the filters that separate features [F, k, k], or [F, 1, k] of signals, from normal
    pictures, each [C, H, W]."""
    size = (1 if features.shape[1] == 1 else SIDE, SIDE)
    as_they_are = aligned or size[0] == 1
    colour = not as_they_are and _is_colour(pictures[0])
    dark, mixing = _learn_channels(pictures, search, as_they_are, colour)
    plain = Filters(dark, mixing, torch.empty(0), search, aligned)
    scales = search.scales
    if aligned:
        advance(len(pictures))
        kernels = centred(features).unflatten(1, size).expand(len(scales), len(mixing), -1, -1, -1)
        return replace(plain, kernels=kernels.float().contiguous())
    seen = 1 if colour else len(mixing)
    sums = torch.zeros(len(scales), seen, math.prod(size), math.prod(size), dtype=torch.float64)
    counts = torch.zeros(len(scales), 1, 1, 1, dtype=torch.float64)
    for picture in pictures:
        planes, _ = plain.planes(picture)
        for total, count, scale in zip(sums, counts, scales, strict=True):
            patches = _spread_patches(shrink(planes[:seen], scale), size)
            total += (patches.mT @ patches).double()
            count += patches.shape[1]
        advance(1)
    covariance = sums / counts
    kernels = _matched(centred(features), covariance).unflatten(-1, size).float()
    if not search.curves:
        return replace(plain, kernels=kernels)
    along = _matched(centred(strokes(SIDE)), covariance[:1, :1])[0, 0]
    return replace(plain, kernels=kernels, strokes=along.unflatten(-1, size).float())


def _learn_channels(
    pictures: Iterable[Tensor], search: Search, as_they_are: bool, colour: bool = False
) -> tuple[float, Tensor]:
    """Return the brightness that counts as dark, and the matrix that makes planes of variance 1 of
    the channels: uncorrelated ones; in colour, the mean of the channels, then what remains."""
    known = [picture[:, picture.isfinite().all(0)].double() for picture in pictures]
    counted = [values for values in known if values.shape[1]]
    lowest = min(float(values.min()) for values in counted)
    mean = sum(float(values.mean()) for values in counted) / len(counted)
    dark = (
        0.0
        if as_they_are or lowest < 0
        else max(_FILTERS.dark * mean, torch.finfo(torch.float32).tiny)
    )
    lights = (brightness(values, dark, search) for values in counted)
    covariance = sum(
        torch.atleast_2d(torch.cov(light, correction=0)) / len(counted) for light in lights
    )
    covariance = torch.as_tensor(covariance)
    first = torch.empty(0, len(covariance), dtype=torch.float64)
    if colour:
        first = torch.full((1, len(covariance)), 1 / len(covariance), dtype=torch.float64)
        centring = torch.eye(len(covariance), dtype=torch.float64) - first
        first = first / (first @ covariance @ first.mT + _FILTERS.least_variance).sqrt()
        covariance = centring @ covariance @ centring
    variances, axes = torch.linalg.eigh(covariance)
    others = (axes / (variances + _FILTERS.least_variance).sqrt()).mT[len(first) :]
    return dark, torch.cat([first, others]).float()


def _is_colour(picture: Tensor) -> bool:
    """Tell whether a picture [C, H, W] is in colour; signals have height 1."""
    return len(picture) == 3 and picture.shape[1] > 1


def _matched(features: Tensor, covariance: Tensor) -> Tensor:
    """w = Σ⁻¹ f / √(fᵀ Σ⁻¹ f) of features [F, D] for covariances [scales, C, D, D]:  [scales, C,
    F, D]."""
    variances, axes = torch.linalg.eigh(covariance)
    floor = _FILTERS.noise * variances.mean(-1, keepdim=True) + _FILTERS.least_variance
    along = features @ axes  # [scales, C, F, D]
    weighted = along / (variances.clamp_min(0) + floor)[..., None, :]
    filters: Tensor = weighted / (along * weighted).sum(-1, keepdim=True).sqrt() @ axes.mT
    return filters - filters.mean(-1, keepdim=True)  # so that exposure has no influence


def centred(features: Tensor) -> Tensor:
    """Features without their mean, of unit length, in the middle of patches: [F, k, k] → [F,
    SIDE²], for signals [F, 1, k] → [F, SIDE].
    """
    before = (SIDE - features.shape[-1]) // 2
    values = (features - features.mean((1, 2), keepdim=True)).double()
    around_it = [before, SIDE - features.shape[-1] - before] * (1 if features.shape[1] == 1 else 2)
    return F.normalize(F.pad(values, around_it).flatten(1), dim=1)


def cosines() -> Tensor:
    """Return the features for signals: the basis of a cosine transform of 8 samples, without the
    mean."""
    samples = torch.arange(_FILTERS.cosines + 1.0) + 0.5
    waves = torch.arange(1.0, _FILTERS.cosines + 1)
    return torch.cos(torch.pi / (_FILTERS.cosines + 1) * torch.outer(waves, samples))[:, None]


def brightness(values: Tensor, dark: float, search: Search) -> Tensor:
    """Return the known values of a picture [C, n] without its exposure: their logarithm, or their
    ratio to their mean."""
    if not dark:
        return values
    light = values.clamp_min(0)
    return (light + dark).log() if search.logarithm else light / light.mean().clamp_min(dark)


def _spread_patches(planes: Tensor, size: tuple[int, int]) -> Tensor:
    """Patches of a size of each channel without their mean, evenly spread, [C, n, D]."""
    step = max(1, math.isqrt(planes[0].numel() // _FILTERS.patches))
    patches = (
        padded(planes, size)[0]
        .unfold(1, size[0], step)
        .unfold(2, size[1], step)
        .flatten(3)
        .flatten(1, 2)
    )
    return patches - patches.mean(-1, keepdim=True)


def padded(planes: Tensor, size: Sequence[int]) -> Tensor:
    """[C, H, W] for filters of a size: what is at the border continues beyond it, [1, C, H + …, W
    + …]."""
    rows, columns = (side // 2 for side in size)
    return F.pad(planes[None], [columns, columns, rows, rows], mode="replicate")


def shrink(planes: Tensor, scale: int) -> Tensor:
    return planes if scale == 1 else mean_pool(planes, scale)


def around(values: Tensor, side: int) -> Tensor:
    """Return the mean of a square around every cell, [D, rows, columns]; at the border, the mean of
    the cells that exist."""
    return F.avg_pool2d(values[None], side, 1, side // 2, count_include_pad=False)[0]
