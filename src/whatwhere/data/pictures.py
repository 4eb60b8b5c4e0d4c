"""Pictures in files of usual formats, one page or several, alone or in a folder."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from whatwhere.data.deep_png import DeepPng, is_deep
from whatwhere.data.headers import HEADER_DTYPE, header_shape
from whatwhere.data.images import AllPictures, Images, LazyPixels
from whatwhere.data.limits import limits
from whatwhere.errors import (
    ChangedFile,
    ImageError,
    MissingExtra,
    NoSuchImages,
    RunError,
    UnusableFile,
    as_clause,
    printable,
    unique_printable,
    warn,
)
from whatwhere.files import RECORD, FileStamp, open_regular, read_results, readable, untrusted
from whatwhere.spec.execution import Shard

if TYPE_CHECKING:
    from PIL.Image import Image as PillowPicture

    _Opened: TypeAlias = "PillowPicture | _ChannelTiff | DeepPng"

FORMATS = ("PNG", "JPEG", "BMP", "TIFF", "WEBP", "GIF", "AVIF", "JPEG2000", "PPM")
"""Formats that Pillow reads; with its plugin pillow-heif, also `_PLUGIN_FORMAT`."""

_PLUGIN_FORMAT = "HEIF"
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp"),
    *(".gif", ".avif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm", ".heic", ".heif"),
)
_TIFF_MAGICS = (b"II*\0", b"MM\0*")
_MAGICS = (b"\x89PNG", b"\xff\xd8\xff", b"BM", b"RIFF", b"GIF8", *_TIFF_MAGICS)
"""How files of these formats begin."""

_LABEL_FILES = (".csv", ".codes.safetensors", ".classifier.safetensors")
"""What `whatwhere label` writes next to the pictures, if its table of labels is there."""

REMEDY = "give pictures such as PNG, JPEG, TIFF or WebP files"
_PLAIN_MODES = {"1": "L", "L": "L", "P": "RGB", "RGB": "RGB", "CMYK": "RGB"}
_ALPHA_MODES = {
    "LA": "LA",
    "La": "LA",
    "PA": "RGBA",
    "P": "RGBA",
    "RGB": "RGBA",
    "L": "LA",
    "RGBA": "RGBA",
}
"""How Pillow's modes are read: as grey or colour, without and with transparency."""

_TIFF_DTYPES = ("uint8", "uint16", "int16", "float32")


class _Tag(IntEnum):
    """Tags of a TIFF: bits of each channel, what the values mean, text in which ImageJ and OME keep
    axes and intervals, where the first row and the first column are seen, channels of a pixel,
    pixels per unit across and down, the unit, the kind of numbers."""

    BITS = 258
    PHOTOMETRIC = 262
    DESCRIPTION = 270
    ORIENTATION = 274
    SAMPLES = 277
    ACROSS = 282
    DOWN = 283
    UNIT = 296
    NUMBERS = 339


_SCALE = (_Tag.ACROSS, _Tag.DOWN, _Tag.UNIT)
_SIGNED = 2  # a value of NUMBERS


class _Unit(IntEnum):
    """Units of a TIFF's resolution."""

    NONE = 1
    INCH = 2
    CENTIMETRE = 3


_DEEP_MODES = {
    "I;16": np.uint16,
    "I;16L": np.uint16,
    "I;16B": np.uint16,
    "I;16N": np.uint16,
    "F": np.float32,
}
"""Grey pictures of more than 8 bits, and the type of their pixels."""


class Place(NamedTuple):
    """Where a picture is in a folder.

    Parameters
    ----------
    folders
        the sub-folders on the way to it, the outermost first
    label
        the sub-folder, if sub-folders are labels
    """

    folders: tuple[str, ...] = ()
    label: str | None = None

    @property
    def prefix(self) -> str:
        """What stands before the name of the file: sub-folders, each with a slash."""
        return "".join(f"{folder}/" for folder in self.folders)


TOP = Place()  # in no sub-folder


