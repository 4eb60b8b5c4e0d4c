"""Restoring picture files: one, or all of a folder, which continues where it was interrupted."""

import hashlib
import io
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from whatwhere.data import Images, load_groups
from whatwhere.data.images import brightest_of
from whatwhere.data.pictures import find_pictures, picture_files, write_tiff
from whatwhere.errors import ImageError, MissingExtra, RunError, printable
from whatwhere.files import claim_outputs, disk_errors, read_json, write_atomic
from whatwhere.model.files import checksum
from whatwhere.spec.tasks import RestorationSpec
from whatwhere.tasks.restoration.denoiser import Denoiser
from whatwhere.tasks.restoration.fill import ROUNDS
from whatwhere.tasks.restoration.noise import noise_of
from whatwhere.tasks.restoration.restore import Noise, denoise, inpaint

# in a folder of results: the settings, the model and the sources that made them
RECORD = "restoration.json"
FORMATS = {".png": "PNG", ".tif": "TIFF", ".bmp": "BMP", ".webp": "WEBP", ".jpg": "JPEG"}
FORMATS |= {".tiff": "TIFF", ".jpeg": "JPEG"}
SAVED_AS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}


@dataclass(frozen=True)
class Task:
    """What is done to every picture. With "poisson", whole numbers are the counts."""

    name: Literal["denoise", "inpaint"]
    spec: RestorationSpec = field(default_factory=RestorationSpec)
    noise: Noise = None


@dataclass(frozen=True)
class Job:
    """One picture to restore; `pixels` is the amount of work, for progress."""

    source: Path
    mask: str | None
    out: Path
    pixels: int


def plan_jobs(
    task: Task,
    model: Denoiser | Tensor,
    source: Path,
    mask: str | None,
    out: Path,
    overwrite: bool = False,
) -> list[Job]:
    """The pictures that are still to be restored. All of them are checked, before any work is
    done."""
    inputs = [source, *([] if mask is None else [Path(mask)])]
    if not source.is_dir():
        images, masks = _load(source, mask)
        _check_format(out, images, task)
        claim_outputs([out], inputs, overwrite=overwrite)
        return [_job(source, mask, out, images, masks)]
    files = dict.fromkeys(picture.file for picture in find_pictures(source))
    targets = {file: out / f"{file.stem}{_suffix(file)}" for file in files}
    doubled = [file.name for file in files if list(targets.values()).count(targets[file]) > 1]
    if doubled:
        raise ImageError(
            f"{source} holds {' and '.join(doubled)}, which would have one name as a result;"
            " rename one"
        )
    own = {file: _mask_of(mask, file) for file in files}
    jobs = [_job(file, own[file], targets[file], *_load(file, own[file])) for file in files]
    record = _record(task, model, jobs)
    if not overwrite and (out / RECORD).exists():
        _check_record(record, out)
    claim_outputs(targets.values(), inputs, folder=out, overwrite=overwrite)
    with disk_errors(f"writing {out / RECORD}", "free some space or give another place"):
        write_atomic(out / RECORD, (json.dumps(record, indent=1) + "\n").encode())
    return [job for job in jobs if overwrite or not job.out.exists()]


def restore_picture(
    task: Task, model: Denoiser | Tensor, job: Job, progress: Callable[[int], None]
) -> list[Noise]:
    """Restore a picture, all its pages, and write the result, which appears complete or not at all.

    Returns the noise of every page, given or estimated.
    """
    images, masks = _load(job.source, job.mask)
    results, levels = [], []
    for page in range(len(images)):
        image, mask = images[page : page + 1], None if masks is None else masks[page : page + 1]
        level = _noise(task, images, image)
        if mask is None:
            result = denoise(model, image, level, spec=task.spec, progress=progress)
        else:
            assert isinstance(level, float)
            assert isinstance(model, Denoiser)
            result = inpaint(model, image, mask, level, spec=task.spec, progress=progress)
        results.append(result[0].cpu().numpy())
        levels.append(level)
    with disk_errors(f"writing {job.out}", "free some space or give another place"):
        job.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(job.out, encode_pictures(results, images, FORMATS[job.out.suffix.lower()]))
    return levels


def _noise(task: Task, images: Images, image: Tensor) -> Noise:
    if task.name == "inpaint":
        return float(task.noise or 0)  # type: ignore[arg-type]
    if task.noise == "poisson" and images.pixels.dtype.kind != "f":
        return 1 / (images.brightest or brightest_of(images.pixels.dtype)), 0.0
    return noise_of(image[0]) if task.noise is None else task.noise


