"""Restoring picture files: one, or all of a folder, which continues where it was interrupted."""

import io
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from whatwhere.data import Images, load_groups
from whatwhere.data.deep_png import encode as encode_deep_png
from whatwhere.data.images import brightest_of
from whatwhere.data.parts import PartRecord, begin_part
from whatwhere.data.pictures import (
    NO_EXTRAS,
    Extras,
    Place,
    folder_content,
    read_extras,
    read_pictures,
    tiff_options,
    write_tiff,
)
from whatwhere.errors import ImageError, MissingExtra, RunError, plural, printable, warn
from whatwhere.files import (
    FileFields,
    claim,
    disk_errors,
    file_checksum,
    json_fields,
    write_atomic,
    write_json,
    write_result,
)
from whatwhere.model.checksums import checksum
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.estimate import estimate_noise
from whatwhere.restoration.forms import step_of
from whatwhere.restoration.noise import Noise, NoiseEstimate, read_noise
from whatwhere.restoration.restore import (
    FRAMES_SEEN,
    as_images,
    denoise,
    denoise_frame,
    frame_window,
    inpaint,
    noise_of_image,
    spread_over,
)
from whatwhere.restoration.settings import RestorationSpec
from whatwhere.spec.execution import ALL, Shard

RECORD = "restoration.json"
_RECORD_FORMAT = "whatwhere restoration 1"
"""The record in a folder of results: the settings, the model, and the sources of every result that
is made."""

FORMATS = {".png": "PNG", ".tif": "TIFF", ".bmp": "BMP", ".webp": "WEBP", ".jpg": "JPEG"}
FORMATS |= {".tiff": "TIFF", ".jpeg": "JPEG"}
REMEDY = "free some disk space, or choose another folder"
SAVED_AS: dict[str, dict[str, object]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}


@dataclass(frozen=True)
class Task:
    """The task for every picture."""

    name: Literal["denoise", "inpaint"]
    spec: RestorationSpec = field(default_factory=RestorationSpec)
    noise: Noise = None

    @property
    def only_fills_in(self) -> bool:
        """Whether known pixels stay exactly as they are."""
        return self.name == "inpaint" and not self.noise


@dataclass(frozen=True)
class Job:
    """One picture to restore.

    Parameters
    ----------
    images
        the pages, which are decoded when they are restored
    masks
        their unknown pixels; None for `denoise`
    pixels
        the amount of work, for progress
    folder
        folder of results, which has a record of them; None for a picture at a place of its own
    sources
        checksums of the files that the result is made of
    """

    source: Path
    mask: str | None
    out: Path
    images: Images = field(repr=False)
    masks: Images | None = field(repr=False)
    pixels: int
    folder: Path | None = None
    sources: str = ""

    @property
    def name(self) -> str:
        """The path of the result in its folder, by which the record names it."""
        place = self.out if self.folder is None else self.out.relative_to(self.folder)
        return place.as_posix()


