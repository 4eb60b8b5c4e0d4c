"""What a picture shows at every place: features of photographs, found through the statistics of
normal pictures.

Most of what a surface shows is not a defect: uneven light, lines of grinding, grain. The covariance
Σ of normal patches describes all of it, so the detector looks for a feature f of photographs with
the filter that separates it best,

    w = Σ⁻¹ f / √(fᵀ Σ⁻¹ f)            a matched filter: its response to normal pictures has
    variance 1

at several scales, in every channel. Brightness is taken as a logarithm, so that exposure only adds
a constant, which the filters ignore; in small pictures, it is relative to the mean of the picture
(`brightness`). For aligned objects features and brightness are used as they are. `Cells` summarises
the responses in squares of pixels. Signals are pictures of height 1: their features are cosines
(`cosines`), filters have height 1.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError
from whatwhere.ops.input_stage import lowpass
from whatwhere.progress import no_op

SIDE = 13  # side of the filters: features of 8 pixels, with their surroundings
COSINES = 7  # features of signals
DARK = 1 / 32  # share of the mean brightness; darker values count as equally dark
NOISE = 1e-3  # share of the mean variance; smaller variances count as rounding errors
LEAST_VARIANCE = 1e-6  # the variance of the rounding of 8 bits
PATCHES = 2000  # of each picture, at most, that a covariance is measured on
FILL = 8.0  # pixels: unknown pixels become a low-pass of this width
CLEAN = 0.99  # share of known pixels around a cell whose responses are used
FEWEST_CLEAN = 0.25  # share of such cells; with fewer, those near gaps are used, too
QUIET = 0.01  # added to an energy before its logarithm is taken


@dataclass(frozen=True)
class Search:
    """How finely pictures are searched.

    scales     how many pixels of the picture are one pixel of a filter
    cell       side of a cell, in pixels of the picture
    around     cells: what a place is like is the mean of a square of this side around it
    own        share of the mean energies of a picture that is subtracted from a place's, so that a
               texture is compared with itself
    nearest    number of normal places that a place is compared with
    logarithm  take the logarithm of brightness, so that dark marks stand out more than bright ones
    texture    the same as `around`, for the texture alone; 0: as `around`
    gap        cells between a place and those that it is predicted from; 0: no prediction
    detail     units of a map for each factor e by which a response is smaller than the largest one
               nearby: it sharpens a map, whose places are as coarse as `around`
    reach      cells: how far away nearby is
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


LARGE = Search(scales=(2, 4), cell=8, logarithm=True, texture=1, gap=5, detail=0.25)
SMALL = Search(scales=(1,), cell=2, around=5, own=1.0, nearest=5, detail=2.0, reach=5)
SMALL_OBJECT = Search(scales=(1,), cell=4)
SIGNAL = Search(scales=(1, 2, 4), cell=4)


@dataclass(frozen=True)
class Cells:
    """A picture in squares of `cell` × `cell` pixels.

    energy  [D, rows, columns]: the logarithm of the mean size of each response, then the brightness
            of each channel; for aligned objects, the roots of the means of positive and of negative
            responses, of unit length together
    peaks   [2 R, rows, columns]: the largest response, and the largest negative one
    known   [rows, columns]: whether at least half of the pixels are known
    search  the search that found them
    detail  [h, w]: how much smaller the largest response is than the largest one nearby,
            as a logarithm, at the finest scale: it shows where in a cell a mark is.
            Empty if the features have no finer places
    """

    energy: Tensor
    peaks: Tensor
    known: Tensor
    search: Search
    detail: Tensor = field(default_factory=lambda: torch.empty(0, 0))


