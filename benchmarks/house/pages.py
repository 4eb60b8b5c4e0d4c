"""The pages of the documentation with their words, and who reads each: python -m
benchmarks.house.pages.

Words are counted without code, comments, pictures and addresses, as the limits of the README and of
the how-tos count them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
OUT = Path(__file__).parent / "results" / "pages.md"
READERS = {  # the first that a page's path begins with
    "README.md": "somebody who sees the project for the first time",
    "docs/index": "somebody who sees the project for the first time",
    "docs/start": "who tries it",
    "docs/install": "who tries it",
    "docs/troubleshooting": "who is stuck",
    "docs/alternatives": "who chooses between programs",
    "docs/cite": "authors",
    "docs/tutorial": "who learns it, step by step",
    "docs/howto/which_function": "who does not know where to begin",
    "docs/howto/coming_from": "users of other libraries",
    "docs/howto": "who does one task: ",
    "docs/explanation": "who wants to understand why",
    "docs/engines": "who wants to understand or change an engine",
    "docs/results": "who wants to know how well it works",
    "docs/reference/commands": "who looks up a command",
    "docs/reference/api": "who looks up a function",
    "docs/reference": "who looks something up",
    "docs/architecture": "contributors",
}


def words(page: Path) -> int:
    """Count the words of a page."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->|^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return len(re.findall(r"\w\S*", text))


def groups_of_howtos() -> dict[str, str]:
    """Return the group of every how-to, from the captions of their index."""
    index = (ROOT / "docs/howto/index.md").read_text(encoding="utf-8")
    blocks = re.findall(r":caption: ([^\n]+)\n\n(.*?)```", index, re.DOTALL)
    return {page: caption for caption, pages in blocks for page in pages.split()}


def rows() -> Iterator[str]:
    """Yield a row for every page that a person wrote or a command made."""
    groups = groups_of_howtos()
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        name = page.relative_to(ROOT).as_posix()
        reader = next((who for start, who in READERS.items() if name.startswith(start)), "")
        if not reader or "_build" in name or "gallery" in name:
            continue
        title = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        group = groups.get(page.stem, "choosing one") if reader.endswith(": ") else ""
        yield f"| `{name}` | {title[1] if title else ''} | {words(page):,} | {reader}{group} |"


def main() -> None:
    """Write the table."""
    head = "| page | title | words | who reads it |\n| --- | --- | --- | --- |\n"
    OUT.write_text(head + "\n".join(rows()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