class SameResult(ImageError):
    """Pictures of a folder whose results would have the same name.

    Attributes
    ----------
    folder
        their folder
    names
        their names
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self.folder = folder
        self.names = tuple(names)
        super().__init__(
            f"The results of {' and '.join(names)} in {folder} would have the same name. Rename one"
            " of these pictures."
        )


class NoSingleMask(ImageError):
    """A folder of masks without a mask, or with several, for a picture.

    Attributes
    ----------
    masks
        the folder
    picture
        the picture
    count
        the number of its masks
    """

    def __init__(self, masks: str, picture: Path, count: int) -> None:
        self.masks = masks
        self.picture = picture
        self.count = count
        super().__init__(
            f"{masks} has {count} pictures named {picture.stem}; expected one mask for"
            f" {picture.name}."
        )


class UnsuitableFormat(ImageError):
    """A file to write whose format cannot hold the result.

    Attributes
    ----------
    path
        the file
    reason
        why, as a clause
    suitable
        the endings of formats that can
    """

    def __init__(self, path: Path, reason: str, suitable: Sequence[str]) -> None:
        self.path = path
        self.reason = reason
        self.suitable = tuple(suitable)
        *others, last = suitable
        endings = f"{', '.join(others)} or {last}" if others else last
        super().__init__(f"Cannot write {printable(path)}: {reason}. Use {endings}.")


class OtherResults(RunError):
    """A folder with results that another command made.

    Attributes
    ----------
    folder
        the folder
    changed
        the settings and the pictures that differ
    """

    def __init__(self, folder: Path, changed: Sequence[str]) -> None:
        self.folder = folder
        self.changed = tuple(changed)
        super().__init__(
            f"{printable(folder)} has results that were made with other settings, from other"
            f" sources or with another model ({', '.join(changed[:3])} changed). To continue, run"
            " the command as before. Otherwise choose another folder, or use --overwrite."
        )


def plan_jobs(
    task: Task,
    model: Denoiser | Tensor,
    source: Path,
    mask: str | None,
    out: Path,
    overwrite: bool = False,
    shard: Shard = ALL,
) -> list[Job]:
    """The pictures that are still to be restored, all checked before any work is done.

    Parameters
    ----------
    shard
        the part of a folder; its results are in a folder of their own, in `out`
    """
    inputs = [source]
    if mask is not None:
        inputs.append(Path(mask))
    if not source.is_dir():
        job = _plan_picture(task, source, mask, out)
        claim([out], inputs, overwrite=overwrite)
        return [job]
    content = folder_content(source, but=out)
    own, _ = content.split(shard)
    places = {picture.file: picture.place for picture in read_pictures(source, own)}
    _check_distinct(source, _targets(content.pictures, out))
    out = shard.part_of(out)
    jobs, with_gaps = _plan_folder(places, mask, out, task.spec.rounds)
    if task.only_fills_in and with_gaps < len(jobs):
        complete = len(jobs) - with_gaps
        have = "has" if complete == 1 else "have"
        words = f"{printable(source)}: {complete:,} of {plural(len(jobs), 'picture')} {have}"
        # other parts of the folder may have gaps
        if not with_gaps and shard.is_all:
            raise ImageError(f"{words} nothing to fill in. Give a mask of unknown pixels.")
        stay = "It stays as it is." if complete == 1 else "They stay as they are."
        warn(f"{words} nothing to fill in. {stay}")
    claim([job.out for job in jobs], inputs, folder=out, overwrite=overwrite)
    record = _settings(task, model)
    made_from = PartRecord(record["model"], json.dumps(record["settings"]), content.all_pictures)
    if not overwrite and (out / RECORD).exists():
        record |= _made(record, jobs, out)
    begin_part(out, shard, made_from, overwrite=overwrite)
    # With `overwrite` no result counts as made, from here on until it is made again.
    _write_record(out, record)
    return [job for job in jobs if job.name not in record]


def _plan_picture(task: Task, source: Path, mask: str | None, out: Path) -> Job:
    """The job of a single picture."""
    images, masks = _load(source, mask)
    _check_format(out, source, images, task)
    if task.only_fills_in and not _has_gaps(masks):
        raise ImageError(
            f"{printable(source)}: the mask {mask} leaves nothing to fill in. Expected transparent"
            " pixels (alpha), or black ones in the mask."
        )
    return _job(source, mask, out, images, masks, task.spec.rounds)


def _plan_folder(
    places: dict[Path, Place], mask: str | None, out: Path, rounds: int
) -> tuple[list[Job], int]:
    """The jobs of these pictures of a folder, whose results lie in `out` as they do in it, and how
    many of them have unknown pixels."""
    targets = _targets(places, out)
    jobs = []
    with_gaps = 0
    for file, place in places.items():
        own_mask = _mask_of(mask, file, place)
        images, masks = _load(file, own_mask)
        with_gaps += _has_gaps(masks)
        job = _job(file, own_mask, targets[file], images, masks, rounds)
        jobs.append(replace(job, folder=out, sources=_checksums(job)))
    return jobs, with_gaps


def _targets(places: dict[Path, Place], out: Path) -> dict[Path, Path]:
    """The file of each picture's result; pictures that differ in their ending alone keep it in the
    name: rgb.png and rgb.jpg.png."""
    targets = {
        file: out.joinpath(*place.folders, f"{file.stem}{_suffix(file)}")
        for file, place in places.items()
    }
    counts = Counter(targets.values())
    for file, target in targets.items():
        if counts[target] > 1 and file.suffix != target.suffix:
            targets[file] = target.with_name(f"{file.name}{target.suffix}")
    return targets


def _check_distinct(source: Path, targets: dict[Path, Path]) -> None:
    """Raise an ImageError for pictures whose results would have the same name."""
    counts = Counter(targets.values())
    doubled = [file.name for file, target in targets.items() if counts[target] > 1]
    if doubled:
        raise SameResult(source, doubled)


def noise_of_all(source: Path, out: Path, most: int = 16) -> NoiseEstimate:
    """Estimate the noise of pictures that were taken alike, from at most so many of a folder, or
    pages of a file, spread evenly over all.

    Parameters
    ----------
    out
        a folder in it that is left out
    """
    if not source.is_dir():
        return estimate_noise(_pages(_load(source, None)[0], most))
    files = list(folder_content(source, but=out).pictures)
    if not files:
        raise ImageError(f"{printable(source)}: it has no pictures whose noise can be estimated.")
    chosen = [files[place] for place in spread_over(len(files), most)]
    return estimate_noise([_pages(_load(file, None)[0], 1)[0] for file in chosen])


def _pages(images: Images, most: int) -> list[Tensor]:
    """Return at most so many pages [C, H, W], spread evenly over all."""
    return [images[place : place + 1][0] for place in spread_over(len(images), most)]


def restore_picture(
    task: Task, model: Denoiser | Tensor, job: Job, progress: Callable[[int], None]
) -> list[NoiseEstimate]:
    """Restore a picture, all its pages, and write the result, which appears complete or not at all.

    Returns the noise of every page whose noise was estimated.
    """
    images, masks = job.images, job.masks
    extras = read_extras(job.source, filled_in=job.mask == "alpha")
    results = []
    estimates = []
    given, step = read_noise(task.noise), step_of(images)
    is_film = masks is None and task.spec.frames > 1 and len(images) > 1
    for page in () if is_film else range(len(images)):
        image = images[page : page + 1]
        if masks is None:
            noise = noise_of_image(image[0], given, step)
            if given is None:
                estimates.append(noise)
            result = denoise(image, model, noise, spec=task.spec, progress=progress)
        else:
            assert isinstance(model, Denoiser)
            mask = masks[page : page + 1]
            level = float(task.noise or 0)  # type: ignore[arg-type]
            result = inpaint(image, mask, model, level, spec=task.spec, progress=progress)
        results.append(result[0].cpu().numpy())
    if is_film:
        results, estimates = _restore_film(task, model, images, progress)
    with disk_errors(f"writing {job.out}", REMEDY):
        kind = FORMATS[job.out.suffix.lower()]
        write_picture(job, encode_pictures(results, images, kind, extras))
    return estimates


def _restore_film(
    task: Task, model: Denoiser | Tensor, images: Images, progress: Callable[[int], None]
) -> tuple[list[np.ndarray], list[NoiseEstimate]]:
    """Restore the pages of a film; only those that are averaged are in memory at a time."""
    count = len(images)
    noise = task.noise
    estimates = []
    if noise is None:
        noise = estimate_noise(_pages(images, FRAMES_SEEN))
        estimates.append(noise)
    results = []
    for page in range(count):
        first, last = frame_window(page, count, task.spec.frames)
        frames = as_images(model, images[first:last])
        known = noise_of_image(frames[page - first], read_noise(noise), step_of(images))
        clean = denoise_frame(model, frames, page - first, known, task.spec, progress)
        results.append(clean[0].cpu().numpy())
    return results, estimates


def write_picture(job: Job, content: bytes) -> None:
    """Write the result of a job, then record that it is made."""
    if job.folder is None:
        job.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(job.out, content)
        return
    write_result(job.folder, job.out, content, REMEDY)
    record = _read_record(job.folder)
    _write_record(job.folder, record | {job.name: job.sources})


def encode_pictures(
    pages: Sequence[np.ndarray], images: Images, kind: str, extras: Extras = NO_EXTRAS
) -> bytes:
    """The file of pages [C, H, W] with pixels like those of the images; values beyond black and
    white are cut off."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "writing pictures") from None

    pixels = [_as_pixels(page, images) for page in pages]
    file = io.BytesIO()
    if kind == "PNG" and pixels[0].dtype == np.uint16:
        alpha = None if extras.alpha is None else extras.alpha[0]
        return encode_deep_png(pixels[0], alpha, extras.icc_profile, extras.dpi)
    if _needs_tiff(images):
        write_tiff(file, pixels, extras)
        return file.getvalue()
    pictures = []
    for number, page in enumerate(pixels):
        if extras.alpha:
            page = np.concatenate([page, extras.alpha[number][None]])
        channels_last = page[0] if len(page) == 1 else page.transpose(1, 2, 0)
        pictures.append(Image.fromarray(np.ascontiguousarray(channels_last)))
    options = dict(SAVED_AS.get(kind, {}))
    if extras.icc_profile:
        options["icc_profile"] = extras.icc_profile
    if kind == "TIFF":
        options |= tiff_options(extras)
    elif extras.dpi:
        options["dpi"] = extras.dpi
    if len(pictures) > 1:
        options |= {"save_all": True, "append_images": pictures[1:]}
    pictures[0].save(file, format=kind, **options)
    return file.getvalue()


