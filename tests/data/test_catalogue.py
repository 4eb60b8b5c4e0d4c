"""The cache: a file is stored complete and verified, or not at all."""

import gzip
import hashlib
import os
import re
import resource
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from data_files import Mirror, serving
from raising import Containing, raises
from whatwhere.data import catalogue, load
from whatwhere.data.arrays import read_array
from whatwhere.data.catalogue import (
    CATALOGUE,
    Entry,
    File,
    NotDownloaded,
    NotStored,
    WrongChecksum,
    cache_folder,
    download,
    find,
    folder_of,
    missing_files,
    store,
    verified_path,
    verify,
)
from whatwhere.data.images import CountsDiffer
from whatwhere.errors import ImageError, NoSuchImages, UnknownDataset

CONTENT = bytes(range(256)) * 4000


def made(compressed: bool, content: bytes) -> Entry:
    """A data set of one file four times over."""
    file = File(
        "file.gz" if compressed else "file", hashlib.sha256(content).hexdigest(), len(content)
    )
    return Entry("set", "A set", (file,) * 4, {"licence": "a licence"})


@pytest.fixture(autouse=True)
def cache_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "source"


def add(entry: Entry, file: File, source: Path) -> None:
    with source.open("rb") as stream:
        is_gzip = stream.peek(2)[:2] == b"\x1f\x8b"
        store(entry, file, stream, f"{source}.gz" if is_gzip else str(source))


def cached_files() -> list[str]:
    return sorted(
        str(path.relative_to(cache_folder()))
        for path in cache_folder().rglob("*")
        if path.is_file()
    )


def test_compressed_and_plain_sources_are_stored_decompressed(source: Path, save_gzip) -> None:
    entry = made(False, CONTENT)
    for write in (lambda: source.write_bytes(CONTENT), lambda: save_gzip(source, CONTENT)):
        write()
        add(entry, entry.files[0], source)
        assert (folder_of(entry) / "file").read_bytes() == CONTENT
        assert verify(entry, entry.files[0]) == "verified"
        assert missing_files(entry) == []
        assert cached_files() == ["set/file"]
        (folder_of(entry) / "file").unlink()


def test_a_file_known_compressed_is_stored_compressed(source: Path, save_gzip) -> None:
    compressed = save_gzip(source, CONTENT).read_bytes()
    entry = made(True, compressed)
    add(entry, entry.files[0], source)
    assert (folder_of(entry) / "file.gz").read_bytes() == compressed
    source.write_bytes(CONTENT)
    with raises(WrongChecksum, expected="file.gz of set"):
        add(entry, entry.files[0], source)


@pytest.mark.parametrize(
    "bad", [CONTENT[:-1], CONTENT[:-1] + b"!", CONTENT + b"!", b"", CONTENT * 20]
)
@pytest.mark.parametrize("already", [True, False])
def test_a_wrong_source_leaves_the_cache_as_it_was(
    source: Path, bad: bytes, already: bool, save_gzip
) -> None:
    entry = made(False, CONTENT)
    if already:
        source.write_bytes(CONTENT)
        add(entry, entry.files[0], source)
    for write in (lambda: source.write_bytes(bad), lambda: save_gzip(source, bad)):
        write()
        with raises(WrongChecksum, expected="file of set"):
            add(entry, entry.files[0], source)
        assert cached_files() == (["set/file"] if already else [])
        assert verify(entry, entry.files[0]) == ("verified" if already else "missing")


