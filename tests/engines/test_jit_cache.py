"""The cache of machine code: without a writable folder, with damaged files, with files of other
sources."""

import errno
import importlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

import tiny_training
from whatwhere.engines.compiled import COMPILED

numba = pytest.importorskip("numba")
caching = importlib.import_module("numba.core.caching")
jit = importlib.import_module("whatwhere.engines.jit")  # which imports Numba

SOURCE = Path(__file__).parents[2] / "src" / "whatwhere"
TINY = """
from whatwhere.engines.jit import cached_jit

@cached_jit
def double(source):
    def double(x):
        source
        return 2 * x
    return double
"""
# A read-only file system, for root too, whose writes no permission bit prevents.
READ_ONLY = """
import errno, os, tempfile
def fail(*arguments, **options):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
tempfile.TemporaryFile = os.makedirs = fail
"""


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in which `tiny.double` can be imported from `folder`, with nothing in the
    environment."""
    (folder / "tiny.py").write_text(TINY)
    path = os.pathsep.join([str(folder), str(SOURCE.parent)])
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "HOME")
    }
    return subprocess.run(
        [sys.executable, "-c", program],
        env={
            **inherited,
            "PYTHONPATH": path,
            "HOME": "/nonexistent",
            "OMP_NUM_THREADS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def run_forked(program: str, folder: Path, cache: Path) -> tuple[str, str]:
    """The same in a process that is forked from one that has imported torch; what it prints, and
    its errors."""
    (folder / "tiny.py").write_text(TINY)
    printed = folder / "printed.txt"
    errors = folder / "errors.txt"
    tiny_training.process(execute, program, folder, cache, printed, errors).join(120)
    return printed.read_text(), errors.read_text()


def execute(program: str, folder: Path, cache: Path, printed: Path, errors: Path) -> None:
    """What the forked process does."""
    for stream, file in ((1, printed), (2, errors)):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    numba.config.CACHE_DIR = str(cache)
    os.environ["HOME"] = "/nonexistent"
    sys.path.insert(0, str(folder))
    exec(program, {"__name__": "__main__"})


def cache_files(cache: Path) -> list[Path]:
    return sorted(cache.rglob("*.nbc"))


CALL = (
    "from tiny import double; print(double(21)); print(sum(double.stats.cache_hits.values()),"
    " 'hits')"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `tiny.py`, and `cache` for its machine code."""
    (tmp_path / "tiny.py").write_text(TINY)
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def define(folder: Path) -> Any:
    """`double`, as a process that has not called it before defines it."""
    return runpy.run_path(str(folder / "tiny.py"), run_name="tiny")["double"]


def call(double: Any) -> int:
    """Call it; how often its machine code was found in the cache."""
    assert double(21) == 42
    return sum(double.stats.cache_hits.values())


def read_only(*arguments: Any, **options: Any) -> NoReturn:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


@pytest.fixture
def read_only_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A read-only file system, for root too, whose writes no permission bit prevents."""

    def start() -> None:
        monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
        monkeypatch.setattr(caching.IndexDataCacheFile, "save", read_only)
        monkeypatch.setattr(os, "makedirs", read_only)

    return start


def test_without_a_writable_folder_it_compiles_and_warns_once(
    folder: Path, read_only_disk: Callable[[], None], recwarn: pytest.WarningsRecorder
) -> None:
    jit.warn_once.cache_clear()
    read_only_disk()
    for _ in range(2):
        double = define(folder)
        assert call(double) == 0
    assert [jit.NOT_WRITABLE in str(warning.message) for warning in recwarn] == [True]


def test_a_second_process_finds_the_machine_code(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = (run_forked(CALL, tmp_path, cache) for _ in range(2))
    assert first == ("42\n0 hits\n", "")
    assert second == ("42\n1 hits\n", "")
    assert len(cache_files(cache)) == 1


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["empty", "truncated", "garbage"])
def test_damaged_machine_code_is_deleted_and_compiled_again(
    folder: Path, damage: str, ending: str
) -> None:
    call(define(folder))
    (file,) = folder.rglob(f"*.{ending}")
    whole = file.read_bytes()
    file.write_bytes(
        {"empty": b"", "truncated": whole[: len(whole) // 2], "garbage": b"x" * 5000}[damage]
    )
    with pytest.warns(UserWarning, match="damaged machine code"):
        assert call(define(folder)) == 0
    assert call(define(folder)) == 1


def test_machine_code_of_other_types_is_not_run(folder: Path) -> None:
    """What two processes leave that compile for different types at the same moment."""
    double = define(folder)
    assert double(2.5) == 5.0
    of_floats = cache_files(folder)[0].read_bytes()
    call(double)
    for file in cache_files(folder):
        file.write_bytes(of_floats)
    with pytest.warns(UserWarning, match="damaged machine code"):
        assert call(define(folder)) == 0


def test_machine_code_of_other_sources_is_not_run(folder: Path) -> None:
    call(define(folder))
    (folder / "another.py").write_text("changed = True\n")
    assert call(define(folder)) == 0


def test_a_folder_that_cannot_be_written_any_more_is_a_warning(
    folder: Path, read_only_disk: Callable[[], None]
) -> None:
    double = define(folder)
    read_only_disk()
    with pytest.warns(UserWarning, match="Cannot cache"):
        assert call(double) == 0


def test_a_read_only_package_without_a_home_runs(tmp_path: Path) -> None:
    """The loops of the engine and of the layers are defined, which looks for a cache; a small
    function is compiled."""
    shutil.copytree(SOURCE, tmp_path / "whatwhere", ignore=shutil.ignore_patterns("__pycache__"))
    program = """