def _as_pixels(page: np.ndarray, images: Images) -> np.ndarray:
    """Values of 0 to 1 as pixels of the type that the images have; floats stay what they are."""
    dtype = images.pixels.dtype
    if dtype.kind == "f":
        return page.astype(dtype)
    white = images.brightest or brightest_of(dtype)
    if dtype.kind == "i":
        limits = np.iinfo(dtype)
        signed: np.ndarray = np.rint(page.astype(np.float64) * white)
        return signed.clip(limits.min, limits.max).astype(dtype)
    pixels: np.ndarray = np.rint(page.clip(0, 1).astype(np.float64) * white).astype(dtype)
    return pixels


def _load(source: Path, mask: str | None) -> tuple[Images, Images | None]:
    """The pages of a picture, which are of one size, and their masks; colours as they are, whatever
    their transparency."""
    groups = load_groups(source, mask, blend=False)
    if len(groups) > 1:
        raise ImageError(
            f"{printable(source)} has pages of {len(groups)} sizes. Save each page as a separate"
            " picture."
        )
    return groups[0]


def _has_gaps(masks: Images | None) -> bool:
    """Whether any pixel of any page is unknown."""
    if masks is None:
        return False
    return any(bool((masks[page] <= 0).any()) for page in range(len(masks)))


