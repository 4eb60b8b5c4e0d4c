"""The page's modules as one script: imports are dropped, since everything they name stands above.

The modules stay plain ES modules, which Node and a type checker read as they are. For this to work a module imports
names as they are (`import { a } from "./b.js"`), exports declarations, and no two modules declare the same name at
their top level.
"""

from __future__ import annotations

import re
from importlib.resources import files

IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const |let |class |function |async function )", re.MULTILINE)
LEFT_OVER = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)


def bundle(entry: str) -> str:
    """The module of this name with all that it imports, each module once, after those it imports."""
    written: dict[str, str] = {}
    _add(entry, written, ())
    return '"use strict";\n(() => {\n' + "\n".join(written.values()) + "})();\n"


def _add(name: str, written: dict[str, str], importing: tuple[str, ...]) -> None:
    if name in importing:
        raise ValueError(f"the modules {' → '.join([*importing, name])} import each other; a script needs an order")
    if name in written:
        return
    source = read(f"{name}.js")
    for imported in IMPORT.findall(source):
        _add(imported, written, (*importing, name))
    script = EXPORT.sub("", IMPORT.sub("", source))
    if unsupported := LEFT_OVER.search(script):
        raise ValueError(f"{name}.js: {unsupported[0].strip()!r} cannot be bundled; import names as they are")
    written[name] = script


def read(name: str) -> str:
    """A file of the page's folder."""
    return (files("whatwhere.explorer") / "page" / name).read_text(encoding="utf-8")