class _FolderContent(NamedTuple):
    """The files of a folder: those that are named like pictures, and all others except those that
    the program wrote."""

    pictures: dict[Path, Place]
    others: list[Path]

    @property
    def classes(self) -> tuple[str, ...]:
        """The sub-folders that are labels, in the order of their numbers."""
        labels = {place.label for place in self.pictures.values()}
        return tuple(sorted(label for label in labels if label is not None))

    @property
    def all_pictures(self) -> AllPictures:
        """What identifies the pictures: their number, and their paths from the folder."""
        names = [f"{place.prefix}{file.name}" for file, place in self.pictures.items()]
        return AllPictures.of(len(names), names)

    def split(self, shard: Shard) -> "tuple[_FolderContent, list[Path]]":
        """Return the pictures of a shard, and the files of all other shards. The first shard has
        the files that are not pictures."""
        files = list(self.pictures)
        if not files:
            return self, []
        rows = shard.rows_of_pictures(len(files))
        own = {file: self.pictures[file] for file in files[rows.start : rows.stop]}
        elsewhere = files[: rows.start] + files[rows.stop :]
        return _FolderContent(own, self.others if shard.index == 1 else []), elsewhere


@dataclass(frozen=True)
class Picture:
    """One page of a file, as it was when it was found.

    Parameters
    ----------
    shape
        channels, height and width
    stamp
        the size of the file, and when it was written
    largest
        the largest value of 16-bit pixels; otherwise 0
    place
        its place in the folder that was given
    """

    file: Path
    page: int
    shape: tuple[int, int, int]
    dtype: np.dtype
    stamp: FileStamp
    largest: int = 0
    place: Place = TOP
    pages: int = 1

    @property
    def label(self) -> str | None:
        """The sub-folder that it is in, if sub-folders are labels."""
        return self.place.label

    @cached_property
    def name(self) -> str:
        """The path of the file from the folder that was given and, where there are several, its
        page: sub-folder/name.tif/page.

        It is unique in a folder, because the name of a file has no slash.
        """
        page = "" if self.pages == 1 else f"/{self.page + 1}"
        return unique_printable(f"{self.place.prefix}{self.file.name}{page}")

    @property
    def earlier_name(self) -> str | None:
        """The name of a page in earlier versions, which may also be the name of another file."""
        if self.pages == 1:
            return None
        name = f"{self.file.stem}-{self.page + 1}{self.file.suffix}"
        return printable(f"{self.place.prefix}{name}")


def pictures_of_files(files: Sequence[str | Path]) -> list[Picture]:
    """Return the pictures of a list of files, in their order; all of them are decoded once. Their
    names are their paths from the folder that holds all of them."""
    paths = [Path(file) for file in files]
    common = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    pictures: list[Picture] = []
    for path in paths:
        if not path.is_file():
            raise NoSuchImages("", printable(path), "expected the file of a picture")
        place = Place(path.absolute().parent.relative_to(common).parts)
        pictures += find_pages(path, place)
    return pictures


def is_picture(path: Path) -> bool:
    """Tell whether a file is named like a picture or begins like one."""
    with open_regular(path) as file:
        return path.suffix.lower() in SUFFIXES or file.read(4).startswith(_MAGICS)


def read_pictures(folder: Path, content: _FolderContent, *, decoded: bool = True) -> list[Picture]:
    """Return the pictures of a folder, or of a shard of it, in the order of their paths.

    Files that are not pictures, or damaged ones, are skipped with a warning that names them.

    Parameters
    ----------
    decoded
        decode all of them once. Otherwise the header is enough where it tells the shape, and damage
        inside of a file is not noticed
    """
    if content.pictures:
        _check_pillow()  # without it, every picture would be skipped
    pictures: list[Picture] = []
    skipped = dict.fromkeys(content.others, "not a picture")
    for file, place in content.pictures.items():
        try:
            known = None if decoded else _picture_of_header(file, place)
            # all pages, or none
            pictures += list(find_pages(file, place)) if known is None else [known]
        except ImageError as error:
            skipped[file] = error.reason if isinstance(error, UnusableFile) else as_clause(error)
    if not pictures:
        raise NoPictures(folder, skipped, _no_pictures(folder, content, skipped))
    if skipped:
        warn(SkippedFiles(folder, skipped))
    return pictures


