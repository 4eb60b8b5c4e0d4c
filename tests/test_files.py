"""Atomic writes: the old content or the new one, nothing left behind, no planted link followed."""

import errno
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import whatwhere as ww
from raising import raises
from whatwhere.data import LargeFloats
from whatwhere.data.mixed import PicturesBecomeSquares
from whatwhere.errors import (
    ImageError,
    MissingExtra,
    RunError,
    SpecError,
    UnknownFormat,
    UnusableFile,
    UnusableRunFile,
    WhatwhereError,
    command,
    did_you_mean,
    listed,
    one_or,
    printable,
    unique_printable,
)
from whatwhere.files import (
    RECORD,
    Busy,
    CannotWrite,
    DiskError,
    claim,
    disk_errors,
    json_fields,
    locked,
    new_folder,
    open_atomic,
    open_regular,
    read_regular,
    readable,
    remove_leftovers,
    untrusted,
    write_atomic,
    write_json,
    write_result,
)


def fail_with_full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, step, fail_with_full_disk)
    with raises(OSError, errno=errno.ENOSPC):
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


def test_the_content_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_next_command_removes_what_a_killed_one_left_of_its_file(tmp_path: Path) -> None:
    """Not the temporary file of a process that still writes, nor those of other files."""
    dead = tmp_path / ".events.csv-0123456789abcdef.part"
    other = tmp_path / ".other.csv-0123456789abcdef.part"
    for path in (dead, other):
        path.touch()
    with open_atomic(tmp_path / "events.csv") as file:
        claim([tmp_path / "events.csv"])
        file.write(b"complete")
    assert sorted(os.listdir(tmp_path)) == [other.name, "events.csv"]
    assert (tmp_path / "events.csv").read_bytes() == b"complete"


def test_in_a_folder_of_results_all_that_killed_commands_left_is_removed(tmp_path: Path) -> None:
    """Of results, of records, and in sub-folders of results."""
    results = tmp_path / "clean"
    (results / "in").mkdir(parents=True)
    left = [
        results / "..whatwhere.json-0123456789abcdef.part",
        results / "in" / ".b.png-0123456789abcdef.part",
    ]
    for path in left:
        path.touch()
    with open_atomic(results / "record.json"):
        claim([results / "a.png", results / "in" / "c.png"], folder=results)
        assert [path for path in left if path.exists()] == []
        assert len(os.listdir(results)) == 2, "what a living process writes stays"


def test_a_temporary_file_that_was_taken_for_a_leftover_is_made_again(tmp_path: Path) -> None:
    """Another process found it in the moment before it was locked."""
    out = tmp_path / "a.png"
    claimed = threading.Event()

    def claim_all_the_time() -> None:
        while not claimed.is_set():
            claim([out], overwrite=True)

    claimer = threading.Thread(target=claim_all_the_time)
    claimer.start()
    try:
        for number in range(200):
            write_atomic(out, b"%d" % number)
            assert out.read_bytes() == b"%d" % number
    finally:
        claimed.set()
        claimer.join()
    assert os.listdir(tmp_path) == ["a.png"]


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


def test_a_disk_error_is_reported_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", fail_with_full_disk)
    with (
        raises(DiskError, reason=os.strerror(errno.ENOSPC), remedy="make room"),
        disk_errors("saving", "make room"),
    ):
        write_atomic(tmp_path / "file", b"content")


