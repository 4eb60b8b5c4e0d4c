"""The parts of shards in a folder."""

import numpy as np
import pytest

from raising import Containing, raises
from whatwhere.data.images import AllPictures
from whatwhere.data.parts import (
    OtherShards,
    PartMissing,
    PartRecord,
    PartsDiffer,
    begin_part,
    check_part_of,
    end_part,
    find_parts,
)
from whatwhere.errors import NoSuchImages, UnknownFormat, UnusableFile
from whatwhere.spec.execution import Shard


def test_parts_come_in_order_and_a_missing_one_is_named(tmp_path):
    for number in (3, 1):
        (tmp_path / f"part-0000{number}-of-00003").mkdir()
    with raises(PartMissing, shard=Shard(2, 3), begun=False):
        find_parts(tmp_path)
    (tmp_path / "part-00002-of-00003").mkdir()
    assert [path.name[:10] for path in find_parts(tmp_path)] == [
        "part-00001",
        "part-00002",
        "part-00003",
    ]


def test_parts_of_two_commands_and_an_empty_folder_raise(tmp_path):
    with raises(NoSuchImages, path=str(tmp_path)):
        find_parts(tmp_path)
    (tmp_path / "part-00001-of-00002.npz").touch()
    (tmp_path / "part-00001-of-00003.npz").touch()
    with raises(OtherShards, counts=(2, 3)):
        find_parts(tmp_path)


def test_a_part_of_another_number_of_shards_is_an_error_before_any_work(tmp_path):
    (tmp_path / "part-00001-of-00003.npz").touch()
    check_part_of(tmp_path, Shard(2, 3))
    check_part_of(tmp_path / "new", Shard(1, 2))
    with raises(OtherShards, counts=(3, 2)):
        check_part_of(tmp_path, Shard(2, 2, "SLURM_ARRAY_TASK_ID"))
    with raises(OtherShards, counts=(3, 1)):
        check_part_of(tmp_path, Shard())


NAMES = ["a.png", "b.png"]
RECORD = PartRecord("model", "settings", AllPictures.of(2, NAMES))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (PartRecord("model", "settings", AllPictures.of(3, [*NAMES, "c.png"])), ["2 and 3"]),
        (
            PartRecord("model", "settings", AllPictures.of(2, ["a.png", "c.png"])),
            ["2 ", "other names"],
        ),
        (PartRecord("other", "settings", RECORD.all_pictures), ["another model"]),
        (PartRecord("model", "others", RECORD.all_pictures), ["other settings"]),
        (PartRecord("", "others", RECORD.all_pictures), ["another model or other settings"]),
    ],
)
def test_parts_of_other_pictures_or_settings_raise(tmp_path, other, words):
    """As folders, and as files; for the next part, and where all are read."""
    first, second, third = (Shard(number, 3) for number in (1, 2, 3))
    begin_part(first.part_of(tmp_path), first, RECORD)
    end_part(first.part_of(tmp_path), first)
    begin_part(second.part_of(tmp_path), second, RECORD)
    end_part(second.part_of(tmp_path), second)
    with raises(PartsDiffer, difference=Containing(*words)):
        begin_part(third.part_of(tmp_path), third, other)
    assert not third.part_of(tmp_path).exists()
    begin_part(third.part_of(tmp_path), third, other, overwrite=True)
    end_part(third.part_of(tmp_path), third)
    with raises(PartsDiffer, difference=Containing(*words)):
        find_parts(tmp_path)
    files = tmp_path / "files"
    files.mkdir()
    np.savez(files / "part-00001-of-00002.npz", **RECORD.arrays())
    np.savez(files / "part-00002-of-00002.npz", **other.arrays())
    with raises(PartsDiffer, difference=Containing(*words)):
        find_parts(files)


def test_parts_without_a_record_are_not_compared(tmp_path):
    (tmp_path / "part-00001-of-00002").mkdir()
    shard = Shard(2, 2)
    begin_part(shard.part_of(tmp_path), shard, RECORD)
    end_part(shard.part_of(tmp_path), shard)
    assert len(find_parts(tmp_path)) == 2


def test_a_record_of_another_format_is_reported(tmp_path):
    shard = Shard(1, 2)
    part = shard.part_of(tmp_path)
    begin_part(part, shard, RECORD)
    end_part(part, shard)
    record = part / ".part.json"
    record.write_text(record.read_text().replace("whatwhere part 1", "whatwhere part 2"))
    other = tmp_path / "files"
    other.mkdir()
    arrays = RECORD.arrays() | {"record": np.array("whatwhere part 2")}
    np.savez(other / "part-00001-of-00002.npz", **arrays)
    for folder in (tmp_path, other):
        with pytest.raises(UnusableFile) as caught:
            begin_part(Shard(2, 2).part_of(folder), Shard(2, 2), RECORD)
        assert isinstance(caught.value.__cause__, UnknownFormat)
        assert caught.value.__cause__.given == "whatwhere part 2"
    begin_part(part, shard, RECORD, overwrite=True)
    assert "whatwhere part 1" in record.read_text()