def _picture_of_header(file: Path, place: Place) -> Picture | None:
    """Return the picture of a file by its header; None if decoding must tell."""
    known = header_shape(file)
    if known is None:
        return None
    shape, stamp = known
    return Picture(file, 0, shape, HEADER_DTYPE, stamp, place=place)


class NoPictures(ImageError):
    """A folder without a picture that can be read.

    Attributes
    ----------
    folder
        the folder
    skipped
        its files that cannot be read, with the reason
    """

    def __init__(self, folder: Path, skipped: Mapping[Path, str], message: str) -> None:
        self.folder = folder
        self.skipped = dict(skipped)
        super().__init__(message)


class SkippedFiles(UserWarning):
    """Files of a folder that are left out.

    Attributes
    ----------
    folder
        the folder
    skipped
        the files, with the reason
    """

    def __init__(self, folder: Path, skipped: Mapping[Path, str]) -> None:
        self.folder = folder
        self.skipped = dict(skipped)
        super().__init__(_skipped_files(folder, skipped))


def largest_of(file: Path) -> int:
    """Return the largest value of a file's 16-bit pixels; 0 if it has none, or is not a usable
    picture."""
    try:
        return max(page.largest for page in find_pages(file))
    except ImageError:
        return 0


def _no_pictures(folder: Path, content: _FolderContent, skipped: Mapping[Path, str]) -> str:
    """Return the message about a folder, or a shard of it, without a usable picture."""
    if content.pictures:
        words = "none of its pictures can be read."
        files = list(content.pictures)
    else:
        words = f"it has no pictures; expected {', '.join(SUFFIXES)} files in it or in its"
        words += " sub-folders."
        files = list(skipped)
    reasons = "".join(f" Skipped {printable(file.name)}: {skipped[file]}." for file in files[:3])
    return f"{printable(folder)}: {words}{reasons}"


def _skipped_files(folder: Path, skipped: Mapping[Path, str]) -> str:
    names = ", ".join(
        f"{printable(file.relative_to(folder))} ({reason})"
        for file, reason in list(skipped.items())[:10]
    )
    more = f" and {len(skipped) - 10:,} more" if len(skipped) > 10 else ""
    return f"{printable(folder)}: skipped {names}{more}."


def decode(
    picture: Picture, *, known: bool = False, blend: bool = True, enough: int = 0
) -> np.ndarray:
    """Return the pixels of one picture, [C, H, W]: uint8; uint16 or float32 where the file has such
    grey values, or is TIFF.

    Parameters
    ----------
    known
        return instead which pixels are known, bool [1, H, W]: all except those with alpha 0
    blend
        blend transparent pixels with black, the background of the model: colour · alpha. Otherwise
        colours stay as they are stored
    enough
        pixels of each side that are enough: a JPEG file that has at least twice as many is decoded
        at a half, a quarter or an eighth of its size, which is ten times faster. 0 decodes it whole
    """
    read = _pixels if blend else _colours
    with _open(picture.file) as opened:
        is_reduced = enough > 0 and _is_reduced_to(opened, enough)
        pixels = _read_page(opened, picture.page, _known if known else read)
        stamp = FileStamp.of(os.stat(picture.file))
    kind = (1, np.dtype(bool)) if known else (picture.shape[0], picture.dtype)
    has_size = is_reduced or pixels.shape[1:] == picture.shape[1:]
    is_expected = has_size and kind == (len(pixels), pixels.dtype)
    if not is_expected or stamp != picture.stamp:
        raise ChangedFile(picture.file)
    return pixels


def _is_reduced_to(picture: "_Opened", enough: int) -> bool:
    """Let an open JPEG file be decoded at a part of its size, with sides of at least `enough`
    pixels; tell whether it will be."""
    if isinstance(picture, _ChannelTiff | DeepPng) or picture.format != "JPEG":
        return False
    if min(picture.width, picture.height) < 2 * enough:
        return False
    with untrusted():
        return picture.draft(picture.mode, (enough, enough)) is not None


