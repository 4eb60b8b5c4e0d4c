"""The parts that the shards of a command write into one folder, and which of them is missing."""

import os
from pathlib import Path

from whatwhere.errors import ImageError, printable
from whatwhere.spec.execution import Shard, part_number


def find_parts(folder: str | os.PathLike[str]) -> list[Path]:
    """The parts in a folder that commands with `--shard` wrote, in their order: files or folders.

    A part that is missing is an error that names it, and the command that makes it.

    folder  that was given to the commands with --out

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
            f"{printable(place)} has no parts; give the folder of a command with --shard"
        )
    if len(counts) > 1:
        raise ImageError(
            f"{printable(place)} has parts of {counts[0]} and of {counts[1]}; remove those of one"
        )
    count = counts[0]
    missing = sorted(set(range(1, count + 1)) - {shard.index for shard in shards.values()})
    if missing:
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise ImageError(
            f"{printable(place)}: part {missing[0]} of {count} is missing{more}; run the command"
            f" again with --shard {missing[0]}/{count}"
        )
    return sorted(shards)
