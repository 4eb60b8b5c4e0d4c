"""Restoring picture files: one, or all of a folder, which continues where it was interrupted."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import Tensor

from whatwhere.data import load_with_mask
from whatwhere.data.pictures import picture_files
from whatwhere.errors import ImageError, MissingExtra, RunError, command, printable
from whatwhere.files import claim_outputs, disk_errors, write_atomic
from whatwhere.model import DeconvNet
from whatwhere.restoration.denoise import denoise, restorer_for
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.inpaint import inpaint
from whatwhere.restoration.learn import adapt
from whatwhere.spec.restoration import DENOISING, RestorationSpec

Model = DeconvNet | Denoiser
RECORD = "restoration.json"  # in a folder of results: the settings that made them
FORMATS = {
    ".png": "PNG",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
}
SAVED_AS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}
DEEP = ("PNG", "TIFF")  # formats that keep 16 bits
WHITE = {"uint8": 255, "uint16": 65535}


@dataclass(frozen=True)
class Task:
    """What is done to every picture; `model` is its name or path."""

    name: Literal["denoise", "inpaint"]
    model: str
    spec: RestorationSpec = DENOISING
    noise: float | None = None
    learn: bool = False


@dataclass(frozen=True)
class Job:
    """One picture to restore; `tiles` is the amount of work, for progress."""

    source: Path
    mask: str | None
    out: Path
    tiles: int


def plan_jobs(
    task: Task, model: Model, source: Path, mask: str | None, out: Path, overwrite: bool = False
) -> list[Job]:
    """The pictures that are still to be restored. All of them are checked, before any work is done."""
    spec, inputs = task.spec, [source, *([] if mask is None else [Path(mask)])]
    if not source.is_dir():
        _check_format(source, out, task)
        job = _checked_job(task, model, spec, source, mask, out)
        claim_outputs([out], inputs, overwrite=overwrite)
        return [job]
    files = [file for file, _ in picture_files(source)[0]]
    targets = {file: out / f"{file.stem}{_suffix(file)}" for file in files}
    doubled = [file.name for file in files if list(targets.values()).count(targets[file]) > 1]
    if doubled:
        raise ImageError(f"{source} holds {' and '.join(doubled)}, which would have one name as a result; rename one")
    jobs = [_checked_job(task, model, spec, file, _mask_of(mask, file), targets[file]) for file in files]
    claim_outputs(targets.values(), inputs, folder=out, overwrite=overwrite)
    _record_settings(task, out, overwrite)
    return [job for job in jobs if overwrite or not job.out.exists()]


def restore_picture(task: Task, model: Model, job: Job, engine: str, progress: Callable[[int], None]) -> None:
    """Restore one picture and write the result, which appears complete or not at all."""
    images, masks = load_with_mask(job.source, job.mask)
    image, mask = images[0:1], None if masks is None else masks[0:1]

    def restore(net: Model) -> Tensor:
        if mask is not None:
            assert isinstance(net, DeconvNet)
            return inpaint(net, image, mask, task.noise or 0.0, spec=task.spec, engine=engine, progress=progress)
        return denoise(net, image, task.noise, spec=task.spec, engine=engine, progress=progress)

    result = restore(model)
    if task.learn and isinstance(model, DeconvNet):
        result = restore(adapt(model, result[0], engine=engine))
    with disk_errors(f"writing {job.out}", "free some space or give another place"):
        job.out.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(
            job.out, encode_picture(result[0].cpu().numpy(), images.pixels[0:1].dtype, FORMATS[job.out.suffix.lower()])
        )


def encode_picture(values: np.ndarray, dtype: np.dtype, kind: str) -> bytes:
    """The file of a picture [C, H, W] with pixels of this type; values beyond black and white are cut off."""
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "data", "writing pictures") from None

    white = WHITE.get(dtype.name)
    pixels = (
        values.astype(dtype) if white is None else np.rint(values.clip(0, 1).astype(np.float64) * white).astype(dtype)
    )
    picture = Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
    file = io.BytesIO()
    picture.save(file, format=kind, **SAVED_AS.get(kind, {}))
    return file.getvalue()


def _checked_job(task: Task, model: Model, spec: RestorationSpec, source: Path, mask: str | None, out: Path) -> Job:
    """A job whose picture and mask can be read and fit together and to the model."""
    images, masks = load_with_mask(source, mask)
    C, H, W = images.shape
    restorer = restorer_for(model, spec)
    if restorer.channels not in (1, C):
        raise ImageError(
            f"{printable(source)} has {C} channels, the model {task.model} has {restorer.channels}; "
            "expected a model of one channel or as many"
        )
    if masks is not None and not (masks[0:1] > 0).any():
        raise ImageError(f"{printable(source)}: the mask {mask} leaves no pixel known")
    work = restorer.count_tiles(C, H, W) * (2 if task.learn else 1)
    return Job(source, mask, out, work)


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


def _check_format(source: Path, out: Path, task: Task) -> None:
    """Raise an ImageError for a file to write that could not hold the result."""
    kind = FORMATS.get(out.suffix.lower())
    if kind is None or out.is_dir():
        raise ImageError(
            f"{printable(out)} was given as the picture to write; expected a name with one of {', '.join(FORMATS)}"
        )
    if kind == "JPEG" and task.name == "inpaint" and not task.noise:
        raise ImageError(f"{printable(out)} was given; JPEG changes known pixels, expected .png, .tif, .bmp or .webp")
    dtype = load_with_mask(source, None)[0].pixels[0:1].dtype
    if dtype != np.uint8 and kind not in (DEEP if dtype == np.uint16 else ("TIFF",)):
        raise ImageError(
            f"{printable(out)} was given for pixels of {dtype}, which {kind} cannot hold; write a .tif file"
        )


def _record_settings(task: Task, out: Path, overwrite: bool) -> None:
    """Write the settings into the folder of results; raise a RunError if those that are there are others."""
    record, settings = out / RECORD, json.loads(json.dumps(asdict(task)))
    if record.exists() and not overwrite:
        try:
            earlier = json.loads(record.read_text(encoding="utf-8"))
        except ValueError:
            earlier = None
        if earlier != settings:
            again = command("whatwhere", task.name, "…", "--overwrite")
            raise RunError(
                f"{printable(out)} holds results of other settings ({earlier}); give the same settings to continue, "
                f"another folder, or --overwrite ({again})"
            )
    with disk_errors(f"writing {record}", "free some space or give another place"):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(record, (json.dumps(settings, indent=1) + "\n").encode())
