"""The parts that the shards of a command write into one folder, and which of them is missing."""

import os
from pathlib import Path

from whatwhere.errors import ImageError, printable
from whatwhere.files import disk_errors, remove_leftovers
from whatwhere.spec.execution import Shard, part_number

UNFINISHED = ".unfinished"
"""In a part that is a folder: its shard is at work, or was killed."""


def find_parts(folder: str | os.PathLike[str]) -> list[Path]:
    """The parts in a folder that commands with `--shard` wrote, in their order: files or folders.

    A part that is missing or unfinished is an error that names it, and the command that makes it.

    folder  the folder that the commands got with --out

    >>> from pathlib import Path
    >>> for number in (1, 2):
    ...     Path(f"scores/part-0000{number}-of-00002").mkdir(parents=True)
    >>> [part.name for part in ww.data.find_parts("scores")]
    ['part-00001-of-00002', 'part-00002-of-00002']
    """
    place = Path(folder)
    shards: dict[Path, Shard] = {path: part_number(path) for path in place.glob("part-*-of-*")}
    counts = sorted({shard.count for shard in shards.values()})
    if not counts:
        raise ImageError(
            f"{printable(place)} has no parts. Give the --out folder of a command with --shard."
        )
    if len(counts) > 1:
        raise ImageError(
            f"{printable(place)} mixes the parts of two runs, one with {counts[0]} and one with"
            f" {counts[1]} shards. Remove the parts of one run."
        )
    count = counts[0]
    begun = {shard.index for path, shard in shards.items() if (path / UNFINISHED).exists()}
    finished = {shard.index for shard in shards.values()} - begun
    missing = sorted(set(range(1, count + 1)) - finished)
    if missing:
        first = missing[0]
        state = "unfinished" if first in begun else "missing"
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise ImageError(
            f"{printable(place)}: part {first} of {count} is {state}{more}. Run the command again"
            f" with --shard {first}/{count}."
        )
    return sorted(shards)


def check_part_of(folder: Path, shard: Shard) -> None:
    """Raise an ImageError if the folder has parts of another number of shards, as when Slurm
    repeats two tasks of an array as an array of two."""
    if not os.path.isdir(folder):
        return
    counts = {part_number(path).count for path in folder.glob("part-*-of-*")} - {shard.count}
    if counts:
        count = max(counts)
        work = "all pictures" if shard.is_all else f"part {shard.index} of {shard.count}"
        origin = f" ({shard.origin})" if shard.origin else ""
        raise ImageError(
            f"{printable(folder)} has parts of {count} shards, but this command would write"
            f" {work}{origin}. To repeat one of them, give --shard I/{count}. Otherwise, choose"
            " another folder."
        )


def begin_part(folder: Path, shard: Shard) -> None:
    """Mark the folder of a shard's part as unfinished until `end_part`, even if the process is
    killed, and remove what a killed process left half written. The only part of a command needs no
    mark."""
    if shard.is_all:
        return
    with disk_errors(f"writing {folder}", "free some disk space, or choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / UNFINISHED).touch()
        remove_leftovers(folder)


def end_part(folder: Path, shard: Shard) -> None:
    """All results of a part are in its folder."""
    if not shard.is_all:
        (folder / UNFINISHED).unlink(missing_ok=True)
