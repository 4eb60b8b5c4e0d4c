"""Only regular files are opened, and nothing else is waited for."""

import os
from pathlib import Path

import pytest

from whatwhere.files import is_regular, open_regular, read_regular


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"
    assert read_regular(tmp_path / "file", 7) == b"content"
    with pytest.raises(OSError, match="more than 6 bytes"):
        read_regular(tmp_path / "file", 6)
    assert is_regular(tmp_path / "link")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_a_device_and_a_folder_raise_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="A pipe, a socket or a device"):
            open_regular(path)
        assert not is_regular(path)
    with pytest.raises(OSError, match="A folder"):
        open_regular(tmp_path)


def test_impossible_names_are_not_regular_files() -> None:
    assert not is_regular(Path("x" * 300))
    assert not is_regular(Path("a\0b"))
    with pytest.raises(OSError, match="too long"):
        open_regular("x" * 300)
