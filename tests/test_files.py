"""Atomic writes: the old content or the new one, nothing left behind, no planted link followed."""

import errno
import os
from pathlib import Path

import pytest

from whatwhere.errors import RunError
from whatwhere.files import disk_errors, new_folder, open_atomic, remove_leftovers, reserve, write_atomic


def fail_with_full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, step, fail_with_full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path) -> None:
    def interrupt() -> None:
        with open_atomic(tmp_path / "file") as file:
            file.write(b"some")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert os.listdir(tmp_path) == []


def test_the_content_is_on_the_disk_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), replace(*paths)))
    write_atomic(tmp_path / "file", b"content")
    assert calls == ["fsync", "rename", "fsync"]  # the content, the name, the folder


def test_planted_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a link under the very name that the temporary file gets is not written through."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file.part").symlink_to(victim)
    write_atomic(folder / "file", b"new")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * 2 * size)
    (folder / f".file-{'0' * 16}.part").symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomic(folder / "file", b"newer")
    assert victim.read_bytes() == b"precious"
    assert (folder / "file").read_bytes() == b"new"


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)  # 254 bytes
    write_atomic(path, b"content")
    assert path.read_bytes() == b"content"


def test_leftovers_of_killed_processes_are_removed_and_other_files_are_not(tmp_path: Path) -> None:
    names = [".state-0123456789abcdef.part", "state", ".state-0123.part", "mine.part", ".hidden"]
    for name in names:
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(names[1:])


def test_a_folder_created_for_nothing_is_removed(tmp_path: Path) -> None:
    def fail_in(folder: Path, *, after_writing: bool = False) -> None:
        with new_folder(folder):
            assert folder.is_dir()
            if after_writing:
                (folder / "result").touch()
            raise ValueError("work failed")

    (tmp_path / "old").mkdir()
    with pytest.raises(ValueError, match="work failed"):
        fail_in(tmp_path / "old" / "new" / "newer")
    assert os.listdir(tmp_path) == ["old"]
    assert os.listdir(tmp_path / "old") == []
    with pytest.raises(ValueError, match="work failed"):
        fail_in(tmp_path / "used", after_writing=True)
    assert os.listdir(tmp_path / "used") == ["result"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs posix_fallocate")
def test_space_is_reserved_or_the_disk_is_full(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        reserve(file, 1 << 20)
        assert os.fstat(file.fileno()).st_blocks * 512 >= 1 << 20
        with pytest.raises(OSError, match=r"[Nn]o space|too large"):
            reserve(file, 1 << 60)


def test_a_disk_error_is_reported_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fail_with_full_disk)
    with (
        pytest.raises(RunError, match=r"saving failed: No space left on device; make room"),
        disk_errors("saving", "make room"),
    ):
        write_atomic(tmp_path / "file", b"content")