def encode_pictures(pages: Sequence[np.ndarray], images: Images, kind: str) -> bytes:
    """The file of pages [C, H, W] with pixels like those of the images; values beyond black and
    white are cut off."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "data", "writing pictures") from None

    def pixels(values: np.ndarray) -> np.ndarray:
        if (dtype := images.pixels.dtype).kind != "f":
            values = np.rint(
                values.clip(0, 1).astype(np.float64) * (images.brightest or brightest_of(dtype))
            )
        return values.astype(dtype)

    def picture(page: np.ndarray) -> Any:
        return Image.fromarray(
            page[0] if len(page) == 1 else np.ascontiguousarray(page.transpose(1, 2, 0))
        )

    file = io.BytesIO()
    if _needs_tiff(images):
        write_tiff(file, list(map(pixels, pages)))
        return file.getvalue()
    first, *others = (picture(pixels(page)) for page in pages)
    several: dict[str, Any] = {"save_all": True, "append_images": others} if others else {}
    first.save(file, format=kind, **SAVED_AS.get(kind, {}), **several)
    return file.getvalue()


def _load(source: Path, mask: str | None) -> tuple[Images, Images | None]:
    """The pages of a picture, which are of one size, and their masks."""
    groups = load_groups(source, mask)
    if len(groups) > 1:
        raise ImageError(
            f"{printable(source)}: pages of {len(groups)} sizes; save each as a picture of its own"
        )
    return groups[0]


def _job(source: Path, mask: str | None, out: Path, images: Images, masks: Images | None) -> Job:
    if masks is not None and not all((masks[page] > 0).any() for page in range(len(masks))):
        raise ImageError(f"{printable(source)}: the mask {mask} leaves no pixel known")
    return Job(
        source, mask, out, math.prod((len(images), *images.shape, 1 if masks is None else ROUNDS))
    )


def _mask_of(mask: str | None, file: Path) -> str | None:
    """The mask of one picture of a folder: the one of its name where masks are a folder, otherwise
    the same for all."""
    if mask is None or mask == "alpha" or not Path(mask).is_dir():
        return mask
    matching = [path for path, _ in picture_files(Path(mask))[0] if path.stem == file.stem]
    if len(matching) != 1:
        raise ImageError(
            f"{len(matching)} pictures in {mask} are named {file.stem}; expected one mask for"
            f" {file.name}"
        )
    return str(matching[0])


def _suffix(file: Path) -> str:
    """The ending of a result in a folder: PNG loses nothing; TIFF, which alone keeps floats, stays
    TIFF."""
    return file.suffix if FORMATS[file.suffix.lower()] == "TIFF" else ".png"


def _check_format(out: Path, images: Images, task: Task) -> None:
    """Raise an ImageError for a file to write that could not hold the result."""
    kind, dtype = FORMATS.get(out.suffix.lower()), images.pixels.dtype
    if kind is None or out.is_dir():
        raise ImageError(
            f"{printable(out)} was given as the picture to write; expected a name with one of"
            f" {', '.join(FORMATS)}"
        )
    if kind == "JPEG" and task.name == "inpaint" and not task.noise:
        raise ImageError(
            f"{printable(out)} was given; JPEG changes known pixels, expected .png, .tif, .bmp or"
            " .webp"
        )
    deep = dtype != np.uint8 and not (dtype == np.uint16 and kind == "PNG")
    if kind != "TIFF" and (deep or len(images) > 1 or _needs_tiff(images)):
        what = f"{len(images)} pages of {images.shape[0]} channels of {dtype}"
        raise ImageError(
            f"{printable(out)} was given for {what}, which {kind} cannot hold; write a .tif file"
        )


def _needs_tiff(images: Images) -> bool:
    """Whether a file of these pixels is a TIFF that Pillow cannot write."""
    channels = images.shape[0]
    return channels not in (1, 3) or (channels == 3 and images.pixels.dtype != np.uint8)


def _record(task: Task, model: Denoiser | Tensor, jobs: Sequence[Job]) -> dict[str, Any]:
    """The settings, and the checksums of the model and of what each result is made from, by its
    name."""
    numbers = {"atoms": model} if isinstance(model, Tensor) else vars(model.to("cpu"))
    record = {"settings": json.loads(json.dumps(asdict(task))), "model": checksum("", numbers)}
    for job in jobs:
        files = [job.source] if job.mask in (None, "alpha") else [job.source, Path(job.mask)]
        record[job.out.name] = " ".join(
            hashlib.sha256(file.read_bytes()).hexdigest() for file in files
        )
    return record


def _check_record(record: dict[str, Any], out: Path) -> None:
    """Raise a RunError if a folder has results of other settings, of another model or of other
    sources."""
    earlier = read_json(out / RECORD)
    earlier = earlier if isinstance(earlier, dict) else {}
    made = [key for key in record if key in ("settings", "model") or (out / key).exists()]
    other = [key for key in made if earlier.get(key) != record[key]]
    if other:
        raise RunError(
            f"{printable(out)} holds results of other settings, sources or model"
            f" ({', '.join(other[:3])} changed); give what they were made with to continue, another"
            " folder, or --overwrite"
        )
