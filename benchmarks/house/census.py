"""Count what a stranger must know of each folder: constants, open names and ``Any``.

``python -m benchmarks.house.census`` prints a row per folder of ``src/whatwhere``, with
``--list FOLDER`` it names what it counted there. A *constant* is an upper-case name of a module
bound to a number (or to a tuple of numbers), an *open name* a name of a module without an
underscore that no other module of the package and no ``__init__`` mentions.
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
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.ClassDef(name=name)
            ):
                yield name, None
            case ast.Assign(targets=targets, value=value):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                yield from ((name, value) for name in names)
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                yield name, value


def mentions(tree: ast.Module) -> set[str]:
    """Collect the names that a module imports or reads as attributes."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return attributes | {alias.name for node in imports for alias in node.names}


def census(source: Path) -> dict[Path, dict[str, list[str]]]:
    """Count each module: its constants, its open names and its annotations with ``Any``."""
    trees = {path: ast.parse(path.read_text()) for path in sorted(source.rglob("*.py"))}
    used = {path: mentions(tree) for path, tree in trees.items()}
    stubs = " ".join(path.read_text() for path in source.rglob("*.pyi"))
    counts = {}
    for path, tree in trees.items():
        elsewhere = set().union(*(names for other, names in used.items() if other != path))
        names = dict(bindings(tree))
        anything = [
            node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"
        ]
        counts[path] = {
            "constants": [name for name in names if name.isupper() and is_number(names[name])],
            "open names": [
                name
                for name in names
                if not name.startswith("_") and name not in elsewhere and name not in stubs
            ],
            "Any": [f"line {node.lineno}" for node in anything],
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
                print(path, *(f"\n  {kind}: {', '.join(found[kind])}" for kind in found))
        return
    print("folder               lines  constants  open names   Any   (per 1,000 lines)")
    for room in [*sorted({path.relative_to(SOURCE).parts[0] for path in counts}), ""]:
        inside = [path for path in counts if path.is_relative_to(SOURCE / room)]
        lines = sum(len(path.read_text().splitlines()) for path in inside)
        constants, names, anything = (
            sum(len(counts[path][kind]) for path in inside)
            for kind in ("constants", "open names", "Any")
        )
        rates = f"{1000 * constants / max(lines, 1):.1f}, {1000 * names / max(lines, 1):.1f}"
        print(f"{room or 'all':<18}{lines:>8}{constants:>11}{names:>12}{anything:>6}   {rates}")


if __name__ == "__main__":
    main()