def test_a_copy_that_breaks_off_leaves_nothing(source: Path, save_gzip) -> None:
    entry = made(False, CONTENT)
    compressed = save_gzip(source, os.urandom(1 << 20)).read_bytes()
    source.write_bytes(compressed[: len(compressed) // 2])
    with pytest.raises(ImageError):
        add(entry, entry.files[0], source)
    assert cached_files() == []


def test_a_file_gets_its_final_name_only_when_it_is_complete(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert verify(entry, entry.files[0]) == "damaged"
    path.write_bytes(CONTENT[:-1])
    assert verify(entry, entry.files[0]) == "damaged"
    assert missing_files(entry)


def test_a_folder_that_cannot_be_written_is_named(source: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in the way")
    source.write_bytes(CONTENT)
    entry = made(False, CONTENT)
    with raises(NotStored, folder=folder_of(entry)):
        add(entry, entry.files[0], source)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, "home/.cache/whatwhere"),
        ("linux", {"XDG_CACHE_HOME": "xdg"}, "xdg/whatwhere"),
        ("darwin", {}, "home/Library/Caches/whatwhere"),
        ("linux", {"WHATWHERE_DATA": "mine"}, "mine"),
        ("darwin", {"WHATWHERE_DATA": "~/mine"}, "home/mine"),
    ],
)
def test_the_default_folder(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], expected: str
) -> None:
    for name in ("WHATWHERE_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "home")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder() == Path(expected)


def test_the_checksum_is_compared_at_every_use(source: Path) -> None:
    entry = made(False, CONTENT)
    source.write_bytes(CONTENT)
    add(entry, entry.files[0], source)
    path = verified_path(entry, entry.files[0])
    assert path.read_bytes() == CONTENT
    path.write_bytes(CONTENT[:-1] + b"!")  # the same size
    with raises(WrongChecksum, name=str(path)):
        verified_path(entry, entry.files[0])


NOWHERE = "http://127.0.0.1:9/"


@pytest.fixture
def contents() -> dict[str, bytes]:
    """The decompressed files of a small set."""
    numbers = np.random.default_rng(0)
    contents = {}
    for split, count in (("train", 6), ("test", 3)):
        for kind, shape in (("images", (count, 4, 4)), ("labels", (count,))):
            values = numbers.integers(0, 256, shape, np.uint8)
            contents[f"{split}-{kind}"] = (
                bytes([0, 0, 8, len(shape)]) + np.array(shape, ">i4").tobytes() + values.tobytes()
            )
    return contents


@pytest.fixture
def mirror(contents: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving(
        {f"{name}.gz": gzip.compress(content) for name, content in contents.items()}
    ) as server:
        yield server


@pytest.fixture
def entry(
    contents: dict[str, bytes], mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Entry:
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    files = tuple(File(name, hashlib.sha256(c).hexdigest(), len(c)) for name, c in contents.items())
    entry = Entry("small", "A small set", files, {"licence": "a licence"}, (mirror.address,))
    monkeypatch.setitem(catalogue.CATALOGUE, "small", entry)
    return entry


def cached(entry: Entry) -> list[str]:
    folder = catalogue.folder_of(entry)
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_a_download_is_verified_stored_and_loaded(
    entry: Entry, mirror: Mirror, contents: dict[str, bytes]
) -> None:
    with raises(NoSuchImages, remedy=Containing("`whatwhere download small`")):
        load("small")
    download(entry)
    assert {
        name: (catalogue.folder_of(entry) / name).read_bytes() for name in cached(entry)
    } == contents
    assert (len(load("small")), len(load("small", split="test"))) == (6, 3)
    download(entry)
    assert len(mirror.asked) == 4, "a file that is there already is not downloaded again"
    (catalogue.folder_of(entry) / "test-labels").write_bytes(bytes(11))
    download(entry)
    assert mirror.asked[4:] == ["test-labels.gz"], "only the damaged file is downloaded again"


def test_progress_is_reported(entry: Entry) -> None:
    files: list[int] = []
    download(entry, progress=files.append)
    assert files == [1, 1, 1, 1]


def test_the_next_mirror_is_used_if_one_fails(entry: Entry) -> None:
    download(replace(entry, mirrors=(NOWHERE, *entry.mirrors)))
    assert len(cached(entry)) == 4


def test_a_file_stored_compressed_is_downloaded_as_it_is(entry: Entry, mirror: Mirror) -> None:
    def compressed(file: File) -> File:
        content = mirror.answers[f"{file.name}.gz"]
        return File(f"{file.name}.gz", hashlib.sha256(content).hexdigest(), len(content))

    entry = replace(entry, files=tuple(map(compressed, entry.files)))
    download(entry)
    assert {
        name: (catalogue.folder_of(entry) / name).read_bytes() for name in cached(entry)
    } == mirror.answers


def test_without_a_network_the_files_and_the_folder_are_named(entry: Entry) -> None:
    entry = replace(entry, mirrors=(NOWHERE, "http://localhost:9/"))
    with pytest.raises(ImageError) as caught:
        download(entry)
    message = str(caught.value)
    assert all(file.download_name in message for file in entry.files)
    assert "whatwhere download small --from FOLDER" in message
    assert cached(entry) == []


@pytest.mark.parametrize("answer", ["cut", "other", "endless", "absent"])
def test_a_mirror_with_other_content_is_rejected(entry: Entry, mirror: Mirror, answer: str) -> None:
    right = mirror.answers.pop("train-images.gz")
    wrong = {"cut": right[:-5], "other": gzip.compress(b"other"), "endless": bytes(1 << 20)}
    if answer in wrong:
        mirror.answers["train-images.gz"] = wrong[answer]
    with raises(NotDownloaded, name="train-images.gz"):
        download(entry)
    assert cached(entry) == []


@pytest.mark.parametrize("compressed", [True, False])
def test_from_a_folder(
    entry: Entry, mirror: Mirror, contents: dict[str, bytes], compressed: bool, tmp_path: Path
) -> None:
    source = tmp_path / "mine"
    source.mkdir()
    for name, content in (mirror.answers if compressed else contents).items():
        (source / name).write_bytes(content)
    download(entry, source)
    assert len(load("small", split="test")) == 3
    assert mirror.asked == []


def test_from_a_folder_without_the_data_set(
    entry: Entry, contents: dict[str, bytes], tmp_path: Path
) -> None:
    with raises(NoSuchImages, kind="train-images.gz in", path=str(tmp_path / "nowhere")):
        download(entry, tmp_path / "nowhere")
    (tmp_path / "train-images").write_bytes(contents["train-images"])
    with raises(NoSuchImages, kind="train-labels.gz in", path=str(tmp_path)):
        download(entry, tmp_path)
    for name in contents:
        (tmp_path / name).write_bytes(contents["train-images"])
    with raises(WrongChecksum, expected="train-labels of small"):
        download(entry, tmp_path)
    assert "train-labels" not in cached(entry)


def test_images_and_labels_that_do_not_match_raise(entry: Entry, tmp_path: Path) -> None:
    download(entry)
    mixed = replace(entry, files=(entry.files[0], *entry.files[3:], *entry.files[2:]))
    catalogue.CATALOGUE["small"] = mixed
    with raises(CountsDiffer, images=6, labels=3):
        load("small")


def test_damaged_embedded_files_ask_for_a_new_installation(tmp_path: Path) -> None:
    with pytest.raises(WrongChecksum):
        download(replace(CATALOGUE["digits"], embedded=tmp_path))


@pytest.mark.mnist
def test_mnist_compressed_again_is_accepted(
    mnist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "mine"
    source.mkdir()
    for file in CATALOGUE["mnist"].files:
        (source / file.download_name).write_bytes(
            gzip.compress((mnist / file.name).read_bytes(), 1)
        )
    monkeypatch.setenv("WHATWHERE_DATA", str(tmp_path / "cache"))
    download(CATALOGUE["mnist"], source)
    np.testing.assert_array_equal(
        read_array(tmp_path / "cache/mnist/t10k-labels-idx1-ubyte")[:],
        load("mnist", split="test").labels,
    )


def test_a_cached_data_set_changed_on_the_disk_is_not_loaded(entry: Entry) -> None:
    download(entry)
    path = catalogue.folder_of(entry) / "train-images"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with raises(WrongChecksum, name=str(path)):
        load("small")


def test_a_full_disk_leaves_nothing_and_the_error_names_the_place(entry: Entry) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with raises(NotDownloaded) as caught:
            download(entry)
        assert Containing(catalogue.folder_of(entry), "File too large") == caught.value
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cached(entry) == []
    download(entry)
    assert len(load("small")) == 6


# The catalogue: complete entries, and the included digits as they were taken from MNIST -----------


DIGITS, MNIST = CATALOGUE["digits"], CATALOGUE["mnist"]


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE.keys())
def test_every_entry_is_complete(entry: Entry) -> None:
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 for file in entry.files)
    assert (
        len({file.sha256 for file in entry.files}) == len({file.name for file in entry.files}) == 4
    )
    assert entry.facts["licence"]
    assert entry.facts["citation"]
    assert entry.embedded or all(re.fullmatch("https?://.*/", mirror) for mirror in entry.mirrors)
    assert bool(entry.mirrors) != bool(entry.embedded)


def test_no_two_data_sets_share_a_file() -> None:
    assert len({file.sha256 for entry in CATALOGUE.values() for file in entry.files}) == 16


def test_an_unknown_name_lists_the_known_ones() -> None:
    with raises(
        UnknownDataset, given="mnist2", known=("digits", "mnist", "fashion-mnist", "kmnist")
    ):
        find("mnist2")


def test_the_embedded_digits() -> None:
    assert all(catalogue.verify(DIGITS, file) == "verified" for file in DIGITS.files)
    assert sum(file.size for file in DIGITS.files) < 1_300_000
    for split, count in (("train", 5000), ("test", 2000)):
        digits = load("digits", split=split)
        assert (len(digits), digits.shape, digits.name) == (count, (1, 28, 28), f"digits/{split}")
        assert digits.labels is not None
        assert digits.labels.dtype == np.int64
        assert set(digits.labels) == set(range(10))
        images = digits[:]
        assert (images.min(), images.max()) == (0, 1)
    assert DIGITS.embedded is not None
    licence = (DIGITS.embedded / "LICENSE").read_text()
    assert all(
        words in licence
        for words in ("LeCun", "Cortes", "Burges", "Attribution-ShareAlike 3.0", "changed")
    )


@pytest.mark.mnist
def test_the_digits_are_the_first_of_mnist(mnist: object) -> None:
    for split in ("train", "test"):
        digits, full = load("digits", split=split), load("mnist", split=split)
        first = full.subset(np.arange(len(digits)))
        assert digits.fingerprint == first.fingerprint
        np.testing.assert_array_equal(digits.labels, first.labels)


@pytest.mark.mnist
def test_mnist_is_verified_and_complete(mnist: object) -> None:
    assert all(catalogue.verify(MNIST, file) == "verified" for file in MNIST.files)
    for split, count in (("train", 60_000), ("test", 10_000)):
        images = load("mnist", split=split)
        assert (len(images), images.shape) == (count, (1, 28, 28))
        assert images.labels is not None
        assert np.bincount(images.labels).min() > count // 12