def _job(
    source: Path, mask: str | None, out: Path, images: Images, masks: Images | None, rounds: int
) -> Job:
    if masks is not None and not all((masks[page] > 0).any() for page in range(len(masks))):
        raise ImageError(
            f"{printable(source)}: the mask {mask} leaves no pixel known. Give a mask that is"
            " white where pixels are known."
        )
    passes = 1 if masks is None else rounds
    pixels = math.prod((len(images), *images.shape, passes))
    return Job(source, mask, out, images, masks, pixels)


def _mask_of(mask: str | None, file: Path, place: Place) -> str | None:
    """The mask of one picture of a folder: the one of its name where masks are a folder, otherwise
    the same for all.

    Of several masks with its name, the one in the same sub-folders.
    """
    if mask is None or mask == "alpha" or not Path(mask).is_dir():
        return mask
    masks = folder_content(Path(mask)).pictures
    matching = [path for path in masks if path.stem == file.stem]
    if len(matching) > 1:
        matching = [path for path in matching if masks[path].folders == place.folders]
    if len(matching) != 1:
        raise NoSingleMask(mask, file, len(matching))
    return str(matching[0])


def _suffix(file: Path) -> str:
    """The ending of a result in a folder: PNG loses nothing; TIFF, which alone keeps floats, stays
    TIFF."""
    return file.suffix if FORMATS.get(file.suffix.lower()) == "TIFF" else ".png"


