"""The cache: a file is stored complete and verified, or not at all."""

import hashlib
import os
from pathlib import Path

import pytest

from whatwhere.data.cache import FileStatus, add, cache_folder, folder_of, missing_files, verified_path, verify
from whatwhere.data.catalogue import Entry, File
from whatwhere.errors import ImageError

CONTENT = bytes(range(256)) * 4000


def made(compressed: bool, content: bytes) -> Entry:
    """A data set of one file four times over."""
    file = File("file.gz" if compressed else "file", hashlib.sha256(content).hexdigest(), len(content))
    return Entry("set", "A set", (file,) * 4, {"licence": "a licence"})


@pytest.fixture(autouse=True)
def cache_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


def cached_files() -> list[str]:
    return sorted(str(path.relative_to(cache_folder())) for path in cache_folder().rglob("*") if path.is_file())


def test_compressed_and_plain_sources_are_stored_decompressed(source: Path, save_gzip) -> None:
    entry = made(False, CONTENT)
    for write in (lambda: source.write_bytes(CONTENT), lambda: save_gzip(source, CONTENT)):
        write()
        add(entry, entry.files[0], source)
        assert (folder_of(entry) / "file").read_bytes() == CONTENT
        assert verify(entry, entry.files[0]) is FileStatus.VERIFIED
        assert missing_files(entry) == []
        assert cached_files() == ["set/file"]
        (folder_of(entry) / "file").unlink()


def test_a_file_known_compressed_is_stored_compressed(source: Path, save_gzip) -> None:
    compressed = save_gzip(source, CONTENT).read_bytes()
    entry = made(True, compressed)
    add(entry, entry.files[0], source)
    assert (folder_of(entry) / "file.gz").read_bytes() == compressed
    source.write_bytes(CONTENT)
    with pytest.raises(ImageError, match=r"not file\.gz of set"):
        add(entry, entry.files[0], source)


@pytest.mark.parametrize("bad", [CONTENT[:-1], CONTENT[:-1] + b"!", CONTENT + b"!", b"", CONTENT * 20])
@pytest.mark.parametrize("already", [True, False])
def test_a_wrong_source_leaves_the_cache_as_it_was(source: Path, bad: bytes, already: bool, save_gzip) -> None:
    entry = made(False, CONTENT)
    if already:
        source.write_bytes(CONTENT)
        add(entry, entry.files[0], source)
    reason = "it has more" if len(bad) > len(CONTENT) else "or damaged"
    for write in (lambda: source.write_bytes(bad), lambda: save_gzip(source, bad)):
        write()
        with pytest.raises(ImageError, match=f"not file of set.* {reason}"):
            add(entry, entry.files[0], source)
        assert cached_files() == (["set/file"] if already else [])
        assert verify(entry, entry.files[0]) is (FileStatus.VERIFIED if already else FileStatus.MISSING)


def test_a_copy_that_breaks_off_leaves_nothing(source: Path, save_gzip) -> None:
    entry = made(False, CONTENT)
    compressed = save_gzip(source, os.urandom(1 << 20)).read_bytes()
    source.write_bytes(compressed[: len(compressed) // 2])
    with pytest.raises(ImageError):
        add(entry, entry.files[0], source)
    assert cached_files() == []


def test_a_file_gets_its_final_name_only_when_it_is_complete(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = made(False, CONTENT)
    source.write_bytes(CONTENT)
    seen = []
    replace = os.replace

    def watched(partial: Path, final: Path) -> None:
        seen.append((Path(final).exists(), Path(partial).read_bytes() == CONTENT))
        replace(partial, final)

    monkeypatch.setattr(os, "replace", watched)
    add(entry, entry.files[0], source)
    assert seen == [(False, True)]


def test_damage_is_detected(source: Path) -> None:
    entry = made(False, CONTENT)
    source.write_bytes(CONTENT)
    add(entry, entry.files[0], source)
    path = folder_of(entry) / "file"
    path.write_bytes(CONTENT[:-1] + b"!")
    assert verify(entry, entry.files[0]) is FileStatus.DAMAGED
    path.write_bytes(CONTENT[:-1])
    assert verify(entry, entry.files[0]) is FileStatus.DAMAGED
    assert missing_files(entry)


def test_a_folder_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    source.write_bytes(CONTENT)
    entry = made(False, CONTENT)
    with pytest.raises(ImageError, match="set WHATWHERE_DATA to another folder"):
        add(entry, entry.files[0], source)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/whatwhere"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/whatwhere"),
        ("darwin", {}, "home/Library/Caches/whatwhere"),
        ("win32", {}, "home/AppData/Local/whatwhere/Cache"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/whatwhere/Cache"),
        ("linux", {"WHATWHERE_DATA": "mine"}, "mine"),
        ("win32", {"WHATWHERE_DATA": "~/mine"}, "home/mine"),
    ],
)
def test_the_default_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("WHATWHERE_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == Path(expected)


def test_the_checksum_is_compared_at_the_first_use_and_after_a_change(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = made(False, CONTENT)
    source.write_bytes(CONTENT)
    add(entry, entry.files[0], source)
    path = verified_path(entry, entry.files[0])
    assert path.read_bytes() == CONTENT
    with monkeypatch.context() as patch:
        patch.setattr("whatwhere.data.cache.verify", lambda *_: pytest.fail("verified twice in one process"))
        assert verified_path(entry, entry.files[0]) == path
    path.write_bytes(CONTENT[:-1] + b"!")  # the same size
    with pytest.raises(ImageError, match=r"damaged: its checksum is wrong; run `whatwhere info set --download`"):
        verified_path(entry, entry.files[0])
