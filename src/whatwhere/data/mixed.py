"""The one rule for pictures of several sizes and kinds (docs/reference/data.md says which command
does what).

**Kind.** If pictures differ, grey ones become colour, 8 bits become 16, and all become floats if
some are. **Size.** If pictures differ, `random_crops` cuts crops of one size, `same_size` scales
and cuts the pictures, and `by_size` keeps them whole. A run records the shape of its images and the
value of white; commands that use the run use both as well.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from whatwhere.data.images import AllPictures, Images, LazyPixels, brightest_of, white_used
from whatwhere.data.pictures import (
    Picture,
    Pictures,
    decode,
    find_pages,
    folder_content,
    largest_of,
    pictures_of_files,
    read_pictures,
)
from whatwhere.errors import (
    InvalidImages,
    UnusableImageFile,
    one_or,
    plural,
    printable,
    unique_printable,
    warn,
)
from whatwhere.spec.execution import Shard

USUAL_SIDE = 64
Group = tuple[Images, Images | None]
"""Images of one size, and their masks if there are any."""


class Recorded(NamedTuple):
    """What a run recorded about the pictures that it learned from, for pictures that come later."""

    side: int | None = None
    white: int | None = None


NOT_RECORDED = Recorded()


class Kind(NamedTuple):
    """Channels and type of pixels, and the integer that is white (None for floats)."""

    channels: int
    dtype: np.dtype
    brightest: int | None


@dataclass(frozen=True)
class MixedPictures:
    """Pictures of any sizes and kinds; `name` is for messages.

    Parameters
    ----------
    recorded
        what a run recorded, if the pictures are for this run
    blend
        whether to blend transparent pixels with black
    classes
        the names of their labels
    elsewhere
        the files of the same folder that other shards read
    all_pictures
        the pictures of all shards
    decoded
        whether every picture was decoded. If not, one that turns out to be damaged is black, with a
        warning, and large JPEG files become squares by way of a part of their size
    """

    pictures: Sequence[Picture]
    name: str
    recorded: Recorded = NOT_RECORDED
    blend: bool = True
    classes: tuple[str, ...] = ()
    elsewhere: Sequence[Path] = ()
    all_pictures: AllPictures | None = None
    decoded: bool = True

    @classmethod
    def of_folder(
        cls, folder: Path, recorded: Recorded, shard: Shard, *, decoded: bool = True
    ) -> "MixedPictures":
        """Return the pictures of a shard of a folder; no other file is opened."""
        content = folder_content(folder)
        own, elsewhere = content.split(shard)
        name = printable(folder.name or folder.absolute().name)
        pictures = read_pictures(folder, own, decoded=decoded)
        return cls(
            pictures,
            name,
            recorded,
            classes=content.classes,
            elsewhere=elsewhere,
            all_pictures=content.all_pictures,
            decoded=decoded,
        )

    @classmethod
    def of_file(cls, file: Path, recorded: Recorded, shard: Shard) -> "MixedPictures":
        """Return the pages of a shard of a file."""
        pages = list(find_pages(file))
        rows = shard.rows_of_pictures(len(pages))
        own = pages[rows.start : rows.stop]
        all_pictures = AllPictures.of(len(pages), [file.name])
        return cls(own, printable(file), recorded, all_pictures=all_pictures)

    @classmethod
    def of_files(
        cls, files: Sequence[str | Path], recorded: Recorded, shard: Shard
    ) -> "MixedPictures":
        """Return the pictures of a shard of a list of files."""
        rows = shard.rows_of_pictures(len(files))
        all_pictures = AllPictures.of(len(files), map(str, files))
        own = pictures_of_files(files[rows.start : rows.stop])
        return cls(own, plural(len(files), "file"), recorded, all_pictures=all_pictures)

    @cached_property
    def sizes(self) -> list[tuple[int, int]]:
        """Heights and widths, the most frequent first."""
        counts = Counter(picture.shape[1:] for picture in self.pictures)
        return [size for size, _ in counts.most_common()]

    def kind(self) -> Kind:
        """Return the kind that all of them become."""
        dtypes = {picture.dtype for picture in self.pictures}
        numbers = sorted({picture.shape[0] for picture in self.pictures})
        if len(set(numbers) - {1}) > 1:
            counts = Counter(picture.shape[0] for picture in self.pictures)
            usual = max(numbers, key=lambda number: (counts[number], -number))
            odd = next(one for one in self.pictures if one.shape[0] not in (1, usual))
            given = " and ".join(map(str, numbers))
            raise InvalidImages(
                f"{self.name}, pictures of {given} channels, such as {printable(odd.name)} of"
                f" {odd.shape[0]}",
                "the same number in all, except in grey ones",
                "Convert the pictures to one number of channels, or leave it out.",
            )
        channels = numbers[-1]
        if dtypes == {np.dtype(np.uint8)}:
            return Kind(channels, np.dtype(np.uint8), 255)
        if dtypes == {np.dtype(np.int16)}:
            return Kind(channels, np.dtype(np.int16), brightest_of(np.dtype(np.int16)))
        if dtypes & {np.dtype(np.float32), np.dtype(np.int16)}:
            return Kind(channels, np.dtype(np.float32), None)
        white = self.deep_white if dtypes == {np.dtype(np.uint16)} else 65535
        return Kind(channels, np.dtype(np.uint16), white)

    @cached_property
    def deep_white(self) -> int:
        """The value of white in 16-bit pictures. Without a record, their largest value shows it; a
        shard that has such pictures also reads the pictures of the other shards, so that all use
        the same white."""
        if self.recorded.white:
            return self.recorded.white
        largest = max(picture.largest for picture in self.pictures)
        if largest:
            largest = max(largest, *map(largest_of, self.elsewhere), 0)
        return white_used(largest, self.name)

    def by_size(self, *, alpha: bool = False) -> list[Group]:
        """Return whole pictures, in a group for each size; with `alpha`, transparent pixels are
        masked."""
        groups = []
        for size in self.sizes:
            chosen = [picture for picture in self.pictures if picture.shape[1:] == size]
            name = self.name if len(self.sizes) == 1 else f"{self.name} ({size[1]} × {size[0]})"
            groups.append(self._group(chosen, name, size, alpha=alpha))
        return groups

    def same_size(self, side: int | None = None) -> Images:
        """Return all of them as squares: scaled so that the shorter side is `side`, and cut at the
        centre."""
        side = side or usual_side(self.sizes)
        fit = partial(centre_square, side=side)
        enough = 0 if self.decoded else 4 * side
        return self._group(self.pictures, self.name, (side, side), fit, enough=enough)[0]

    def _decoded(self, picture: Picture, enough: int) -> np.ndarray:
        """Return the pixels of a picture; black if only decoding tells that it is damaged."""
        try:
            return decode(picture, blend=self.blend, enough=enough)
        except UnusableImageFile as error:
            if self.decoded:
                raise
            warn(DamagedPictureIsBlack(picture, error.reason))
            return np.zeros(picture.shape, picture.dtype)

    def _group(
        self,
        pictures: Sequence[Picture],
        name: str,
        size: tuple[int, int],
        fit: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels,
        alpha: bool = False,
        enough: int = 0,
    ) -> Group:
        kind = self.kind()
        whites = {"uint8": 255, "uint16": self.deep_white, "int16": 32768}
        numbers = {label: number for number, label in enumerate(self.classes)}
        labels = np.array([numbers[p.label] for p in pictures if p.label is not None], np.int64)

        def read_one(picture: Picture) -> np.ndarray:
            pixels = self._decoded(picture, enough)
            return fit(convert(pixels, whites.get(picture.dtype.name), kind))

        def read(rows: np.ndarray) -> np.ndarray:
            return np.stack([read_one(pictures[row]) for row in rows])

        images = Images(
            Pictures((len(pictures), kind.channels, *size), kind.dtype, read, pictures),
            labels if self.classes else None,
            name,
            tuple(map(unique_printable, self.classes)) or None,
            brightest=kind.brightest,
            deep_white=whites["uint16"] if any(picture.largest for picture in pictures) else None,
            all_pictures=self.all_pictures,
        )
        if not alpha:
            return images, None

        def read_known(rows: np.ndarray) -> np.ndarray:
            return np.stack([fit(decode(pictures[row], known=True)) for row in rows])

        known = LazyPixels((len(pictures), 1, *size), np.dtype(bool), read_known)
        return images, Images(known, None, f"alpha of {name}")


def usual_side(sizes: Sequence[tuple[int, int]]) -> int:
    """Return the side of squares from pictures of these sizes: 64, or the smallest side of all
    pictures if that is less."""
    return min(USUAL_SIDE, *(min(size) for size in sizes))


class DamagedPictureIsBlack(UserWarning):
    """A picture that was opened by its header turns out to be damaged.

    Attributes
    ----------
    picture
        the picture
    reason
        what is wrong with it
    """

    def __init__(self, picture: Picture, reason: str) -> None:
        self.picture = picture
        self.reason = reason
        super().__init__(
            f"{picture.name} is damaged ({reason}) and is shown black. Replace it, or leave it out."
        )


class TooSmall(UserWarning):
    """Pictures that are left out because they are smaller than the crops.

    Attributes
    ----------
    count
        the number of pictures
    size
        side of the crops, in pixels
    """

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        self.size = size
        super().__init__(f"Leaving out {plural(count, 'picture')} smaller than {size} × {size}.")


class PicturesBecomeSquares(UserWarning):
    """Pictures of several sizes are scaled and cut.

    Attributes
    ----------
    pictures
        the pictures
    side
        side of the squares, in pixels
    """

    def __init__(self, pictures: MixedPictures, side: int) -> None:
        self.pictures = pictures
        self.side = side
        super().__init__(self.words(f"Load the pictures with size={USUAL_SIDE}"))

    def words(self, load_again: str) -> str:
        """Say how the pictures become squares, and why.

        Parameters
        ----------
        load_again
            how to get squares of the usual side, if these are smaller
        """
        pictures = self.pictures
        extents = [extent for size in pictures.sizes for extent in size]
        range_words = f"{len(pictures.sizes)} sizes, from {min(extents)} to {max(extents)} pixels"
        target = f"so that its shorter side has {self.side} pixels"
        remedy = ""
        if self.side == pictures.recorded.side:
            target += ", like the pictures that the run learned from,"
        elif self.side < USUAL_SIDE:
            smallest = min(pictures.pictures, key=lambda picture: min(picture.shape[1:]))
            target += f", like the smallest picture ({smallest.name}),"
            remedy = (
                f" {self.side} pixels are few, which costs accuracy. {load_again}, or leave out the"
                " smallest picture."
            )
        return (
            f"{pictures.name} has pictures of {range_words}. whatwhere scales each one {target} and"
            f" crops its centre.{remedy}"
        )


def convert(pixels: np.ndarray, white: int | None, kind: Kind) -> np.ndarray:
    """Return pixels [C, H, W] of a picture as another kind; `white` is their value of white (None
    for floats)."""
    pixels = np.broadcast_to(pixels, (kind.channels, *pixels.shape[1:]))
    if white == kind.brightest:
        return pixels
    share = pixels / np.float32(white or 1)
    return share if kind.brightest is None else np.rint(share * kind.brightest).astype(kind.dtype)


def centre_square(pixels: np.ndarray, side: int) -> np.ndarray:
    """Return pixels [C, H, W] scaled so that the shorter side is `side`, and cut at the centre, [C,
    side, side]."""
    _, height, width = pixels.shape
    scale = side / min(height, width)
    rows = max(side, round(height * scale))
    columns = max(side, round(width * scale))
    values = torch.from_numpy(pixels.astype(np.float32))[None]
    if (rows, columns) != (height, width):
        values = F.interpolate(
            values, (rows, columns), mode="bilinear", antialias=True, align_corners=False
        )
    top = (rows - side) // 2
    left = (columns - side) // 2
    square: np.ndarray = values[0, :, top : top + side, left : left + side].numpy()
    return square if pixels.dtype.kind == "f" else np.rint(square).astype(pixels.dtype)


def random_crops(
    groups: Sequence[Group], size: int | None = None, count: int | None = None, seed: int = 0
) -> Group:
    """Cut crops of size × size pixels from pictures of any sizes, in random order, with their
    masks.

    The number of crops from a picture is proportional to its area; their places are drawn
    uniformly. Pictures smaller than a crop are left out.

    Parameters
    ----------
    size
        side of a crop; None: 64, or the smallest side of all pictures if that is less
    count
        number of crops; None: as many as have the area of all pictures together, at most 10,000
    """
    size = size or usual_side([images.shape[1:] for images, _ in groups])
    large = _large_enough(groups, size)
    extents = [images.shape[1:] for images, _ in large for _ in range(len(images))]
    rng = np.random.default_rng(seed)
    corners = _random_corners(extents, size, count, rng)
    count = sum(map(len, corners))
    order = rng.permutation(count)
    name = f"{count:,} crops of {size} × {size} from {len(extents):,} pictures"
    images = cut([images for images, _ in large], corners, size, order, name)
    masks = [mask for _, mask in large if mask is not None]
    if not masks:
        return images, None
    return images, cut(masks, corners, size, order, f"masks of {name}")


def _large_enough(groups: Sequence[Group], size: int) -> list[Group]:
    """Return the groups of pictures that a crop of size × size fits into; a warning counts the
    others."""
    large = [group for group in groups if min(group[0].shape[1:]) >= size]
    if not large:
        largest = max(min(images.shape[1:]) for images, _ in groups)
        expected = f"at most {largest}, because no picture is larger"
        raise InvalidImages(f"crops of {size} × {size} pixels", expected)
    left_out = sum(len(images) for images, _ in groups) - sum(len(images) for images, _ in large)
    if left_out:
        warn(TooSmall(left_out, size))
    return large


def _random_corners(
    extents: Sequence[tuple[int, ...]], size: int, count: int | None, rng: np.random.Generator
) -> list[np.ndarray]:
    """Draw the upper left corners of crops, [n, 2] for each picture of height × width pixels."""
    areas = np.array([height * width for height, width in extents])
    if count is None:
        count = min(10_000, max(len(areas), int(areas.sum()) // size**2))
    # rounded cumulative sums, so that the shares add up to `count`
    shares = np.diff(np.rint(np.cumsum(areas) / areas.sum() * count).astype(int), prepend=0)
    return [
        rng.integers(0, (height - size + 1, width - size + 1), (int(share), 2))
        for (height, width), share in zip(extents, shares, strict=True)
    ]


def cut(
    groups: Sequence[Images], corners: Sequence[np.ndarray], size: int, order: np.ndarray, name: str
) -> Images:
    """Return the crops at these corners [n, 2] of each picture of all groups, in this order."""
    pieces: list[np.ndarray] = []
    labels: list[int] = []
    places = iter(corners)
    for images in groups:
        for row in range(len(images)):
            chosen = next(places)
            if len(chosen) == 0:
                continue
            pixels = images.pixels[np.array([row])][0]
            pieces += [pixels[:, y : y + size, x : x + size].copy() for y, x in chosen]
            if images.labels is not None:
                labels += [images.labels[row]] * len(chosen)
    crops = _like_all(groups, np.stack(pieces)[order], name)
    if len(labels) < len(pieces):  # some pictures have no label
        return crops
    return replace(crops, labels=np.array(labels, np.int64)[order], classes=groups[0].classes)


def _like_all(groups: Sequence[Images], pixels: np.ndarray, name: str) -> Images:
    """Return pixels of all these images together, with what they say about values."""
    deep_white = max(images.deep_white or 0 for images in groups)
    return Images(
        pixels,
        None,
        name,
        allow_nan=any(images.allow_nan for images in groups),
        brightest=groups[0].brightest,
        deep_white=deep_white or None,
    )


def match_mask(mask: Images, images: Images) -> Images:
    """Return one mask for each of the images, [N, 1 or C, H, W]; a single mask is used for all of
    them."""
    (C, H, W), (channels, height, width) = images.shape, mask.shape
    if len(mask) not in (1, len(images)) or channels not in (1, C) or (height, width) != (H, W):
        raise InvalidImages(
            f"{mask.name}, {plural(len(mask), 'mask')} of {channels} × {height} × {width} for"
            f" {plural(len(images), 'image')} of {C} × {H} × {W} ({images.name})",
            f"{one_or(len(images))} mask{'s' if len(images) > 1 else ''} of {one_or(C)} × {H} ×"
            f" {W}",
        )
    if len(mask) == len(images):
        return mask
    return replace(
        mask, pixels=np.broadcast_to(mask.pixels[:], (len(images), *mask.shape)), labels=None
    )
