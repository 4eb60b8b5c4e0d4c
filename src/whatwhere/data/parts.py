"""The parts that the shards of a command write into one folder, and which of them are missing."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whatwhere.data.arrays import open_npz
from whatwhere.data.images import AllPictures
from whatwhere.errors import ImageError, NoSuchImages, plural, printable
from whatwhere.files import (
    check_format,
    checked,
    disk_errors,
    json_fields,
    readable,
    remove_leftovers,
    write_json,
)
from whatwhere.spec.execution import Shard, part_number

UNFINISHED = ".unfinished"
"""The file in a part that is a folder while its shard is working, or after it was killed."""

_PART_RECORD = ".part.json"
"""The file in a part that is a folder with its `PartRecord`."""

_RECORD_FORMAT = "whatwhere part 1"
_RECORD_ARRAYS = frozenset({"record", "made_with", "model", "all_pictures", "all_names"})

REMEDY = "free some disk space, or choose another folder"
_MAKE_AGAIN = "make the part again, with --overwrite"


@dataclass(frozen=True)
class PartRecord:
    """What a part was made from. All parts of one command have it in common.

    An empty text or None is not known.

    Parameters
    ----------
    model
        a checksum of the model
    settings
        a checksum of the settings, or of settings and model
    all_pictures
        the pictures of all parts
    """

    model: str = ""
    settings: str = ""
    all_pictures: AllPictures | None = None

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "PartRecord":
        """Read the record in an .npz file; empty if it has none."""
        if "record" not in arrays:
            return UNKNOWN
        check_format(str(arrays["record"]), _RECORD_FORMAT)
        pictures = None
        if "all_pictures" in arrays:
            pictures = AllPictures(int(arrays["all_pictures"]), str(arrays["all_names"]))
        return cls(str(arrays.get("model", "")), str(arrays.get("made_with", "")), pictures)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the record as arrays for an .npz file; what is not known is left out."""
        arrays = {
            "record": np.array(_RECORD_FORMAT),
            "made_with": np.array(self.settings),
            "model": np.array(self.model),
        }
        if self.all_pictures is not None:
            arrays["all_pictures"] = np.array(self.all_pictures.count)
            arrays["all_names"] = np.array(self.all_pictures.names)
        return arrays

    @classmethod
    def read(cls, file: Path) -> "PartRecord":
        """Read the record in the folder of a part."""
        with json_fields(file, _RECORD_FORMAT, "record of a part", _MAKE_AGAIN) as known:
            count = checked(known["all_pictures"], int, "all_pictures")
            pictures = AllPictures(count, str(known["all_names"]))
            return cls(str(known["model"]), str(known["made_with"]), pictures)

    def write(self, file: Path) -> None:
        """Write the record into the folder of a part."""
        arrays = {name: array.item() for name, array in self.arrays().items()}
        write_json(file, arrays.pop("record"), arrays)

    def other_pictures(self, earlier: "PartRecord") -> str:
        """Return how the pictures differ from the pictures of an earlier record, in words; empty if
        they do not."""
        ours = self.all_pictures
        theirs = earlier.all_pictures
        if ours is None or theirs is None or ours == theirs:
            return ""
        if ours.count == theirs.count:
            return f"{plural(ours.count, 'picture')} in both, but with other names"
        return f"{theirs.count:,} and {ours.count:,}"

    def other_source(self, earlier: "PartRecord") -> str:
        """Tell whether the model or the settings differ from an earlier record, in words;
        empty if they do not."""
        models_known = bool(self.model and earlier.model)
        if models_known and self.model != earlier.model:
            return "another model"
        if not self.settings or not earlier.settings or self.settings == earlier.settings:
            return ""
        return "other settings" if models_known else "another model or other settings"


UNKNOWN = PartRecord()


def text_checksum(text: str) -> str:
    """Return sha256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def read_record(part: Path) -> PartRecord:
    """Read the record of a part. It is empty if the part has none, or if an .npz file cannot be
    read, which is an error where it is used; a record of another format raises an error."""
    if part.is_dir():
        file = part / _PART_RECORD
        return PartRecord.read(file) if file.exists() else UNKNOWN
    try:
        with open_npz(part) as archive:
            names = [name for name in archive.files if name in _RECORD_ARRAYS]
            arrays = {name: archive[name] for name in names}
    except (ImageError, OSError):
        return UNKNOWN
    with readable(part, "part", _MAKE_AGAIN, ImageError):
        return PartRecord.of_arrays(arrays)


def find_parts(folder: str | os.PathLike[str]) -> list[Path]:
    """Find the parts (files or folders) that commands with `--shard` wrote into a folder, in their
    order.

    If a part is missing or unfinished, an error names it and the command that makes it. Parts that
    were made from other pictures, with another model or with other settings also raise an error.

    Parameters
    ----------
    folder
        the folder that the commands got with --out

    Examples
    --------
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
        remedy = "Give the --out folder of a command with --shard."
        raise NoSuchImages("parts in", printable(place), remedy=remedy)
    if len(counts) > 1:
        raise OtherShards(
            counts,
            f"{printable(place)} mixes the parts of two runs, one with {counts[0]} and one with"
            f" {counts[1]} shards. Remove the parts of one run.",
        )
    count = counts[0]
    begun = {shard.index for path, shard in shards.items() if (path / UNFINISHED).exists()}
    finished = {shard.index for shard in shards.values()} - begun
    missing = sorted(set(range(1, count + 1)) - finished)
    if missing:
        first = missing[0]
        state = "unfinished" if first in begun else "missing"
        more = f" (and {len(missing) - 1:,} more)" if len(missing) > 1 else ""
        raise PartMissing(
            Shard(first, count),
            first in begun,
            f"{printable(place)}: part {first} of {count} is {state}{more}. Run the command again"
            f" with --shard {first}/{count}.",
        )
    parts = sorted(shards)
    _check_same_source(place, parts)
    return parts


