"""Bringing a named data set into the cache: from a folder that the user has, or from a mirror."""

import io
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from whatwhere.data.cache import FileStatus, add, folder_of, verify
from whatwhere.data.catalogue import File, FileSet
from whatwhere.errors import ImageError, MissingExtra
from whatwhere.files import is_regular

TIMEOUT = 30
"""Seconds without an answer after which the next mirror is tried."""


class ProgressBar(Protocol):
    """The progress of one download: pooch sets `total` (bytes) and calls the methods."""

    total: int

    def update(self, size: int) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


def download(entry: FileSet, source: Path | None = None, progress: Callable[[File], ProgressBar] | None = None) -> None:
    """Bring the files of a data set that are missing or damaged into the cache; from `source` only, if it is given."""
    if source is not None and not source.is_dir():
        raise ImageError(f"{source}: not a folder; give one that contains {_names(entry.files)}")
    wanted = [file for file in entry.files if verify(entry, file) is not FileStatus.VERIFIED]
    if entry.embedded and wanted:
        raise ImageError(f"{entry.name}: {_names(wanted)} damaged or missing; install whatwhere again")
    local = {file: path for file in wanted if (path := _local_copy(entry, file, source))}
    if source and len(local) < len(wanted):
        absent = [file for file in wanted if file not in local]
        raise ImageError(f"{source}: does not contain {_names(absent)}")
    for file in wanted:
        if file in local:
            add(entry, file, local[file])
        else:
            _fetch(entry, file, progress)


def _local_copy(entry: FileSet, file: File, source: Path | None) -> Path | None:
    """The file in the source, compressed or not; without a source, a compressed copy in the cache itself."""
    folder = source or folder_of(entry)
    names = {file.name, file.download_name} if source else {file.download_name} - {file.name}
    return next((folder / name for name in sorted(names) if is_regular(folder / name)), None)


def _fetch(entry: FileSet, file: File, progress: Callable[[File], ProgressBar] | None) -> None:
    """Download a file from the first mirror that serves all of it."""
    try:
        import pooch
    except ImportError:
        raise MissingExtra("pooch", "data", f"downloading {entry.name}") from None

    failures = []
    for mirror in entry.mirrors:
        bar = progress(file) if progress else False
        with tempfile.TemporaryDirectory() as folder:
            fetched = Path(folder) / file.download_name
            try:
                with _LimitedFile(fetched, file.size) as stream:
                    pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)(mirror + file.download_name, stream, None)
                add(entry, file, fetched)
                return
            except (OSError, ImageError) as error:  # requests' errors are OSErrors
                failures.append(f"  {mirror + file.download_name}: {_reason(error)}")
    raise ImageError(
        f"{entry.name}: {file.download_name} could not be downloaded:\n" + "\n".join(failures) + "\n"
        f"Without a network, put {_names(entry.files)} into {folder_of(entry)} and run "
        f"`{entry.how_to_get}` again"
    )


class _LimitedFile(io.FileIO):
    """A file that does not grow beyond what a compressed copy of `size` bytes can need."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "x")
        self.limit = size + size // 1000 + 4096

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.limit:
            raise ImageError(f"more than {self.limit:,} bytes arrived")
        return super().write(data)


def _names(files: Iterable[File]) -> str:
    return ", ".join(file.download_name for file in files)


def _reason(error: Exception) -> str:
    """Why a mirror failed: an error of requests carries the response, or None if there was none."""
    answered = getattr(error, "response", error) is not None
    return str(error) if answered else "no answer, or an incomplete one"
