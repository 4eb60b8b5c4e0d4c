"""Count what a stranger must know of each folder: constants, open names and ``Any``.

``python -m benchmarks.house.census`` prints a row per folder of ``src/whatwhere``; ``--list FOLDER`` names what it
counted there. A *constant* is an upper-case module-level name bound to a number (or to a tuple of numbers), an *open
name* a module-level name without an underscore that no other module of the package and no ``__init__`` mentions.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path("src/whatwhere")


def is_number(node: ast.expr | None) -> bool:
    """Say whether an expression is a number, arithmetic of numbers, or a tuple of them."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=operand):
            return is_number(operand)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=elements):
            return bool(elements) and all(is_number(element) for element in elements)
    return False


def bindings(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """Walk over the names that a module binds at its top level, with the value of an assignment."""
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, None
            case ast.Assign(targets=targets, value=value):
                yield from ((target.id, value) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value


def mentions(tree: ast.Module) -> set[str]:
    """Collect the names that a module imports or reads as attributes."""
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}
    return names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def census(source: Path) -> dict[Path, dict[str, list[str]]]:
    """Count each module: its constants, its open names and its annotations with ``Any``."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    used = {path: mentions(tree) for path, tree in trees.items()}
    stubs = " ".join(path.read_text() for path in source.rglob("*.pyi"))
    counts = {}
    for path, tree in trees.items():
        elsewhere = set().union(*(names for other, names in used.items() if other != path))
        names = dict(bindings(tree))
        counts[path] = {
            "constants": [name for name, value in names.items() if name.isupper() and is_number(value)],
            "open names": [
                name for name in names if not name.startswith("_") and name not in elsewhere and name not in stubs
            ],
            "Any": [
                f"line {node.lineno}" for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"
            ],
        }
    return counts


def main() -> None:
    """Print the table of all folders, or the names of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", metavar="FOLDER", help="name what is counted in this folder")
    chosen = parser.parse_args().list
    counts = census(SOURCE)
    if chosen:
        for path, found in counts.items():
            if path.is_relative_to(SOURCE / chosen):
                print(path, *(f"\n  {kind}: {', '.join(names)}" for kind, names in found.items() if names))
        return
    rooms = sorted({path.relative_to(SOURCE).parts[0] for path in counts})
    print(f"{'folder':<18}{'lines':>7}{'constants':>11}{'open names':>12}{'Any':>6}   (per 1,000 lines: constants, open)")
    for room in [*rooms, ""]:
        inside = {path: found for path, found in counts.items() if path.is_relative_to(SOURCE / room)}
        lines = sum(len(path.read_text().splitlines()) for path in inside)
        total = {kind: sum(len(found[kind]) for found in inside.values()) for kind in ("constants", "open names", "Any")}
        rates = (1000 * total["constants"] / max(lines, 1), 1000 * total["open names"] / max(lines, 1))
        print(
            f"{room or 'all':<18}{lines:>7}{total['constants']:>11}{total['open names']:>12}{total['Any']:>6}"
            f"   {rates[0]:.1f}, {rates[1]:.1f}"
        )


if __name__ == "__main__":
    main()
