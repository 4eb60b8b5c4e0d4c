"""Restoring picture files: one, or all of a folder, which continues where it was interrupted."""

from __future__ import annotations

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
from whatwhere.data.pictures import find_pictures, picture_files
from whatwhere.data.tiff import write_tiff
from whatwhere.errors import ImageError, MissingExtra, RunError, printable
from whatwhere.files import claim_outputs, disk_errors, open_regular, read_json, write_atomic
from whatwhere.model.files import checksum
from whatwhere.restoration.checks import Model
from whatwhere.restoration.denoise import Noise, denoise, learn_dictionary, noise_of
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.dictionary import Dictionary
from whatwhere.restoration.fill import ROUNDS
from whatwhere.restoration.inpaint import inpaint
from whatwhere.spec.tasks import RestorationSpec

RECORD = "restoration.json"  # in a folder of results: the settings, the model and the sources that made them
FORMATS = {".png": "PNG", ".tif": "TIFF", ".bmp": "BMP", ".webp": "WEBP", ".jpg": "JPEG"}
FORMATS |= {".tiff": "TIFF", ".jpeg": "JPEG"}
SAVED_AS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}
DEEP = ("PNG", "TIFF")  # formats that keep 16 bits


@dataclass(frozen=True)
class Task:
    """What is done to every picture; `model` is its name. With "poisson", whole numbers are the counts."""

    name: Literal["denoise", "inpaint"]
    model: str
    spec: RestorationSpec = field(default_factory=RestorationSpec)
    noise: Noise = None
    learn: bool = False


@dataclass(frozen=True)
class Job:
    """One picture to restore; `pixels` is the amount of work, for progress."""

    source: Path
    mask: str | None
    out: Path
    pixels: int

    @property
    def files(self) -> list[Path]:
        """The files that its result depends on."""
        return [self.source, *([] if self.mask in (None, "alpha") else [Path(str(self.mask))])]


def plan_jobs(
    task: Task, model: Model, source: Path, mask: str | None, out: Path, overwrite: bool = False
) -> list[Job]:
    """The pictures that are still to be restored. All of them are checked, before any work is done."""
    inputs = [source, *([] if mask is None else [Path(mask)])]
    if not source.is_dir():
        job = _checked_job(source, mask, out)
        _check_format(job, task)
        claim_outputs([out], inputs, overwrite=overwrite)
        return [job]
    files = dict.fromkeys(picture.file for picture in find_pictures(source))
    targets = {file: out / f"{file.stem}{_suffix(file)}" for file in files}
    doubled = [file.name for file in files if list(targets.values()).count(targets[file]) > 1]
    if doubled:
        raise ImageError(f"{source} holds {' and '.join(doubled)}, which would have one name as a result; rename one")
    jobs = [_checked_job(file, _mask_of(mask, file), targets[file]) for file in files]
    record = _record(task, model, jobs)
    if not overwrite:
        _check_record(record, out)
    claim_outputs(targets.values(), inputs, folder=out, overwrite=overwrite)
    with disk_errors(f"writing {out / RECORD}", "free some space or give another place"):
        write_atomic(out / RECORD, (json.dumps(record, indent=1) + "\n").encode())
    return [job for job in jobs if overwrite or not job.out.exists()]


def restore_picture(task: Task, model: Model, job: Job, progress: Callable[[int], None]) -> list[Noise]:
    """Restore a picture, all its pages, and write the result, which appears complete or not at all.

    Returns the noise of every page, given or estimated.
    """
    images, masks = _load(job.source, job.mask)
    results, levels = [], []
    for page in range(len(images)):
        image, mask = images[page : page + 1], None if masks is None else masks[page : page + 1]
        level = _noise(task, images, image)
        if mask is None:
            own = learn_dictionary(model, image[0], level) if task.learn and isinstance(model, Dictionary) else model
            result = denoise(own, image, level, spec=task.spec, progress=progress)
        else:
            assert isinstance(model, Denoiser)
            assert isinstance(level, float)
            result = inpaint(model, image, mask, level, spec=task.spec, progress=progress)
        results.append(result[0].cpu().numpy())
        levels.append(level)
    with disk_errors(f"writing {job.out}", "free some space or give another place"):
        job.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(job.out, encode_pictures(results, images, FORMATS[job.out.suffix.lower()]))
    return levels


def _noise(task: Task, images: Images, image: Tensor) -> Noise:
    """The noise of one page [1, C, H, W], in its units."""
    if task.name == "inpaint":
        return float(task.noise or 0)  # type: ignore[arg-type]
    if task.noise == "poisson" and images.pixels.dtype.kind != "f":
        return 1 / (images.brightest or brightest_of(images.pixels.dtype)), 0.0
    return noise_of(image[0]) if task.noise is None else task.noise