def test_nothing_is_written_onto_an_input_even_with_overwrite(tmp_path: Path) -> None:
    for name in ("a.png", "cat/b.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"mine")
    os.link(tmp_path / "a.png", tmp_path / "linked.png")
    (tmp_path / "other.png").symlink_to(tmp_path / "cat" / "b.png")
    for inputs in ([tmp_path], [tmp_path / "a.png", tmp_path / "cat"]):
        for name in ("a.png", "linked.png", "cat/b.png", "other.png"):
            for overwrite in (False, True):
                with raises(CannotWrite, reason="read"):
                    claim([tmp_path / name], inputs, folder=tmp_path, overwrite=overwrite)
    claim([tmp_path / "new.png"], [tmp_path])


def test_other_files_are_replaced_only_with_overwrite(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(b"mine")
    for folder in (None, tmp_path):
        with raises(CannotWrite, path=str(tmp_path / "0.png"), reason="exists"):
            claim([tmp_path / "0.png", tmp_path / "1.png"], folder=folder)
    assert os.listdir(tmp_path) == ["0.png"], "nothing is written before all is checked"
    claim([tmp_path / "0.png"], overwrite=True)


def test_a_folder_that_cannot_be_made_is_an_error_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, problem in (
        (tmp_path / "file", "Not a directory"),
        (tmp_path / "file" / "new" / "out", "Not a directory"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        for results in (None, folder):
            with raises(DiskError, reason=problem, remedy="choose another folder"):
                claim([folder / "0.png"], folder=results)
    assert os.listdir(tmp_path) == ["file"]


def test_results_in_their_own_folder_may_be_made_again(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    claim([out / "0.png"], folder=out)
    assert not out.exists(), "a claim writes nothing"
    write_result(out, out / "0.png", b"a result", "")
    claim([out / "0.png", out / "1.png"], folder=out)
    (out / "2.png").write_bytes(b"mine")
    with raises(CannotWrite, path=str(out / "2.png"), reason="exists"):
        claim([out / "1.png", out / "2.png"], folder=out)
    with raises(CannotWrite, reason="read"):
        claim([out / "0.png"], [out], folder=out)
    (out / "0.png").write_bytes(b"mine, at the name of a result")
    with raises(CannotWrite, path=str(out / "0.png"), reason="exists"):
        claim([out / "0.png"], folder=out)


def test_every_result_has_a_file_of_its_own(tmp_path: Path) -> None:
    with raises(CannotWrite, path=str(tmp_path / "a.png"), reason="twice"):
        claim([tmp_path / "a.png", tmp_path / "b.png", tmp_path / "a.png"], overwrite=True)
    (tmp_path / "b.png").mkdir()
    with raises(CannotWrite, path=str(tmp_path / "b.png"), reason="folder"):
        claim([tmp_path / "b.png"], overwrite=True)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "Expecting value"),
        (b"[" * 100_000, "(recursion|Stack overflow)"),
        (b"\xff\xfe", "Expecting value"),
        (b"9" * 5000, "digits"),
        (b'{"a": "' + b"x" * 900 + b"\n", "Invalid control character"),
    ],
)
def test_json_of_any_content_is_an_error_of_ours_without_the_content(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    (tmp_path / "file.json").write_bytes(content)
    with (
        raises(UnusableRunFile) as caught,
        json_fields(tmp_path / "file.json", "test 1", "record", "remove it"),
    ):
        pass
    assert re.search(problem, caught.value.reason)
    assert len(str(caught.value)) < 400


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_json_is_read_from_regular_files_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for path in (tmp_path, tmp_path / "pipe.json", tmp_path / "missing.json"):
        with (
            pytest.raises(UnusableRunFile) as caught,
            json_fields(path, "test 1", "record", "remove it"),
        ):
            pass
        assert caught.value.kind == "record"


def test_json_names_its_format_and_another_one_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    write_json(file, "test 1", {"a": [1, 2]})
    with json_fields(file, "test 1", "record", "remove it") as fields:
        assert fields == {"a": [1, 2]}
    for content, given in (('{"format": "test 2"}', "test 2"), ('{"a": 1}', None)):
        file.write_text(content)
        with (
            pytest.raises(UnusableRunFile) as caught,
            json_fields(file, "test 1", "record", "remove it"),
        ):
            pass
        cause = caught.value.__cause__
        assert isinstance(cause, UnknownFormat)
        assert (cause.given, cause.expected) == (given, "test 1")


def test_fields_that_the_block_cannot_use_are_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    write_json(file, "test 1", {"a": [1, 2]})
    for use in (lambda f: f["b"], lambda f: int(f["a"]), lambda f: f["a"][7], lambda f: f["a"].x):
        with (
            pytest.raises(UnusableRunFile) as caught,
            json_fields(file, "test 1", "record", "remove it") as fields,
        ):
            use(fields)
        assert (caught.value.path, caught.value.kind) == (file, "record")


# Only regular files are opened, and nothing else is waited for ------------------------------------


def test_a_regular_file_is_read_also_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"content"
    assert read_regular(tmp_path / "file", 7) == b"content"
    with raises(OSError, errno=errno.EFBIG):
        read_regular(tmp_path / "file", 6)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_a_device_and_a_folder_raise_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with raises(OSError, errno=errno.EINVAL, filename=str(path)):
            open_regular(path)
    with raises(OSError, errno=errno.EINVAL, filename=str(tmp_path)):
        open_regular(tmp_path)


def test_an_impossible_name_raises() -> None:
    with raises(OSError, errno=errno.ENAMETOOLONG):
        open_regular("x" * 300)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é [/b] 図", "é [/b] 図"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        (b"\xff.png".decode("utf-8", "surrogateescape"), "\\udcff.png"),
        ("\u2028", "\\u2028"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_errors_escape_what_they_quote_and_keep_their_own_lines() -> None:
    error = ImageError("a\x07.png: damaged\n  copy it again")
    assert str(error) == "a\\x07.png: damaged\n  copy it again"
    assert isinstance(error, WhatwhereError)
    assert str(MissingExtra("Pillow", "reading pictures")) == (
        "Reading pictures needs Pillow, which is not installed. Install it: pip install Pillow"
    )


def test_lists_and_suggestions_in_words() -> None:
    assert [listed(range(n)) for n in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]
    assert (one_or(1), one_or(3)) == ("1", "1 or 3")
    assert did_you_mean("minst", ["digits", "mnist"]) == " Did you mean 'mnist'?"
    assert did_you_mean("photographs", ["digits", "mnist"]) == ""


# Messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "back\\slash", "ü", "-x"])
def test_a_command_can_be_pasted(name: str) -> None:
    line = command("printf", "%s", name)
    assert (
        subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode()
        == name
    )


@pytest.mark.parametrize("name", ["bell\a", "new\nline'\\", "\x1b[31mred"])
def test_a_command_cannot_change_the_terminal(name: str) -> None:
    line = command("printf", "%s", name)
    assert printable(line) == line


# Folders of results


def test_a_foreign_file_is_never_taken_for_a_result(tmp_path: Path) -> None:
    result = tmp_path / "a.csv"
    write_result(tmp_path, result, b"first", "make room")
    claim([result], folder=tmp_path)
    write_result(tmp_path, result, b"second", "make room")
    claim([result], folder=tmp_path)
    result.write_bytes(b"somebody else's")
    with raises(CannotWrite, reason="exists"):
        claim([result], folder=tmp_path)
    claim([result], folder=tmp_path, overwrite=True)


def test_of_a_file_at_a_place_of_its_own_nobody_knows_who_wrote_it(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(b"by this command or another")
    with raises(CannotWrite, path=str(page), reason="exists"):
        claim([page])
    claim([page], overwrite=True)


@pytest.mark.parametrize("before", [b"old", None])
def test_a_write_that_is_killed_leaves_a_result_that_is_known(
    before: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the record and before the file, which is the only step between two states."""
    result = tmp_path / "a.csv"
    if before is not None:
        write_result(tmp_path, result, before, "make room")

    def killed(path: Path, content: bytes) -> None:
        if path == result:
            raise KeyboardInterrupt
        write_atomic(path, content)

    monkeypatch.setattr("whatwhere.files.write_atomic", killed)
    with pytest.raises(KeyboardInterrupt):
        write_result(tmp_path, result, b"new", "make room")
    claim([result], folder=tmp_path)
    if before is None:
        result.write_bytes(b"somebody else's")
        with raises(CannotWrite, reason="exists"):
            claim([result], folder=tmp_path)


def test_a_result_is_written_under_the_lock_of_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or two processes that write one result leave the record of one and the file of the other."""
    written = []

    def locked_by_us(path: Path, content: bytes) -> None:
        with raises(Busy, path=str(tmp_path)), locked(tmp_path, "held"):
            pass
        written.append(path.name)
        write_atomic(path, content)

    monkeypatch.setattr("whatwhere.files.write_atomic", locked_by_us)
    write_result(tmp_path, tmp_path / "a.csv", b"new", "make room")
    assert written == [RECORD, "a.csv"]


def test_a_record_of_an_unknown_format_says_so(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"format": "whatwhere results 9", "files": {}}')
    with raises(UnusableRunFile) as caught:
        claim([tmp_path / "a.png"], folder=tmp_path)
    assert isinstance(caught.value.__cause__, UnknownFormat)
    assert caught.value.__cause__.given == "whatwhere results 9"


def test_two_processes_record_their_results_in_one_folder(tmp_path: Path) -> None:
    """No record of one is lost by the other."""
    script = (
        "import sys; from pathlib import Path; from whatwhere.files import write_result\n"
        "folder = Path(sys.argv[1])\n"
        "for n in range(20): write_result(folder, folder / f'{sys.argv[2]}{n}', b'x', '')"
    )
    both = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), name]) for name in ("a", "b")
    ]
    assert [process.wait() for process in both] == [0, 0]
    claim([tmp_path / f"{name}{n}" for name in "ab" for n in range(20)], folder=tmp_path)


@pytest.mark.parametrize(
    "texts",
    [
        ("a\x1b.png", r"a\x1b.png"),
        (r"a\x1b.png", r"a\\x1b.png"),
        ("a\nb", r"a\nb"),
        ("\\\n", r"\\n"),
    ],
)
def test_names_made_printable_stay_different(texts: tuple[str, str]) -> None:
    assert len({unique_printable(text) for text in texts}) == 2
    assert unique_printable("Ä \\ b.png") == "Ä \\ b.png"


# Damaged files are errors with fields; bugs stay bugs ---------------------------------------------


@pytest.mark.parametrize("kind", [RunError, ImageError, SpecError])
def test_a_damaged_file_raises_an_error_of_the_kind_with_fields(
    kind: type[WhatwhereError], tmp_path: Path
) -> None:
    with pytest.raises(kind) as caught, readable(tmp_path, "model", "copy it again", kind):
        raise KeyError("spec")
    error = caught.value
    assert isinstance(error, UnusableFile)
    fields = (error.path, error.kind, error.reason, error.remedy)
    assert fields == (tmp_path, "model", "'spec' is missing", "copy it again")


@pytest.mark.parametrize(
    "bug", [NameError, AttributeError, AssertionError, TypeError, IndexError, MemoryError]
)
def test_a_bug_in_a_reader_crashes(bug: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(bug), readable(tmp_path, "model", "copy it again"):
        raise bug("a typo")


def test_what_a_library_raises_on_damaged_bytes_is_a_damaged_file(tmp_path: Path) -> None:
    with pytest.raises(RunError) as caught, readable(tmp_path, "model", "copy it"), untrusted():
        raise UnboundLocalError("data")
    assert isinstance(caught.value, UnusableFile)
    assert caught.value.reason == "data"


# Warnings point to the user's line ----------------------------------------------------------------


def test_a_warning_names_the_line_that_called_into_the_package() -> None:
    with pytest.warns(LargeFloats) as direct:
        ww.data.load(np.full((1, 1, 4, 4), 9.0, np.float32))
    with pytest.warns(LargeFloats) as nested:
        ww.data.load_groups(np.full((1, 1, 4, 4), 9.0, np.float32))
    assert {direct[0].filename, nested[0].filename} == {__file__}


def test_a_warning_out_of_a_context_manager_names_the_line_of_its_user(tmp_path: Path) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "a.png")
    Image.new("L", (9, 8)).save(tmp_path / "b.png")
    with pytest.warns(PicturesBecomeSquares) as caught:
        ww.data.load(tmp_path)
    assert caught[0].filename == __file__
    assert isinstance(caught[0].message, PicturesBecomeSquares)
    assert caught[0].message.side == 8


def test_files_are_written_where_folders_have_no_locks(tmp_path: Path) -> None:
    """Windows has no `fcntl`."""
    program = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from pathlib import Path\n"
        "from whatwhere.files import locked, write_result\n"
        f"folder = Path({os.fspath(tmp_path)!r})\n"
        "with locked(folder, 'busy'), locked(folder, 'busy'):\n"
        "    write_result(folder, folder / 'a.txt', b'content', 'make room')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert (tmp_path / "a.txt").read_bytes() == b"content"
    assert not list(tmp_path.glob("*.part"))
