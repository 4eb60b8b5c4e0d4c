"""The parts of shards in a folder."""

import pytest

from whatwhere.data.parts import find_parts
from whatwhere.errors import ImageError


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
    with pytest.raises(ImageError, match="of 2 and of 3 parts"):
        find_parts(tmp_path)
