"""What commands write: `claim` before the work, `write` after it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whatwhere.files import claim_outputs, disk_errors, is_folder, write_atomic


def claim(
    outputs: Iterable[Path], *read: str | Path | None, folder: Path | None = None, overwrite: bool = False
) -> None:
    """Raise an error, before anything is written, unless all of these files may be written (`files.claim_outputs`).

    read    what the command reads: runs, models, images by name or path; the figures of a run are its results
    folder  of results, if the outputs are in one
    """
    inputs = [file for source in read if source is not None for file in _files(Path(source))]
    claim_outputs(outputs, inputs, folder=folder, overwrite=overwrite)


def write(path: Path, content: bytes) -> None:
    """Write a file, complete or not at all, and its folders."""
    with disk_errors(f"writing {path}", "make room, or choose another place with --out"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, content)


def _files(source: Path) -> Iterable[Path]:
    """A source; of a run its own files and its checkpoint, since results may lie in other folders of it."""
    if is_folder(source) and (source / "model.safetensors").exists():
        return [*(path for path in source.iterdir() if not is_folder(path)), source / "checkpoint"]
    return [source]
