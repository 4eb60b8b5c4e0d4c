"""The parts of shards in a folder."""

import pytest

from whatwhere.data.parts import check_part_of, find_parts
from whatwhere.errors import ImageError
from whatwhere.spec.execution import Shard


def test_parts_come_in_order_and_a_missing_one_is_named(tmp_path):
    for number in (3, 1):
        (tmp_path / f"part-0000{number}-of-00003").mkdir()
    with pytest.raises(ImageError, match=r"part 2 of 3 is missing. .* --shard 2/3"):
        find_parts(tmp_path)
    (tmp_path / "part-00002-of-00003").mkdir()
    assert [path.name[:10] for path in find_parts(tmp_path)] == [
        "part-00001",
        "part-00002",
        "part-00003",
    ]


def test_parts_of_two_commands_and_an_empty_folder_raise(tmp_path):
    with pytest.raises(ImageError, match="has no parts"):
        find_parts(tmp_path)
    (tmp_path / "part-00001-of-00002.npz").touch()
    (tmp_path / "part-00001-of-00003.npz").touch()
    with pytest.raises(ImageError, match="one with 2 and one with 3 shards"):
        find_parts(tmp_path)


def test_a_part_of_another_number_of_shards_is_an_error_before_any_work(tmp_path):
    (tmp_path / "part-00001-of-00003.npz").touch()
    check_part_of(tmp_path, Shard(2, 3))
    check_part_of(tmp_path / "new", Shard(1, 2))
    with pytest.raises(ImageError, match=r"parts of 3 shards.* part 2 of 2 .*--shard I/3"):
        check_part_of(tmp_path, Shard(2, 2, "SLURM_ARRAY_TASK_ID"))
    with pytest.raises(ImageError, match="would write all pictures"):
        check_part_of(tmp_path, Shard())