def folder_content(folder: Path, but: Path | None = None) -> _FolderContent:
    """Return the files of a folder and of its sub-folders, at any depth, in the order of their
    paths.

    Sub-folders are labels if every picture lies directly in one: folder/label/picture. Other
    folders have no labels. Hidden files and folders are left out, and so are folders that the
    program wrote: runs and results.

    Parameters
    ----------
    but
        a folder in it that is left out
    """
    files = sorted(_walk(folder, _left_out(folder, but)))
    pictures = [file for file in files if file.suffix.lower() in SUFFIXES]
    labelled = all(len(file.parts) == 2 for file in pictures)
    places = {
        folder / file: Place(file.parts[:-1], file.parts[0] if labelled else None)
        for file in pictures
    }
    named = set(pictures)
    own = _own_files(folder)
    others = [folder / file for file in files if file not in named and folder / file not in own]
    return _FolderContent(places, others)


def _own_files(folder: Path) -> set[Path]:
    """Return the files that the program wrote directly into a folder of pictures: results, which
    are in its record, and what belongs to a table of labels. Sub-folders with a record are not
    walked."""
    try:
        own = {folder / name for name in read_results(folder)}
    except RunError:  # a damaged record names no files
        own = set()
    for codes in folder.glob("*.codes.safetensors"):
        labels = codes.name.removesuffix(".codes.safetensors")
        for suffix in _LABEL_FILES:
            own.add(folder / f"{labels}{suffix}")
    return own


def _left_out(folder: Path, but: Path | None) -> set[tuple[int, int]]:
    """Return the identity of a folder that is left out, unless it is the folder that is walked
    itself."""
    if but is None or not os.path.isdir(but) or os.path.samefile(but, folder):
        return set()
    return {_folder_identity(but)}


def _walk(folder: Path, seen: set[tuple[int, int]], inside: Path = Path()) -> Iterator[Path]:
    """Yield the paths of files from a folder down. Links are followed, to each folder once, so that
    a circle of links ends."""
    identity = _folder_identity(folder / inside)
    if identity in seen:
        return
    seen.add(identity)
    with os.scandir(folder / inside) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = inside / entry.name
        if entry.name.startswith("."):
            continue
        if not entry.is_dir():
            yield path
        elif not _is_result(folder / path):
            yield from _walk(folder, seen, path)


def _folder_identity(folder: Path) -> tuple[int, int]:
    """Return an identity that is the same for all names of one folder."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino


def _is_result(folder: Path) -> bool:
    """Tell whether the program wrote a folder: a run, or results, which have a record of their
    files."""
    return os.path.lexists(folder / RECORD) or os.path.lexists(folder / "recipe.toml")


@dataclass(frozen=True)
class Pictures(LazyPixels):
    """Raw pixels [N, C, H, W] of pictures, which are decoded when they are needed."""

    pictures: Sequence[Picture]

    def of_rows(self, rows: np.ndarray) -> "Pictures":
        """Return the pixels and the names of these rows."""
        some = super().of_rows(rows)
        return Pictures(some.shape, some.dtype, some.read, [self.pictures[row] for row in rows])


def picture_names(pixels: object) -> list[str] | None:
    """Return the names of pictures; None for other images."""
    return [picture.name for picture in pixels.pictures] if isinstance(pixels, Pictures) else None


def row_names(images: Images) -> list[str]:
    """Return the names of images in tables: pictures have their names, others their numbers."""
    named = picture_names(images.pixels)
    return named or [str(number) for number in range(len(images))]


def earlier_names(pixels: object) -> dict[str, str]:
    """Return the names of pages by their names in earlier versions, except those that are now the
    name of a file."""
    pictures = pixels.pictures if isinstance(pixels, Pictures) else ()
    names = {picture.name for picture in pictures}
    earlier = {picture.earlier_name: picture.name for picture in pictures}
    return {old: name for old, name in earlier.items() if old is not None and old not in names}


def find_pages(file: Path, place: Place = TOP) -> Iterator[Picture]:
    """Yield the pages of a file; each is decoded once."""
    with _open(file) as picture:
        stamp = FileStamp.of(os.stat(file))
        with untrusted():
            pages = getattr(picture, "n_frames", 1)
        if pages > limits().pages:
            raise ValueError(f"it has {pages:,} pages; expected at most {limits().pages:,}")
        for page in range(pages):
            pixels = _read_page(picture, page, _pixels)
            largest = int(pixels.max()) if pixels.dtype == np.uint16 else 0
            C, H, W = pixels.shape
            yield Picture(file, page, (C, H, W), pixels.dtype, stamp, largest, place, pages)


class _KeptOpen:
    """Files that stay open: the picture of each, decoded, and the state of the file.

    Parameters
    ----------
    most
        number of files
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._files: dict[Path, tuple[FileStamp, _Opened]] = {}

    def get(self, file: Path) -> "_Opened | None":
        """Return the picture of a file that has not changed; None if it is not kept."""
        stamp, picture = self._files.get(file, (None, None))
        return picture if stamp == FileStamp.of(os.stat(file)) else None

    def keep(self, file: Path, picture: "_Opened") -> None:
        """Keep a picture of one page, which Pillow decodes once: it needs its file no more."""
        if isinstance(picture, _ChannelTiff | DeepPng):
            return
        with untrusted():
            if getattr(picture, "n_frames", 1) > 1:
                return
            picture.load()
        self._files[file] = (FileStamp.of(os.stat(file)), picture)
        if len(self._files) > self._most:
            del self._files[next(iter(self._files))]