def encode_pictures(pages: Sequence[np.ndarray], images: Images, kind: str) -> bytes:
    """The file of pages [C, H, W] with pixels like those of the images; values beyond black and white are cut off."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "data", "writing pictures") from None

    def pixels(values: np.ndarray) -> np.ndarray:
        if (dtype := images.pixels.dtype).kind != "f":
            values = np.rint(values.clip(0, 1).astype(np.float64) * (images.brightest or brightest_of(dtype)))
        return values.astype(dtype)

    def picture(page: np.ndarray) -> Any:
        return Image.fromarray(page[0] if len(page) == 1 else np.ascontiguousarray(page.transpose(1, 2, 0)))

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
        raise ImageError(f"{printable(source)}: pages of {len(groups)} sizes; save each as a picture of its own")
    return groups[0]


def _checked_job(source: Path, mask: str | None, out: Path) -> Job:
    """A job whose picture and mask can be read and fit together."""
    images, masks = _load(source, mask)
    if masks is not None and not all((masks[page] > 0).any() for page in range(len(masks))):
        raise ImageError(f"{printable(source)}: the mask {mask} leaves no pixel known")
    return Job(source, mask, out, math.prod((len(images), *images.shape, 1 if masks is None else ROUNDS)))


def _mask_of(mask: str | None, file: Path) -> str | None:
    """The mask of one picture of a folder: the one of its name where masks are a folder, otherwise the same for all."""
    if mask is None or mask == "alpha" or not Path(mask).is_dir():
        return mask
    matching = [path for path, _ in picture_files(Path(mask))[0] if path.stem == file.stem]
    if len(matching) != 1:
        raise ImageError(f"{len(matching)} pictures in {mask} are named {file.stem}; expected one mask for {file.name}")
    return str(matching[0])


def _suffix(file: Path) -> str:
    """The ending of a result in a folder: PNG loses nothing; TIFF, which alone keeps floats, stays TIFF."""
    return file.suffix if FORMATS[file.suffix.lower()] == "TIFF" else ".png"


def _check_format(job: Job, task: Task) -> None:
    """Raise an ImageError for a file to write that could not hold the result."""
    out, kind = printable(job.out), FORMATS.get(job.out.suffix.lower())
    if kind is None or job.out.is_dir():
        raise ImageError(f"{out} was given as the picture to write; expected a name with one of {', '.join(FORMATS)}")
    if kind == "JPEG" and task.name == "inpaint" and not task.noise:
        raise ImageError(f"{out} was given; JPEG changes known pixels, expected .png, .tif, .bmp or .webp")
    images, _ = _load(job.source, job.mask)
    dtype = images.pixels.dtype
    if _needs_tiff(images) and kind != "TIFF":
        channels = f"{images.shape[0]} channels of {dtype}"
        raise ImageError(f"{out} was given for {channels}, which {kind} cannot hold; write a .tif file")
    if dtype != np.uint8 and kind not in (DEEP if dtype == np.uint16 else ("TIFF",)):
        raise ImageError(f"{out} was given for pixels of {dtype}, which {kind} cannot hold; write a .tif file")
    if len(images) > 1 and kind != "TIFF":
        raise ImageError(f"{out} was given for {len(images)} pages, which {kind} cannot hold; write a .tif file")


def _needs_tiff(images: Images) -> bool:
    """Whether a file of these pixels is a TIFF that Pillow cannot write."""
    channels = images.shape[0]
    return channels not in (1, 3) or (channels == 3 and images.pixels.dtype != np.uint8)


def _record(task: Task, model: Model, jobs: Sequence[Job]) -> dict[str, Any]:
    """What makes the results of a folder: the settings, the model and the sources, both by their checksums."""
    numbers = {name: getattr(model, name).cpu() for name in model.__dataclass_fields__}
    identity = checksum(type(model).__name__, numbers)
    sources = {job.out.name: " ".join(map(_digest, job.files)) for job in jobs}
    return {"settings": json.loads(json.dumps(asdict(task))), "model": identity, "sources": sources}


def _digest(file: Path) -> str:
    with open_regular(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _check_record(record: dict[str, Any], out: Path) -> None:
    """Raise a RunError if the results in a folder are of other settings, of another model or of other sources."""
    if not (out / RECORD).exists():
        return
    content = read_json(out / RECORD)
    earlier: dict[str, Any] = content if isinstance(content, dict) else {}
    sources = earlier.get("sources")
    sources = sources if isinstance(sources, dict) else {}
    other = [key for key in ("settings", "model") if earlier.get(key) != record[key]]
    other += [name for name, digest in record["sources"].items() if name in sources and sources[name] != digest]
    if other:
        what = f"other {' and another '.join(other)}" if other[0] in record else f"other sources ({other[0]}, …)"
        raise RunError(
            f"{printable(out)} holds results of {what}; give what they were made with to continue, another folder, or "
            "--overwrite"
        )
