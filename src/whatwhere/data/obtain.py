"""Getting a named set into the cache: from a folder a person has, or from a mirror."""

import io
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from whatwhere.data.cache import State, folder_of, keep, verify
from whatwhere.data.catalogue import Entry, File
from whatwhere.errors import ImageError, MissingExtra

TIMEOUT = 30
"""Seconds without an answer after which a mirror is given up."""


class Progress(Protocol):
    """What shows a download: pooch sets `total` (bytes) and calls the rest."""

    total: int

    def update(self, size: int) -> None: ...
    def reset(self) -> None: ...
    def close(self) -> None: ...


def obtain(entry: Entry, source: Path | None = None, progress: Callable[[File], Progress] | None = None) -> None:
    """Bring every file of a set into its folder that is not there yet, from `source` alone if it is given."""
    if source is not None and not source.is_dir():
        raise ImageError(f"{source}: not a folder; name one that holds {_names(entry.files)}")
    wanted = [file for file in entry.files if verify(entry, file) is not State.VERIFIED]
    if entry.embedded and wanted:
        raise ImageError(f"{entry.name}: {_names(wanted)} damaged or missing; install whatwhere again")
    at_hand = {file: path for file in wanted if (path := _at_hand(entry, file, source))}
    if source and len(at_hand) < len(wanted):
        absent = [file for file in wanted if file not in at_hand]
        raise ImageError(f"{source}: does not hold {_names(absent)}")
    for file in wanted:
        if file in at_hand:
            keep(entry, file, at_hand[file])
        else:
            _download(entry, file, progress)


def _at_hand(entry: Entry, file: File, source: Path | None) -> Path | None:
    """The file in the source, unpacked or packed; without a source, a packed copy in the set's own folder."""
    folder = source or folder_of(entry)
    names = {file.name, file.download_name} if source else {file.download_name} - {file.name}
    return next((folder / name for name in sorted(names) if (folder / name).is_file()), None)


def _download(entry: Entry, file: File, progress: Callable[[File], Progress] | None) -> None:
    """Fetch a file from the first mirror that serves it whole."""
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
                with _Limited(fetched, file.size) as stream:
                    pooch.HTTPDownloader(progressbar=bar, timeout=TIMEOUT)(mirror + file.download_name, stream, None)
                keep(entry, file, fetched)
                return
            except (OSError, ImageError) as error:  # requests' errors are OSErrors
                failures.append(f"  {mirror + file.download_name}: {_reason(error)}")
    raise ImageError(
        f"{entry.name}: {file.download_name} could not be downloaded:\n" + "\n".join(failures) + "\n"
        f"Without a network, put {_names(entry.files)} into {folder_of(entry)} and run "
        f"`whatwhere data get {entry.name}` again"
    )


class _Limited(io.FileIO):
    """A file that refuses to grow beyond what a packed copy of `size` bytes can need."""

    def __init__(self, path: Path, size: int) -> None:
        super().__init__(path, "w")
        self.limit = size + size // 1000 + 4096

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.limit:
            raise ImageError(f"more than {self.limit:,} bytes arrived")
        return super().write(data)


def _names(files: Iterable[File]) -> str:
    return ", ".join(file.download_name for file in files)


def _reason(error: Exception) -> str:
    """Why a mirror failed, briefly: an error of requests carries the response, or None where there was none."""
    answered = getattr(error, "response", error) is not None
    return str(error) if answered else "no answer, or one that broke off"