@dataclass(frozen=True)
class Filters:
    """The filters for pictures of `channels` channels, learned from normal ones by `learn_filters`.

    dark     brightness that counts as dark (`brightness`); 0: values are used as they are
    mixing   [C, C]: makes the channels uncorrelated
    kernels  [scales, C, F, SIDE, SIDE], of signals [scales, C, F, 1, SIDE]
    aligned  whether the pictures are of aligned objects
    """

    dark: float
    mixing: Tensor
    kernels: Tensor
    search: Search
    aligned: bool

    @property
    def for_signals(self) -> bool:
        return self.kernels.shape[-2] == 1

    def __call__(self, picture: Tensor) -> Cells:
        """Return what a picture [C, H, W] shows; NaN is an unknown pixel."""
        if self.for_signals and picture.shape[1] > 1:
            raise ImageError(
                f"Got a picture of {picture.shape[1]} rows; expected signals, as in fit."
            )
        planes, known = self.planes(picture)
        return self.cells(planes, self.responses(planes), known)

    def planes(self, picture: Tensor) -> tuple[Tensor, Tensor]:
        """Return a picture [C, H, W] as uncorrelated channels [C, H, W], and which pixels are known
        [H, W]."""
        known = picture.isfinite().all(0)
        values = torch.zeros_like(picture)
        values[:, known] = brightness(picture[:, known], self.dark, self.search)
        if not known.all():
            values = torch.where(
                known, values, lowpass(values[None], FILL, known[None, None].float())[0]
            )
        return torch.einsum("ij,jhw->ihw", self.mixing, values), known

    def responses(self, planes: Tensor) -> list[Tensor]:
        """Return what the filters find at each scale, [C F, H / scale, W / scale]."""
        weights = self.kernels.flatten(1, 2)[:, :, None]
        size = self.kernels.shape[-2:]
        return [
            F.conv2d(padded(shrink(planes, scale, self.search), size), weight, groups=len(planes))[
                0
            ]
            for scale, weight in zip(self.search.scales, weights, strict=True)
        ]

    def cell_size(self, cells: Cells, picture: Tensor) -> tuple[float, float]:
        """Return height and width of a cell in pixels."""
        return self.search.cell, self.search.cell

    def to_pixels(self, by_cell: Tensor, size: Sequence[int]) -> Tensor:
        """Return values of cells [rows, columns] at every pixel of a picture of this size."""
        return enlarged(by_cell, self.search.cell, size)

    def detail_to_pixels(self, cells: Cells, size: Sequence[int]) -> Tensor:
        """Return the detail of cells in units of a map, at every pixel of a picture of this
        size."""
        if not cells.detail.numel():
            return torch.zeros(size[0], size[1])
        return self.search.detail * enlarged(cells.detail, min(self.search.scales), size)

    def cells(self, planes: Tensor, responses: Sequence[Tensor], known: Tensor) -> Cells:
        cell = self.search.cell
        share = mean_pool(known[None].float(), cell, self.search)[0]
        sides = [cell // scale for scale in self.search.scales]
        if self.aligned:
            signs = [
                mean_pool(torch.cat([r, -r]).relu(), side, self.search)
                for r, side in zip(responses, sides, strict=True)
            ]
            roots = around(torch.cat(signs), self.search.around).sqrt() * (share >= 0.5)
            return Cells(
                roots / roots.norm().clamp_min(QUIET), roots[:0], share >= 0.5, self.search
            )
        sizes = [
            mean_pool(r.abs(), side, self.search) for r, side in zip(responses, sides, strict=True)
        ]
        peaks = [
            max_pool(torch.cat([r, -r]), side, self.search)
            for r, side in zip(responses, sides, strict=True)
        ]
        light = mean_pool(planes, cell, self.search)
        energy = torch.cat([torch.cat(sizes).add(QUIET).log(), light])
        reliable = share >= 0.5
        if not known.all():
            reliable &= self.far_from_gaps(known, reliable)
            # The border of a gap is not texture, so such cells count as being like the rest of the
            # picture.
            usual = energy[:, reliable].mean(1)[:, None, None]
            energy = torch.where(reliable, energy, usual)
        detail = detail_of(responses[0], self.search.reach * sides[0])
        return Cells(energy, torch.cat(peaks) * reliable, reliable, self.search, detail)

    def far_from_gaps(self, known: Tensor, half_known: Tensor) -> Tensor:
        """Return which cells [rows, columns] show what is known [H, W], and not the border of a
        gap; all of them if gaps are nearly everywhere.

        half_known  [rows, columns]: cells with at least half of their pixels known
        """
        reach = max(self.search.scales) * (SIDE // 2)
        window = (1 if self.for_signals else 2 * reach + 1, 2 * reach + 1)
        margin = (window[0] // 2, window[1] // 2)
        around_pixel = F.avg_pool2d(known[None].float(), window, 1, margin, count_include_pad=False)
        clean = mean_pool(around_pixel, self.search.cell, self.search)[0] >= CLEAN
        enough = int((clean & half_known).sum()) >= FEWEST_CLEAN * int(half_known.sum())
        return clean if enough else torch.ones_like(clean)


def enlarged(values: Tensor, times: int, size: Sequence[int]) -> Tensor:
    """Return values [rows, columns] of squares of `times` × `times` pixels at every pixel [H,
    W]."""
    extent = [side * times for side in values.shape]
    pixels = F.interpolate(values[None, None], extent, mode="bilinear")[0, 0]
    return pixels[: size[0], : size[1]]


def detail_of(responses: Tensor, reach: int) -> Tensor:
    """Return the logarithm of the largest response [F, h, w] around every place, less the largest
    one at most `reach` places away, [h, w]."""
    rows = 0 if responses.shape[1] == 1 else 1  # signals have one row
    smooth = F.avg_pool2d(
        responses.abs().amax(0)[None],
        (2 * rows + 1, 3),
        1,
        (rows, 1),
        count_include_pad=False,
    )
    size = smooth.clamp_min(QUIET).log()
    reaches = (reach * rows, reach)
    nearby = F.pad(size, [reach, reach, *(2 * reaches[:1])], value=-torch.inf)
    return (size - F.max_pool2d(nearby, [2 * r + 1 for r in reaches], 1))[0]


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
    dark, mixing = learn_channels(pictures, search, as_they_are=aligned or size[0] == 1)
    plain = Filters(dark, mixing, torch.empty(0), search, aligned)
    scales = search.scales
    if aligned:
        advance(len(pictures))
        kernels = centred(features).unflatten(1, size).expand(len(scales), len(mixing), -1, -1, -1)
        return replace(plain, kernels=kernels.float().contiguous())
    sums = torch.zeros(
        len(scales), len(mixing), math.prod(size), math.prod(size), dtype=torch.float64
    )
    counts = torch.zeros(len(scales), 1, 1, 1, dtype=torch.float64)
    for picture in pictures:
        planes, _ = plain.planes(picture)
        for total, count, scale in zip(sums, counts, scales, strict=True):
            patches = spread_patches(shrink(planes, scale, search), size)
            total += (patches.mT @ patches).double()
            count += patches.shape[1]
        advance(1)
    return replace(
        plain, kernels=matched(centred(features), sums / counts).unflatten(-1, size).float()
    )


def learn_channels(
    pictures: Iterable[Tensor], search: Search, as_they_are: bool
) -> tuple[float, Tensor]:
    """Return the brightness that counts as dark, and the matrix that makes channels uncorrelated,
    with variance 1."""
    known = [picture[:, picture.isfinite().all(0)].double() for picture in pictures]
    counted = [values for values in known if values.shape[1]]
    lowest = min(float(values.min()) for values in counted)
    mean = sum(float(values.mean()) for values in counted) / len(counted)
    dark = 0.0 if as_they_are or lowest < 0 else max(DARK * mean, torch.finfo(torch.float32).tiny)
    lights = (brightness(values, dark, search) for values in counted)
    covariance = sum(
        torch.atleast_2d(torch.cov(light, correction=0)) / len(counted) for light in lights
    )
    variances, axes = torch.linalg.eigh(covariance)
    return dark, (axes / (variances + LEAST_VARIANCE).sqrt()).mT.float()


def matched(features: Tensor, covariance: Tensor) -> Tensor:
    """w = Σ⁻¹ f / √(fᵀ Σ⁻¹ f) of features [F, D] for covariances [scales, C, D, D]:  [scales, C,
    F, D]."""
    variances, axes = torch.linalg.eigh(covariance)
    floor = NOISE * variances.mean(-1, keepdim=True) + LEAST_VARIANCE
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
    samples = torch.arange(COSINES + 1.0) + 0.5
    waves = torch.arange(1.0, COSINES + 1)
    return torch.cos(torch.pi / (COSINES + 1) * torch.outer(waves, samples))[:, None]


def brightness(values: Tensor, dark: float, search: Search) -> Tensor:
    """Return the known values of a picture [C, n] without its exposure: their logarithm, or their
    ratio to their mean."""
    if not dark:
        return values
    light = values.clamp_min(0)
    return (light + dark).log() if search.logarithm else light / light.mean().clamp_min(dark)


def spread_patches(planes: Tensor, size: tuple[int, int]) -> Tensor:
    """Patches of a size of each channel without their mean, evenly spread, [C, n, D]."""
    step = max(1, math.isqrt(planes[0].numel() // PATCHES))
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


def shrink(planes: Tensor, scale: int, search: Search) -> Tensor:
    return planes if scale == 1 else mean_pool(planes, scale, search)


def mean_pool(values: Tensor, side: int, search: Search) -> Tensor:
    """Return the mean of every square of a picture [C, H, W]."""
    squares = whole_squares(values, side)
    return F.avg_pool2d(squares[None], side, ceil_mode=True, count_include_pad=False)[0]


def max_pool(values: Tensor, side: int, search: Search) -> Tensor:
    """Return the largest value of every square of a picture [C, H, W]."""
    squares = whole_squares(values, side)
    return F.max_pool2d(squares[None], side, ceil_mode=True)[0]


def whole_squares(values: Tensor, side: int) -> Tensor:
    """Return a picture [C, H, W] whose last squares are as large as all others: they begin earlier,
    and overlap those before them. A mean of few pixels varies more, so a part of a square would
    look odd at the lower and right border."""
    for axis in (1, 2):
        length = values.shape[axis]
        rest = length % side
        if rest and length > side:
            index = torch.cat([torch.arange(length - rest), torch.arange(length - side, length)])
            values = values.index_select(axis, index)
    return values


def around(values: Tensor, side: int) -> Tensor:
    """Return the mean of a square around every cell, [D, rows, columns]; at the border, the mean of
    the cells that exist."""
    return F.avg_pool2d(values[None], side, 1, side // 2, count_include_pad=False)[0]