class OtherShards(ImageError):
    """Parts of runs with different numbers of shards in one folder.

    Attributes
    ----------
    counts
        the numbers of shards
    """

    def __init__(self, counts: list[int], message: str) -> None:
        self.counts = tuple(counts)
        super().__init__(message)


class PartMissing(ImageError):
    """A part that was never made, or not to its end.

    Attributes
    ----------
    shard
        the part
    begun
        whether it was begun
    """

    def __init__(self, shard: Shard, begun: bool, message: str) -> None:
        self.shard = shard
        self.begun = begun
        super().__init__(message)


class PartsDiffer(ImageError):
    """Parts that were made from other pictures, with another model or with other settings.

    Attributes
    ----------
    difference
        how they differ, as a clause
    """

    def __init__(self, difference: str, message: str) -> None:
        self.difference = difference
        super().__init__(message)


def _check_same_source(folder: Path, parts: list[Path]) -> None:
    """Raise an ImageError if a part was made from other pictures, with another model or with other
    settings than the first part."""
    count = len(parts)
    first = read_record(parts[0])
    for number, part in enumerate(parts[1:], 2):
        record = read_record(part)
        if words := record.other_pictures(first):
            raise PartsDiffer(
                words,
                f"{printable(folder)}: the pictures changed between part 1 and part {number}:"
                f" {words}. Run the command again for all parts, with --overwrite or with another"
                " folder.",
            )
        if words := record.other_source(first):
            raise PartsDiffer(
                words,
                f"{printable(folder)}: part {number} of {count} was made with {words} than part 1."
                f" Make one of them again, with --overwrite and --shard {number}/{count} or"
                f" 1/{count}.",
            )


def check_next_part(folder: Path, shard: Shard, record: PartRecord, hint: str = "") -> None:
    """Raise an ImageError, before any work, if the first part in the folder, or an earlier version
    of this part, was made from other pictures, with another model or with other settings.

    The other parts are compared when all are read: if every task opened every part, thousands of
    tasks would open millions of files.

    Parameters
    ----------
    hint
        a sentence about other settings
    """
    if shard.is_all:
        return
    parts = sorted(folder.glob("part-*-of-*"))
    own = [part for part in parts if part_number(part).index == shard.index]
    for part in [*parts[:1], *own]:
        earlier = read_record(part)
        name = printable(part.name)
        if words := record.other_pictures(earlier):
            raise PartsDiffer(
                words,
                f"{printable(folder)}: the pictures changed after {name} was made: {words}. Run"
                " the command again for all parts, with --overwrite or with another folder.",
            )
        if words := record.other_source(earlier):
            raise PartsDiffer(
                words,
                f"{printable(folder)}: {name} was made with {words}. Give the same as for that"
                f" part, or make all parts again with --overwrite.{hint}",
            )


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
        raise OtherShards(
            [count, shard.count],
            f"{printable(folder)} has parts of {count} shards, but this command would write"
            f" {work}{origin}. To repeat one of them, give --shard I/{count}. Otherwise, choose"
            " another folder.",
        )


def begin_part(folder: Path, shard: Shard, record: PartRecord, *, overwrite: bool = False) -> None:
    """Mark the folder of a shard's part as unfinished until `end_part`, even if the process is
    killed, record what the part is made from, and remove what a killed process left half written.
    Mark and record are not needed if there is only one part.

    Parameters
    ----------
    overwrite
        other parts may be of other pictures or settings, because they are made again
    """
    if shard.is_all:
        return
    if not overwrite:
        check_next_part(folder.parent, shard, record)
    with disk_errors(f"writing {folder}", REMEDY):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / UNFINISHED).touch()
        remove_leftovers(folder)
        record.write(folder / _PART_RECORD)


def end_part(folder: Path, shard: Shard) -> None:
    """Record that all results of a part are in its folder."""
    if not shard.is_all:
        (folder / UNFINISHED).unlink(missing_ok=True)
