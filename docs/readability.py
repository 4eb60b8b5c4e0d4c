"""Measure how easily the texts of the project read, at any commit.

    pip install textstat==0.7.4 setuptools; npm install write-good
    python docs/readability.py before --commit 527e51a9 --write-good node_modules/.bin/write-good
    python docs/readability.py after --commit HEAD --write-good node_modules/.bin/write-good

textstat gives the reading ease of Flesch (higher is easier) and the grade of Flesch and Kincaid
(school years, lower is easier). write-good counts passive voice, wordy phrases and weak words.
Code, links and cells of tables without a sentence are left out. The results go to
benchmarks/results/readability.json under the name given.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks/results/readability.json"
GROUPS = {  # a name, and the files that it holds, as a regular expression
    "README": r"README\.md",
    "start and tutorials": r"docs/(start|index|tutorial/.*)\.md",
    "how-tos": r"docs/howto/.*\.md",
    "explanation": r"docs/explanation/.*\.md",
    "results": r"docs/results/.*\.md",
    "changelog": r"CHANGELOG\.md",
}
LONG_SENTENCE = 25  # words
MESSAGE_CALLS = ("Error", "Warning", "Exit", "warn")


def git(*arguments: str) -> str:
    finished = subprocess.run(
        ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
    )
    return finished.stdout


def sentences_of_cells(row: re.Match[str]) -> str:
    """The cells of a row of a table that hold sentences, as paragraphs."""
    cells = row[0].strip("|").split("|")
    sentence = r"(\w+ ){5}.*[a-z%]\.( |$|\*)"  # six words or more, and a point after one of them
    return "\n\n".join(cell.strip() for cell in cells if re.search(sentence, cell))


def plain_paragraphs(markdown: str) -> Iterator[str]:
    """Paragraphs, list items and sentences in tables of a page, as plain text without code."""
    markdown = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    markdown = re.sub(r"<!--.*?-->", "", markdown, flags=re.DOTALL)
    markdown = re.sub(r"\$\$.*?\$\$", "", markdown, flags=re.DOTALL)
    markdown = re.sub(r"\$[^$\n]+\$", "Code", markdown)
    markdown = re.sub(r"^\|.*$", sentences_of_cells, markdown, flags=re.MULTILINE)
    markdown = re.sub(r"^( {4,}\S.*|#.*|:{3,}.*|:?-{3,}.*)$", "", markdown, flags=re.MULTILINE)
    markdown = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", markdown)
    markdown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    markdown = re.sub(r"`[^`]*`", "Code", markdown)
    markdown = re.sub(r"</?[a-z][^>]*>", "", markdown)
    # a list item is a paragraph of its own
    markdown = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", markdown, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", markdown):
        words = " ".join(paragraph.replace("*", "").split())
        if re.search(r"[a-z]{2}", words):
            yield words


def sentences(paragraph: str) -> list[str]:
    """Sentences without the points inside of numbers and abbreviations."""
    paragraph = re.sub(r"(?<=\d)[.,](?=\d)", "", paragraph)
    paragraph = re.sub(r"\b(e\.g|i\.e|et al|vs|Fig|Eq)\.", r"\1", paragraph)
    parts = re.split(r"(?<=[.!?:])\s+(?=[^a-z])", paragraph)
    return [part.rstrip(".!?: ").replace(".", " ") + "." for part in parts if part.strip()]


def called_name(call: ast.Call) -> str:
    function = call.func
    return getattr(function, "id", "") or getattr(function, "attr", "")


def message_text(node: ast.expr) -> str | None:
    """The text of a string, with a word in place of each inserted value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (p.value if isinstance(p, ast.Constant) else "value" for p in node.values)
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left = message_text(node.left)
        right = message_text(node.right)
        return None if left is None or right is None else left + right
    return None


def messages(source: str) -> Iterator[str]:
    """Texts of the errors and warnings that a module raises."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not called_name(node).endswith(MESSAGE_CALLS):
            continue
        for argument in node.args[:1]:
            text = message_text(argument)
            if text and " " in text:
                yield " ".join(text.split())


def texts_of(commit: str) -> dict[str, list[str]]:
    """The paragraphs of every group at a commit."""
    files = git("ls-tree", "-r", "--name-only", commit).splitlines()
    found: dict[str, list[str]] = {}
    for group, pattern in GROUPS.items():
        pages = [name for name in files if re.fullmatch(pattern, name)]
        texts = (git("show", f"{commit}:{name}") for name in pages)
        found[group] = [paragraph for text in texts for paragraph in plain_paragraphs(text)]
    modules = [name for name in files if re.fullmatch(r"src/.*\.py", name)]
    sources = (git("show", f"{commit}:{name}") for name in modules)
    found["messages"] = [text for source in sources for text in messages(source)]
    return found


def write_good_counts(program: str, lines: list[str]) -> dict[str, int]:
    """How many suggestions write-good has, and how many of them are about the passive voice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.md")
        path.write_text("\n\n".join(lines), encoding="utf-8")
        output = subprocess.run([program, "--parse", str(path)], capture_output=True, text=True)
    suggestions = [line for line in output.stdout.splitlines() if line.startswith(str(path))]
    passive = sum("passive voice" in line for line in suggestions)
    return {"suggestions": len(suggestions), "passive": passive}


def measure(paragraphs: list[str], write_good: str | None) -> dict[str, float]:
    import textstat

    lines = [sentence for paragraph in paragraphs for sentence in sentences(paragraph)]
    text = " ".join(lines)
    lengths = [len(re.findall(r"[\w'’-]+", line)) for line in lines]
    words = sum(lengths)
    row = {
        "words": words,
        "sentences": len(lines),
        "words a sentence": round(words / len(lines), 1),
        f"sentences over {LONG_SENTENCE} words, %": round(
            100 * sum(length > LONG_SENTENCE for length in lengths) / len(lines), 1
        ),
        "Flesch reading ease": round(textstat.flesch_reading_ease(text), 1),
        "Flesch-Kincaid grade": round(textstat.flesch_kincaid_grade(text), 1),
    }
    if write_good is not None:
        for name, count in write_good_counts(write_good, paragraphs).items():
            row[f"write-good: {name} in 1,000 words"] = round(1000 * count / words, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="what the results are called, such as before or after")
    parser.add_argument("--commit", default="HEAD")
    parser.add_argument("--write-good", help="the program of the npm package write-good")
    arguments = parser.parse_args()
    commit = git("rev-parse", "--short=8", arguments.commit).strip()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    rows = {
        group: measure(paragraphs, arguments.write_good)
        for group, paragraphs in texts_of(commit).items()
    }
    results[arguments.name] = {"commit": commit, "groups": rows}
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for group, row in rows.items():
        print(group, row)


if __name__ == "__main__":
    main()