def _check_format(out: Path, source: Path, images: Images, task: Task) -> None:
    """Raise an ImageError for a file to write that could not hold the result."""
    kind = FORMATS.get(out.suffix.lower())
    if kind is None or out.is_dir():
        raise ImageError(
            f"Cannot write a picture to {printable(out)}. Expected a name with one of"
            f" {', '.join(FORMATS)}."
        )
    if kind == "JPEG" and task.only_fills_in:
        raise UnsuitableFormat(
            out, "JPEG would change known pixels", (".png", ".tif", ".bmp", ".webp")
        )
    if kind in ("JPEG", "BMP") and read_extras(source, filled_in=task.name == "inpaint").alpha:
        reason = f"the picture has transparency, which {kind} cannot hold"
        raise UnsuitableFormat(out, reason, (".png", ".tif", ".webp"))
    if kind != "TIFF" and not _holds(kind, images):
        channels = plural(images.shape[0], "channel")
        what = f"{plural(len(images), 'page')} of {channels} of {images.pixels.dtype}"
        reason = f"the picture has {what}, which {kind} cannot hold"
        raise UnsuitableFormat(out, reason, (".tif",))


def _holds(kind: str, images: Images) -> bool:
    """Whether a file of a format other than TIFF can hold all pages of these images."""
    dtype = images.pixels.dtype
    if len(images) != 1 or images.shape[0] not in (1, 3):
        return False
    return dtype == np.uint8 or (dtype == np.uint16 and kind == "PNG")


def _needs_tiff(images: Images) -> bool:
    """Whether a file of these pixels is a TIFF that Pillow cannot write."""
    channels = images.shape[0]
    dtype = images.pixels.dtype
    return channels not in (1, 3) or dtype.kind == "i" or (channels == 3 and dtype != np.uint8)


def _settings(task: Task, model: Denoiser | Tensor) -> dict[str, Any]:
    """The settings, and the checksum of the model."""
    numbers = {"atoms": model} if isinstance(model, Tensor) else vars(model.to("cpu"))
    return {"settings": json.loads(json.dumps(asdict(task))), "model": checksum("", numbers)}


def _checksums(job: Job) -> str:
    """The checksums of the files that a result is made of."""
    files = [job.source] if job.mask in (None, "alpha") else [job.source, Path(job.mask)]
    return " ".join(map(file_checksum, files))


def _write_record(out: Path, record: Mapping[str, object]) -> None:
    with disk_errors(f"writing {out / RECORD}", REMEDY):
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / RECORD, _RECORD_FORMAT, record)


def _read_record(out: Path) -> FileFields:
    remedy = "choose another folder, or use --overwrite"
    kind = "record of restored pictures"
    with json_fields(out / RECORD, _RECORD_FORMAT, kind, remedy) as record:
        return record


def _made(settings: FileFields, jobs: Sequence[Job], out: Path) -> dict[str, str]:
    """The entries of a folder's record for results that exist.

    Raises a RunError if some were made with other settings, with another model or from other
    sources.
    """
    earlier = _read_record(out)
    finished = {job.name: job for job in jobs if job.name in earlier and job.out.exists()}
    made = {name: earlier[name] for name in finished}
    other = [key for key in settings if earlier.get(key) != settings[key]]
    other += [name for name in made if made[name] != finished[name].sources]
    if other:
        raise OtherResults(out, other)
    # results of other pictures, which are not in the source any more, stay in the record
    for job in jobs:
        earlier.pop(job.name, None)
    return earlier | made
