"""How heavy the package is to read: a table for whoever wants to look. No size is a target.

python -m benchmarks.weight          # or: make weight
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import typer

from whatwhere.app import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "whatwhere"
COLUMNS = 100
ARGUMENTS = 6
COMPLEXITY = 10
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.comprehension,
    ast.match_case,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def docstring_lines(tree: ast.Module) -> set[int]:
    """The lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | FUNCTIONS[0] | FUNCTIONS[1]):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def argument_count(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many arguments a function has, without self and cls."""
    given = function.args.posonlyargs + function.args.args
    own = bool(given) and given[0].arg in ("self", "cls")
    return len(given) + len(function.args.kwonlyargs) - own


def complexity(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """One more than the places where a function branches (McCabe, counted as radon does)."""
    count = 1
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if isinstance(node, FUNCTIONS):  # an inner function is a function of its own
            continue
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        if isinstance(node, ast.comprehension):
            count += len(node.ifs)
        waiting += ast.iter_child_nodes(node)
    return count


def is_tuple_assignment(node: ast.AST) -> bool:
    """`a, b = x, y`: several values assigned in one statement."""
    return (
        isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Tuple)
        and isinstance(node.targets[0], ast.Tuple)
    )


def options(command: object) -> Iterator[int]:
    """The number of options of every command that runs; those of a group are its commands'."""
    for each in getattr(command, "commands", {}).values():
        if hasattr(each, "commands"):
            yield from options(each)
        else:
            yield sum(parameter.param_type_name == "option" for parameter in each.params)


def measure() -> dict[str, str]:
    """The rows of the table."""
    files = sorted(SOURCE.rglob("*.py"))
    nodes: list[ast.AST] = []
    lines = 0
    code: list[str] = []
    comments = 0
    wide = 0
    unknown_types = 0
    for path in files:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        nodes += ast.walk(tree)
        unknown_types += len(re.findall(r"(?::|->) Any\b", text))
        docstrings = docstring_lines(tree)
        for number, line in enumerate(text.splitlines(), start=1):
            lines += 1
            wide += len(line) > COLUMNS
            if line.strip().startswith("#"):
                comments += 1
            elif line.strip() and number not in docstrings:
                code.append(line.strip())
    functions = [node for node in nodes if isinstance(node, FUNCTIONS)]
    complex_ones = sum(complexity(function) > COMPLEXITY for function in functions)
    many = [argument_count(function) for function in functions]
    per_command = list(options(typer.main.get_command(app)))
    tracked = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()

    def per_thousand(count: int) -> str:
        return f"{1000 * count / len(code):.1f}"

    return {
        "files, lines of Python": f"{len(files)}, {lines:,}",
        "lines of code (without comments, docstrings, blank lines)": f"{len(code):,}",
        "characters a line of code": f"{sum(map(len, code)) / len(code):.1f}",
        f"lines over {COLUMNS} columns": str(wide),
        "comment lines, % of lines of code": f"{100 * comments / len(code):.1f}",
        "a, b = x, y, per 1,000 lines of code": per_thousand(sum(map(is_tuple_assignment, nodes))),
        "conditional expressions, likewise": per_thousand(
            sum(isinstance(node, ast.IfExp) for node in nodes)
        ),
        "comprehensions, likewise": per_thousand(
            sum(isinstance(node, COMPREHENSIONS) for node in nodes)
        ),
        f"functions of a complexity above {COMPLEXITY}, %": (
            f"{100 * complex_ones / len(functions):.1f}"
        ),
        f"functions of more than {ARGUMENTS} arguments (most)": (
            f"{sum(count > ARGUMENTS for count in many)} ({max(many)})"
        ),
        "annotations Any": str(unknown_types),
        "commands, options": f"{len(per_command)}, {sum(per_command)}",
        "tracked files": f"{len(tracked):,}",
    }


if __name__ == "__main__":
    rows = measure()
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:{width}}  {value}")
