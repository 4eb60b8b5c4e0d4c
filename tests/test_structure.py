"""Where heavy packages may be imported; the order of the parts is held by the import contract in pyproject.toml."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "whatwhere"
HOMES = {
    "triton": lambda path: "engines/triton/" in path.as_posix() or path.as_posix().startswith("nn/triton_"),
    "matplotlib": lambda path: "figures" in path.parts,
    "sklearn": lambda path: "classification" in path.parts or path.name == "estimator.py",
    "torch.distributed": lambda path: path.name == "distributed.py",
}


def imported(path: Path) -> set[str]:
    """Every module that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("package", HOMES)
def test_a_heavy_package_is_imported_only_at_home(package: str) -> None:
    users = {
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if any(name == package or name.startswith(package + ".") for name in imported(path))
    }
    assert users, f"nothing imports {package}: the check would be idle"
    assert [str(path) for path in sorted(users) if not HOMES[package](path)] == []
