"""The package as users get it, tried where it is installed (also: make package):

    dist/empty/bin/python tests/installed.py dist

The wheel holds the package alone, and the source distribution builds the same wheel. In the empty
environment, every command prints its help, importing stays quick, and a small walk through the
commands works in a folder of its own. What fails ends the program.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

WHATWHERE = Path(sys.executable).parent / "whatwhere"
LONGEST_IMPORT = 1.0  # processor seconds: torch is imported on first use
PLAIN = ("--device", "cpu")


def main(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    (source,) = dist.glob("*.tar.gz")
    check_content(wheel, source)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        names = list(commands())
        print(f"{len(names)} commands print their help")
        print(f"import whatwhere: {import_seconds():.2f} s of processor time")
        walk(Path(folder))
    print("the walk works")


def check_content(wheel: Path, source: Path) -> None:
    """The wheel is the package, with every file of the package in the source distribution."""
    archive = zipfile.ZipFile(wheel)
    packed = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    strangers = [name for name in packed if not name.startswith("whatwhere/")]
    assert not strangers, f"the wheel holds {strangers[:5]}"
    folders = {part for name in packed for part in Path(name).parts[:-1]}
    assert not folders & {"tests", "benchmarks", "reproduction", "results", "__pycache__"}, folders
    with tarfile.open(source) as tar:
        prefix = source.name.removesuffix(".tar.gz") + "/src/"
        members = (member for member in tar.getmembers() if member.isfile())
        unpacked = {
            member.name.removeprefix(prefix): tar.extractfile(member)
            for member in members
            if member.name.startswith(prefix)
        }
        assert set(packed) == set(unpacked), set(packed) ^ set(unpacked)
        for name, file in unpacked.items():
            assert file is not None
            assert file.read() == packed[name], f"{name} is another in the source distribution"
    print(f"{len(packed)} files in the wheel, the same in the source distribution")


def run(*words: object, fails: bool = False) -> str:
    """Run the program as a user does; its output."""
    done = subprocess.run(
        [str(WHATWHERE), *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (done.returncode != 0) == fails, f"{words}: {done.stdout}{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def commands() -> Iterator[str]:
    """Every command, after it printed its help."""
    import typer
    from typer.core import TyperGroup

    from whatwhere.app import app

    def walk(group: object, before: tuple[str, ...]) -> Iterator[str]:
        assert isinstance(group, TyperGroup)
        for name, command in group.commands.items():
            assert "Usage" in run(*before, name, "--help")
            if isinstance(command, TyperGroup):
                yield from walk(command, (*before, name))
            else:
                yield " ".join((*before, name))

    assert "Usage" in run("--help")
    yield from walk(typer.main.get_command(app), ())


def import_seconds() -> float:
    """Processor seconds of `import whatwhere`, the best of three."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", "import whatwhere"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) < LONGEST_IMPORT, taken
    return min(taken)


def walk(folder: Path) -> None:
    """A folder of pictures through the commands, with what is in the package alone."""
    from PIL import Image

    chance = np.random.default_rng(0)
    (folder / "pictures").mkdir()
    for number in range(12):
        grey = chance.integers(0, 60, (24, 24)).astype(np.uint8)
        grey[:, 4 * (number % 3) + 4] = 255
        Image.fromarray(grey).save(folder / "pictures" / f"{number}.png")
    labels = "".join(f"{number}.png,column {number % 3}\n" for number in range(6))
    (folder / "labels.csv").write_text("file,class\n" + labels)
    few = ("--set", "learning.each.epochs=1", "--set", "inference.steps=3")
    run("info")
    run("train", "pictures", "--out", "run", *few, *PLAIN)
    run("encode", "pictures", "run", "--out", "codes.npz", "--where", *PLAIN)
    run("decode", "codes.npz", "run", "--out", "decoded")
    run("classify", "pictures", "run", "--labels", "labels.csv", "--out", "classes", *PLAIN)
    run("explore", "run", "--images", "pictures", "--out", "page.html")
    run("figures", "run", "--images", "pictures", "--out", "figures")
    run("denoise", "pictures", "--out", "clean", *PLAIN)
    run("anomaly", "odd", "pictures", "--out", "odd")
    assert "exists already" in run("encode", "pictures", "run", "--out", "codes.npz", fails=True)
    results = ("decoded/0.png", "classes/predictions.csv", "figures/report.html", "clean/0.png")
    for result in ("run/model.safetensors", "codes.npz", "page.html", "odd/scores.csv", *results):
        assert (folder / result).stat().st_size > 0, result


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