from whatwhere.engines.cpu import loop
from whatwhere.nn import cpu_pooling
from tiny import double
assert cpu_pooling.__file__.startswith({folder!r})
print(double(21))
"""
    done = run(READ_ONLY + program.format(folder=str(tmp_path)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "42\n"
    assert "Set NUMBA_CACHE_DIR to a writable folder" in done.stderr
    assert not cache_files(tmp_path)


def test_compiling_is_counted_and_loading_is_not(folder: Path) -> None:
    before = COMPILED.functions
    call(define(folder))
    assert COMPILED.functions == before + 1
    call(define(folder))
    assert COMPILED.functions == before + 1, "found on disk"


def test_it_is_known_whether_there_is_machine_code(folder: Path) -> None:
    double = define(folder)
    assert not jit.is_compiled(double)
    call(double)
    assert jit.is_compiled(double)
    assert jit.is_compiled(define(folder)), "on disk"
    (folder / "other.py").write_text("# another source")
    assert not jit.is_compiled(define(folder))


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners of files on this system")
def test_machine_code_that_others_may_write_is_not_loaded(folder: Path) -> None:
    jit.warn_once.cache_clear()
    call(define(folder))
    assert call(define(folder)) == 1, "a folder of this user's own"
    (file,) = cache_files(folder)
    content = file.read_bytes()
    file.parent.chmod(0o777)
    with pytest.warns(UserWarning, match="other users may write to it"):
        assert call(define(folder)) == 0
    assert file.read_bytes() == content, "left as it was, and compiled elsewhere"
    assert call(define(folder)) == 1


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="root gives files away")
def test_machine_code_of_another_user_is_not_loaded(folder: Path) -> None:
    jit.warn_once.cache_clear()
    call(define(folder))
    (file,) = cache_files(folder)
    os.chown(file.parent, 65534, 65534)
    with pytest.warns(UserWarning, match="belongs to another user"):
        assert call(define(folder)) == 0
    assert len(cache_files(folder)) == 2, "compiled into a folder at home"


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no links on this system")
def test_machine_code_behind_a_link_is_not_loaded(folder: Path) -> None:
    jit.warn_once.cache_clear()
    call(define(folder))
    (file,) = cache_files(folder)
    elsewhere = folder / "elsewhere"
    file.parent.rename(elsewhere)
    file.parent.symlink_to(elsewhere)
    with pytest.warns(UserWarning, match="Remove it"):
        assert call(define(folder)) == 0


EIGHT = """
import os
from tiny import double

def compile_and_call():
    try:
        assert double(21) == 42
        os._exit(sum(double.stats.cache_misses.values()))
    finally:
        os._exit(2)

children = []
for _ in range(8):
    children.append(os.fork())
    if children[-1] == 0:
        compile_and_call()
print(sum(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children), 'compiled')
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_of_processes_that_start_together_one_compiles(tmp_path: Path) -> None:
    """Each of the others waits, and loads what the first one has compiled."""
    printed, errors = run_forked(EIGHT + CALL, tmp_path, tmp_path / "cache")
    assert printed == "1 compiled\n42\n1 hits\n", errors