_KEPT_OPEN: ContextVar[_KeptOpen | None] = ContextVar("_KEPT_OPEN", default=None)


@contextmanager
def kept_open(most: int = 2) -> Iterator[None]:
    """Decode a file of one page once, however often it is read within this block.

    Parameters
    ----------
    most
        number of files that are kept in memory: a picture and its mask
    """
    token = _KEPT_OPEN.set(_KeptOpen(most))
    try:
        yield
    finally:
        _KEPT_OPEN.reset(token)


@contextmanager
def _open(file: Path) -> Iterator["_Opened"]:
    """Open a picture; any problem with its file raises an ImageError that names it."""
    kept = _KEPT_OPEN.get()
    with readable(file, "picture", REMEDY, ImageError):
        if kept is not None and (picture := kept.get(file)) is not None:
            yield picture
            return
        with open_regular(file) as stream, open_picture(stream, str(file)) as picture:
            yield picture
            if kept is not None:
                kept.keep(file, picture)


def _check_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401
    except ImportError:
        raise MissingExtra("Pillow", "reading pictures") from None


@contextmanager
def open_picture(stream: BinaryIO, name: str) -> Iterator["_Opened"]:
    """Open a picture of a stream of bytes; any problem raises an ImageError with this name."""
    _check_pillow()
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings(), readable(Path(name), "picture", REMEDY, ImageError):
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        with untrusted():
            opened = _open_stream(stream, Image, UnidentifiedImageError)
        yield opened


def read_page(picture: "_Opened", page: int = 0) -> np.ndarray:
    """Return the pixels [C, H, W] of a page of an open picture."""
    return _read_page(picture, page, _pixels)


def _open_stream(stream: BinaryIO, image: ModuleType, unidentified: type[Exception]) -> "_Opened":
    """Return what reads the pages: Pillow, or tifffile for a TIFF that Pillow would reject or
    reduce."""
    try:
        picture = image.open(stream, formats=usable_formats(image))
        if is_deep(picture):
            return DeepPng(stream)
        if not _is_reduced(picture):
            return picture
    except unidentified:
        stream.seek(0)
        if not stream.read(4).startswith(_TIFF_MAGICS):
            raise ValueError("it is damaged, or not a picture") from None
    stream.seek(0)
    return _ChannelTiff(stream)


@cache
def usable_formats(image: ModuleType) -> tuple[str, ...]:
    """Return the formats that this Pillow reads: older ones have no AVIF. Registers the plugin for
    HEIC files, if it is installed."""
    image.init()
    try:
        from pillow_heif import register_heif_opener

        register_heif_opener()
    except ImportError:
        pass
    return tuple(name for name in (*FORMATS, _PLUGIN_FORMAT) if name in image.OPEN)


