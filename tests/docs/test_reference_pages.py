"""The reference is current: pages made from the program, and a place for every public name."""

import importlib
import re
from collections import Counter
from pathlib import Path

import pytest
import reference_pages

from public_names import public_names

API = Path(reference_pages.__file__).parent / "reference" / "api"


@pytest.mark.parametrize("path", reference_pages.pages(), ids=lambda path: path.name)
def test_a_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == reference_pages.pages()[path], "run: python docs/reference_pages.py"


def documented() -> Counter[str]:
    """The full names on the API pages."""
    names: Counter[str] = Counter()
    for page in API.glob("*.md"):
        module = ""
        for kind, name in re.findall(r"^\.\. (\w+):: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            if kind == "currentmodule":
                module = name
            elif kind.startswith("auto"):
                names[f"{module}.{name}"] += 1
    return names


def test_every_public_name_has_one_place_in_the_reference() -> None:
    names = documented()
    assert [name for name, count in names.items() if count > 1] == []
    assert sorted(set(public_names()) - set(names)) == [], "add it to a page in docs/reference/api"


def test_every_setting_is_described() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| .* \| (.*) \|$", reference_pages.recipe(), re.MULTILINE)
    assert len(rows) > 40
    assert [key for key, text in rows if not text.strip()] == []


def test_the_names_of_the_notation_table_exist() -> None:
    page = (API.parents[1] / "explanation" / "mathematics.md").read_text(encoding="utf-8")
    table = page.partition("### From symbol to code to paper")[2].partition("\n## ")[0]
    names = [name for row in re.findall(r"^\|.*\| (`[^|]*`) \|.*\|$", table, re.MULTILINE) for name in row.split(", ")]
    assert len(names) > 25
    assert [name for name in names if not exists(name.strip("`"))] == []


def exists(name: str) -> bool:
    """Is there such a name below `whatwhere`: a module, what it holds, and a field or method of that?"""
    thing: object = importlib.import_module("whatwhere")
    path = "whatwhere"
    for part in name.split("."):
        path = f"{path}.{part}"
        fields = getattr(thing, "__dataclass_fields__", {}) | getattr(thing, "__annotations__", {})
        if part in fields:
            return True
        try:
            thing = getattr(thing, part) if hasattr(thing, part) else importlib.import_module(path)
        except ImportError:
            return False
    return True
