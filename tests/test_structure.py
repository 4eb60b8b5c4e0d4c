"""The shape of the project: where heavy packages are imported, how long files are, which test covers a module, and whether
docs/architecture.md is true. The order of the parts is checked by the import contract in pyproject.toml."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "whatwhere"
MODULES = sorted(SOURCE.rglob("*.py"))
HOMES = {
    "triton": lambda path: "engines/triton/" in path.as_posix() or path.as_posix().startswith("nn/triton_"),
    "matplotlib": lambda path: "figures" in path.parts,
    "sklearn": lambda path: "classification" in path.parts or path.name == "estimator.py",
    "torch.distributed": lambda path: path.name == "distributed.py",
}
KERNELS = ("inference/engines/cpu", "inference/engines/triton", "nn/triton_")
# Modules without a test file of their name, and the test that covers them.
COVERED_BY: dict[str, str] = {}


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inside(path: Path) -> str:
    """The path of a module inside the package."""
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_is_imported_only_at_home(package: str) -> None:
    users = [
        path.relative_to(SOURCE)
        for path in MODULES
        if any(name == package or name.startswith(package + ".") for name in imported(path))
    ]
    assert users, f"nothing imports {package}: the check would be idle"
    assert [str(path) for path in users if not HOMES[package](path)] == []


def test_no_file_is_longer_than_300_lines() -> None:
    lengths = {inside(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > 300} == {}


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The functions of a file and how many lines their statements take, without the docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield node.name, (node.end_lineno or 0) - body[0].lineno + 1


def test_no_function_is_longer_than_50_lines() -> None:
    long = {
        f"{inside(path)}:{name}": lines
        for path in MODULES
        if not inside(path).startswith(KERNELS)
        for name, lines in functions(path)
        if lines > 50
    }
    assert long == {}


def test_every_module_has_a_test_of_its_name_or_is_listed() -> None:
    tests = {path.stem.removeprefix("test_") for path in (ROOT / "tests").rglob("test_*.py")}
    own = {inside(path) for path in MODULES if path.stem in tests or path.name in ("__init__.py", "__main__.py")}
    missing = [inside(path) for path in MODULES if inside(path) not in own | set(COVERED_BY)]
    assert missing == [], "write tests/…/test_<name>.py, or list the module in COVERED_BY with the test that covers it"
    assert [name for name in COVERED_BY if name in own or not (SOURCE / name).exists()] == [], "listed without need"
    assert [test for test in COVERED_BY.values() if not (ROOT / "tests" / test).exists()] == []


def architecture() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_parts() -> list[str]:
    """The files and folders that the tree in docs/architecture.md names at the start of its lines."""
    (tree,) = re.findall(r"^    src/whatwhere/\n((?:      .*\n)+)", architecture(), re.MULTILINE)
    parts, folder = [], ""
    for line in tree.splitlines():
        entry = re.match(r"^( +)((?:[\w.]+/?  ?)*[\w.]+/?)(?:  |$)", line)
        if entry is None or len(entry[1]) > 8:
            continue
        names = entry[2].split()
        prefix = folder if len(entry[1]) == 8 else ""
        parts += [prefix + name for name in names if "/" in name or name.endswith(".py")]
        if len(entry[1]) == 6 and names[0].endswith("/"):
            folder = names[0]
    return parts


def test_the_tree_of_the_architecture_page_is_the_tree_of_the_package() -> None:
    parts = listed_parts()
    assert [part for part in parts if not (SOURCE / part).exists()] == []
    top = {path.name + ("/" if path.is_dir() else "") for path in SOURCE.iterdir() if not path.name.startswith("__")}
    assert sorted(top - {"py.typed"} - set(parts)) == []


def test_the_names_on_the_architecture_page_exist() -> None:
    names = set(re.findall(r"`([\w./]+)(?:\(.*?\))?`", architecture()))
    text = "\n".join(path.read_text(encoding="utf-8") for path in MODULES)
    text += (ROOT / "pyproject.toml").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text(encoding="utf-8")

    def exists(name: str) -> bool:
        if "/" in name or name.endswith((".py", ".md", ".toml")):
            return any((root / name).exists() for root in (ROOT, SOURCE, SOURCE / "inference", SOURCE / "learning"))
        return all(re.search(rf"\b{re.escape(part)}\b", text) for part in name.split(".") if part)

    assert sorted(name for name in names if not exists(name)) == []
