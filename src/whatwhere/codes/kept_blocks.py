"""The unfinished work of `encode`, in a folder next to its output: complete blocks of codes, and
the first batches of the current block."""

import io
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np

from whatwhere.codes.files import block_name, write_block
from whatwhere.codes.small_codes import CodeRows
from whatwhere.data.parts import text_checksum
from whatwhere.errors import RunError, plural, printable, warn
from whatwhere.files import (
    FileStamp,
    disk_errors,
    locked,
    open_atomic,
    readable,
    remove_leftovers,
    untrusted,
    write_atomic,
)

REMEDY = "free some disk space, then run the command again"
Array = np.ndarray
_LONGEST_NAME = 80  # bytes of a name that the folder takes over


class KeptBlocks:
    """The folder with the finished parts of a file of codes.

    Parameters
    ----------
    out
        the file
    identity
        what the work of a stopped command must have in common with this one
    """

    def __init__(self, out: Path, identity: str) -> None:
        self.out = out
        self.folder = out.with_name(f".{_short(out.name)}.blocks")
        self.identity = identity

    @property
    def about(self) -> Path:
        """The file that records what the blocks were made for."""
        return self.folder / "made_for"

    @property
    def continues(self) -> bool:
        """Whether a stopped command left work of the same identity."""
        return self.about.is_file() and self.about.read_bytes() == self.identity.encode()

    def block(self, number: int) -> Path:
        """Return the file of a complete block."""
        return self.folder / block_name(number)

    def has_block(self, number: int) -> bool:
        """Tell whether a block is complete, and not damaged."""
        return _is_whole(self.block(number))

    def write_block(self, number: int, arrays: Mapping[str, Array], *, compress: bool) -> None:
        """Store a complete block in place of its first batches."""
        file = self.block(number)
        with disk_errors(f"writing {file}", REMEDY), open_atomic(file) as out:
            write_block(out, arrays, compress=compress)
        for begun in self._begun(number):
            begun.unlink()

    def batches(self, number: int) -> list[CodeRows]:
        """Return the first batches of a block that is not complete."""
        batches: list[CodeRows] = []
        for file in self._begun(number):
            if not _is_whole(file):
                break  # its batches, and those after it, are computed again
            with np.load(file, allow_pickle=False) as archive:
                for batch in range(int(archive["batches"])):
                    prefix = f"{batch}/"
                    names = [name for name in archive.files if name.startswith(prefix)]
                    arrays = {name.removeprefix(prefix): archive[name] for name in names}
                    batches.append(CodeRows.of_stored(arrays))
        return batches

    def keep_batches(self, number: int, first: int, batches: Sequence[CodeRows]) -> None:
        """Store some batches of a block; `first` is the number of the first of them.

        The file name has this number, so that batches that are stored twice, after a signal, count
        once.
        """
        if not batches:
            return
        arrays = {"batches": np.array(len(batches))}
        for batch, rows in enumerate(batches):
            arrays |= {f"{batch}/{name}": values for name, values in rows.stored().items()}
        content = io.BytesIO()
        np.savez(content, **arrays)  # type: ignore[arg-type]
        file = self.folder / f"begun{number:07}-{first:07}.npz"
        with disk_errors(f"writing {file}", REMEDY):
            write_atomic(file, content.getvalue())

    def _begun(self, number: int) -> list[Path]:
        """Return the files of the first batches of a block, in their order."""
        return sorted(self.folder.glob(f"begun{number:07}-*.npz"))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Open the folder for this process alone, and remove the work of other commands from it.
        Remove the folder when the work is done, or if the work stops before it stores anything."""
        self.folder.mkdir(exist_ok=True)
        busy = (
            f"Another process is writing {printable(self.out)}. Wait for it, or stop it. (To encode"
            " in several processes, give each of them another part: --shard I/N.)"
        )
        with locked(self.folder, busy):
            if not self.continues:
                for file in self.folder.iterdir():
                    file.unlink()
                write_atomic(self.about, self.identity.encode())
            remove_leftovers(self.folder)
            self._remove_damaged()
            try:
                yield
            except BaseException:
                if not list(self.folder.glob("*.npz")):
                    shutil.rmtree(self.folder, ignore_errors=True)
                raise
            shutil.rmtree(self.folder, ignore_errors=True)

    def _remove_damaged(self) -> None:
        """Remove damaged work, and the batches of a block that come after damaged ones."""
        damaged = 0
        of_block = ""
        for file in sorted(self.folder.glob("*.npz")):
            if not _is_whole(file):
                damaged += 1
                of_block = file.name.partition("-")[0]
            elif file.name.partition("-")[0] != of_block:
                continue
            file.unlink()
        if damaged:
            warn(
                f"{plural(damaged, 'file')} of unfinished work in {printable(self.folder)}"
                f" {'is' if damaged == 1 else 'are'} damaged. The images in"
                f" {'it' if damaged == 1 else 'them'} are encoded again."
            )


def _short(name: str) -> str:
    """Shorten the name of a file, so that it can be a part of another one; different names stay
    different."""
    if len(os.fsencode(name)) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME // 4]}-{text_checksum(name)[:16]}"


def _is_whole(file: Path) -> bool:
    """Tell whether a file is an archive of NumPy whose checksums match its content."""
    return file.is_file() and _matches_checksums(file, FileStamp.of(file.stat()))


@cache
def _matches_checksums(file: Path, stamp: FileStamp) -> bool:
    """Tell whether the checksums in an archive match its content; read once for each state of the
    file."""
    try:
        with (
            readable(file, "block of codes", REMEDY),
            untrusted(),
            zipfile.ZipFile(file) as archive,
        ):
            return archive.testzip() is None
    except RunError:
        return False


def check_name(out: Path) -> None:
    """Raise an OSError before any work if the name of a file is too long."""
    with suppress(FileNotFoundError):
        out.lstat()