def _read_page(
    picture: "_Opened", page: int, read: Callable[["_Opened"], np.ndarray]
) -> np.ndarray:
    """Return what `read` returns for a page, [H, W] or [H, W, C], as [C, H, W]. A page that cannot
    be used is rejected by its header."""
    from PIL import ImageOps

    if page and not isinstance(picture, DeepPng):  # which has one page
        with untrusted():
            picture.seek(page)
    if not 0 < picture.width * picture.height <= limits().picture_pixels:
        raise ValueError(
            f"it has {picture.width} × {picture.height} pixels; expected at most"
            f" {limits().picture_pixels:,}"
        )
    if not isinstance(picture, _ChannelTiff | DeepPng):
        if picture.mode not in _PLAIN_MODES | _ALPHA_MODES | _DEEP_MODES:
            raise ValueError(f"its mode is {picture.mode}; expected grey or RGB")
        if _is_reduced(picture):
            raise ValueError(
                f"page {page + 1} and page 1 have different channels; save each page as a separate"
                " picture"
            )
        with untrusted():
            ImageOps.exif_transpose(picture, in_place=True)  # upright, as a camera was held
    with untrusted():
        pixels = read(picture)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _pixels(picture: "_Opened") -> np.ndarray:
    """Return the pixels [H, W] or [H, W, C] of an open picture."""
    if isinstance(picture, _ChannelTiff | DeepPng):
        return picture.pixels()
    if picture.mode in _DEEP_MODES:
        return _deep_grey(picture)
    if picture.mode in _PLAIN_MODES and not picture.has_transparency_data:
        return np.asarray(picture.convert(_PLAIN_MODES[picture.mode]))
    values = np.asarray(picture.convert(_ALPHA_MODES[picture.mode])).astype(np.uint16)
    colour = values[..., :-1]
    alpha = values[..., -1:]
    blended = ((colour * alpha + 127) // 255).astype(np.uint8)
    return blended[..., 0] if blended.shape[-1] == 1 else blended


def _deep_grey(picture: "PillowPicture") -> np.ndarray:
    """Return the pixels [H, W] of an open picture of one channel with more than 8 bits, in which 0
    is black."""
    values: np.ndarray = np.asarray(picture).astype(_DEEP_MODES[picture.mode])
    if values.dtype == np.uint16 and picture.format == "TIFF":
        tags = _tags(picture)
        if tags.get(_Tag.PHOTOMETRIC) == 0:  # white is 0, which Pillow ignores in 16 bits
            return (1 << tags.get(_Tag.BITS, (16,))[0]) - 1 - values
    return values


def _has_alpha(picture: "PillowPicture") -> bool:
    """Tell whether an open picture has an alpha channel, or a colour that is transparent."""
    return picture.mode in _ALPHA_MODES and bool(picture.has_transparency_data)


def _colours(picture: "_Opened") -> np.ndarray:
    """Return the pixels [H, W] or [H, W, C] of an open picture without its alpha channel."""
    if isinstance(picture, DeepPng):
        return picture.colours()
    if isinstance(picture, _ChannelTiff) or not _has_alpha(picture):
        return _pixels(picture)
    colours = np.asarray(picture.convert(_ALPHA_MODES[picture.mode]))[..., :-1]
    return colours[..., 0] if colours.shape[-1] == 1 else colours


def _alpha(picture: "_Opened") -> np.ndarray:
    """Return the alpha channel [H, W] of an open picture."""
    if isinstance(picture, DeepPng):
        return picture.alpha()
    if isinstance(picture, _ChannelTiff) or not _has_alpha(picture):
        return np.full((picture.height, picture.width), 255, np.uint8)
    return np.asarray(picture.convert(_ALPHA_MODES[picture.mode]))[..., -1]


@dataclass(frozen=True)
class Extras:
    """What the file of a picture has besides colours.

    Parameters
    ----------
    alpha
        alpha of each page, uint8 [H, W]; None where all pixels are opaque
    icc_profile
        the profile of its colours
    dpi
        pixels per inch, across and down
    scale
        of a TIFF: pixels per unit across and down, and the number of the unit
    description
        of a TIFF: text in which ImageJ and OME keep axes, units and intervals
    """

    alpha: tuple[np.ndarray, ...] | None = None
    icc_profile: bytes | None = None
    dpi: tuple[float, float] | None = None
    scale: tuple[float, float, int] | None = None
    description: bytes | None = None


NO_EXTRAS = Extras()


def read_extras(file: Path, *, filled_in: bool = False) -> Extras:
    """Return what the file of a picture has besides colours.

    Parameters
    ----------
    filled_in
        pixels of alpha 0 become opaque
    """
    with _open(file) as picture:
        if isinstance(picture, _ChannelTiff):
            with untrusted():
                return Extras(
                    None, picture.icc_profile, picture.dpi, picture.scale, picture.description
                )
        icc_profile = picture.info.get("icc_profile")
        dpi = _checked_dpi(picture.info.get("dpi"))
        with untrusted():
            scale, description = _tiff_notes(picture)
        pages = []
        with untrusted():
            count = getattr(picture, "n_frames", 1)
        for page in range(count):
            alpha = _read_page(picture, page, _alpha)[0]
            pages.append(np.where(alpha == 0, 255, alpha).astype(np.uint8) if filled_in else alpha)
    opaque = all(int(alpha.min()) == 255 for alpha in pages)
    return Extras(None if opaque else tuple(pages), icc_profile, dpi, scale, description)


def _tiff_notes(
    picture: "PillowPicture | DeepPng",
) -> tuple[tuple[float, float, int] | None, bytes | None]:
    """Return the scale and the description of a TIFF that Pillow reads."""
    if picture.format != "TIFF":
        return None, None
    tags = _tags(picture)
    text = tags.get(_Tag.DESCRIPTION)
    # Pillow reads the bytes of a text as characters
    description = text.encode("latin-1", "replace") if isinstance(text, str) else None
    return _checked_scale(*(tags.get(tag) for tag in _SCALE)), description


def _checked_scale(
    across: object, down: object, unit: int | None
) -> tuple[float, float, int] | None:
    """Return a scale that a file can have; None for an invalid one."""
    checked = _checked_dpi((across, down))
    if checked is None or (checked == (1.0, 1.0) and unit == _Unit.NONE):
        return None
    return (*checked, int(unit or _Unit.INCH))


def _checked_dpi(values: Any) -> tuple[float, float] | None:
    """Return a resolution that a file can have; None for an invalid one, as in damaged files."""
    try:
        across, down = map(float, values)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    plausible = 0 < across < 1e6 and 0 < down < 1e6
    return (across, down) if plausible else None


def _known(picture: "_Opened") -> np.ndarray:
    """Tell whether each pixel [H, W] of an open picture has an alpha above 0."""
    if isinstance(picture, DeepPng):
        return picture.known()
    if isinstance(picture, _ChannelTiff) or not picture.has_transparency_data:
        return np.ones((picture.height, picture.width), bool)
    return np.asarray(picture.convert(_ALPHA_MODES[picture.mode]))[..., -1] > 0


# TIFF files of pixels that Pillow has no kind for: any number of channels, and channels of more
# than 8 bits


def _tags(picture: object) -> Mapping[int, Any]:
    """Return the tags of a TIFF that Pillow reads."""
    return getattr(picture, "tag_v2", {})


def _is_reduced(picture: "PillowPicture") -> bool:
    """Tell whether Pillow drops channels or bits of an open picture."""
    if picture.format != "TIFF":
        return False
    samples = _tags(picture).get(_Tag.SAMPLES, 1)
    bits = _tags(picture).get(_Tag.BITS, (1,))
    return bool(
        samples != len(picture.getbands())
        or picture.mode == "RGBX"
        or (picture.mode == "RGB" and max(bits) > 8)
        or (max(bits) == 16 and _SIGNED in _tags(picture).get(_Tag.NUMBERS, ()))
    )


class _ChannelTiff:
    """The pages of an open file, one at a time, with the names of Pillow's pictures."""

    has_transparency_data = False

    def __init__(self, stream: BinaryIO) -> None:
        tifffile = _tifffile("reading")
        self._pages: Any = tifffile.TiffFile(stream, name="TIFF").pages
        self.n_frames = len(self._pages)
        self.seek(0)

    def seek(self, page: int) -> None:
        """Go to a page."""
        self._page = self._pages[page]
        self.width = int(self._page.imagewidth)
        self.height = int(self._page.imagelength)

    @property
    def icc_profile(self) -> bytes | None:
        """The profile of the page's colours."""
        return self._page.iccprofile or None

    @property
    def dpi(self) -> tuple[float, float] | None:
        """Pixels per inch of the page, across and down."""
        unit = int(self._page.resolutionunit)
        if unit not in (_Unit.INCH, _Unit.CENTIMETRE):
            return None
        scale = 1.0 if unit == _Unit.INCH else 2.54
        return _checked_dpi([scale * value for value in self._page.resolution])

    @property
    def scale(self) -> tuple[float, float, int] | None:
        """Pixels per unit of the page, and the unit."""
        across, down = self._page.resolution
        return _checked_scale(across, down, self._page.resolutionunit)

    @property
    def description(self) -> bytes | None:
        """The page's text."""
        return self._page.description.encode() or None

    def pixels(self) -> np.ndarray:
        """Return the pixels of the page, [H, W, C]."""
        page = self._page
        axes = page.axes.replace("S", "") == "YX" and page.photometric.name in ("MINISBLACK", "RGB")
        if not axes or page.dtype is None or page.dtype.name not in _TIFF_DTYPES:
            raise ValueError(
                f"it is a {page.photometric.name} TIFF with pixels of type {page.dtype}; expected"
                f" grey, RGB or any number of channels, of type {', '.join(_TIFF_DTYPES)}"
            )
        if page.compression.name != "NONE" or any(int(kind) for kind in page.extrasamples):
            raise ValueError(
                f"it has {page.samplesperpixel} channels of {page.dtype} with compression or"
                " transparency; save it without them, or as .npy"
            )
        most = limits().page_values
        if page.size > most:
            raise ValueError(
                f"one of its pages has {page.size:,} values; expected at most {most:,}"
            )
        values: np.ndarray = page.asarray().astype(page.dtype.newbyteorder("="), copy=False)
        values = np.atleast_3d(np.moveaxis(values, 0, -1) if page.axes == "SYX" else values)
        tag = page.tags.get(_Tag.ORIENTATION)
        return _upright(values, 1 if tag is None else int(tag.value))


def _upright(values: np.ndarray, orientation: int) -> np.ndarray:
    """Turn pixels [H, W, C] as a TIFF's orientation says, 1 to 8; others are left as they are."""
    if 5 <= orientation <= 8:
        values = values.transpose(1, 0, 2)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return values[::rows, ::columns]


def write_tiff(file: BinaryIO, pages: Sequence[np.ndarray], extras: Extras = NO_EXTRAS) -> None:
    """Write pages [C, H, W]."""
    options: dict[str, object] = {"metadata": None}
    if extras.icc_profile:
        options["iccprofile"] = extras.icc_profile
    if extras.scale:
        options |= {"resolution": extras.scale[:2], "resolutionunit": extras.scale[2]}
    elif extras.dpi:
        options |= {"resolution": extras.dpi, "resolutionunit": int(_Unit.INCH)}
    with _tifffile("writing").TiffWriter(file) as writer:
        for number, page in enumerate(pages):
            kind = "rgb" if len(page) == 3 else "minisblack"
            # the first page's text describes all
            text = extras.description if number == 0 else None
            layout = {"planarconfig": "separate"} if len(page) > 1 else {}
            values = page if len(page) > 1 else page[0]
            writer.write(values, photometric=kind, description=text, **layout, **options)


def tiff_options(extras: Extras) -> dict[str, object]:
    """Return what Pillow needs to write the scale and the description of a TIFF."""
    tags: dict[int, object] = {}
    if extras.description:
        tags[int(_Tag.DESCRIPTION)] = extras.description
    if extras.scale:
        tags |= dict(zip(map(int, _SCALE), extras.scale, strict=True))
    elif extras.dpi:
        return {"dpi": extras.dpi, "tiffinfo": tags}
    return {"tiffinfo": tags}


def _tifffile(what: str) -> ModuleType:
    try:
        import tifffile
    except ImportError:
        raise MissingExtra("tifffile", f"{what} a TIFF file with such channels") from None
    # Without a handler, its log of damaged files would be printed next to our error.
    logger = logging.getLogger("tifffile")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    return tifffile
