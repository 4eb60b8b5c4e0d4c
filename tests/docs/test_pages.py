"""The pages: their code runs and prints what they show, their commands exist, their links have a
target.

In a page, a `python` block runs, after those above it, in an empty folder; an `sh` block runs, too.
A `text` block after them is their output, where `...` stands for anything. What is not run says so
in a comment on the line before:

    <!-- parsed, not run: why -->      commands of the program whose options are checked
    <!-- not run: why -->              everything else

`<!-- setup` begins a comment with Python code that makes the files that a page assumes.
"""

import ast
import contextlib
import doctest
import importlib
import io
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import reference_pages
import typer
from typer.testing import CliRunner

from public_names import public_names
from whatwhere.app import app

ROOT = Path(__file__).parents[2]
ALSO = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md")
PAGES = sorted(
    page
    for page in [*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in ALSO)]
    if "_build" not in page.parts and "gallery" not in page.parts
)
KINDS = {"python", "sh", "text", "toml", "json", "{toctree}", "{eval-rst}", "{include}"}
BLOCK = re.compile(
    r"(?:^<!-- (parsed, not run|not run)\b:? ?([^\n]*?) ?-->\n)?^```(\S+)[^\n]*\n(.*?)^```$",
    re.M | re.S,
)
SETUP = re.compile(r"^<!-- setup\n(.*?)^-->$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    place: int
    kind: str
    code: str
    mark: str = ""


def blocks(page: Path) -> list[Block]:
    """The code of a page from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found = [Block(m.start(), m[3], m[4], m[1] or "") for m in BLOCK.finditer(text)]
    found += [Block(m.start(), "python", m[1]) for m in SETUP.finditer(text)]
    return sorted(found, key=lambda block: block.place)


def test_the_page_of_the_recipe_says_where_every_value_is_from() -> None:
    rows = re.findall(r"^\| `([a-z_.A-Z]+)` \|.*", reference_pages.recipe(), re.M)
    assert reference_pages.PAPER.keys() <= set(rows), "a setting that no longer exists"
    page = reference_pages.recipe()
    assert "| `batch_size` | integer | `1000` | ours |" in page
    assert '| `inference.step.per` | `"image"`, `"batch"` | `"image"` | ours |' in page
    assert '`learning.each.inference.step.per` | `"image"`, `"batch"` | `"batch"` | 3.1 |' in page


def test_the_table_of_deviations_is_numbered_and_names_tests_that_exist() -> None:
    page = (ROOT / "docs/explanation/mathematics.md").read_text(encoding="utf-8")
    table = page.partition("## Where we deviate from the printed paper")[2]
    rows = re.findall(r"^\| (\d+) \|(.*)\|([^|]*)\|$", table, re.MULTILINE)
    assert [int(number) for number, _, _ in rows] == list(range(1, len(rows) + 1))
    for number, _, checked in rows:
        files = re.findall(r"`(tests/[\w/.]+)`", checked)
        assert all((ROOT / file).is_file() for file in files), number


@pytest.mark.parametrize("page", ["docs/reference/reliability.md", "tests/attack/README.md"])
def test_tests_that_a_table_names_exist(page: str) -> None:
    """Each row names files, and after each file tests without their `test_`; a name may be the
    beginning of one, after `…` its end."""
    files: dict[str, str] = {}
    for file in (ROOT / "tests").rglob("test_*.py"):
        files[file.name] = files.get(file.name, "") + file.read_text()
    named = 0
    for line in (ROOT / page).read_text().splitlines():
        if not line.startswith("|"):
            continue
        text = ""
        for word in re.findall(r"`([^`]+)`", line.split("|")[2]):
            if word.endswith(".py"):
                text = files[word]
            elif text:
                start = "" if word.startswith("…") else "test_"
                assert re.search(rf"def \w*{start}{word.strip('…')}", text), word
                named += 1
    assert named > 20


@pytest.mark.parametrize("equation", [2, 3, 10, 16, 17, 18])
def test_a_misprinted_equation_is_marked_in_the_code(equation: int) -> None:
    """The table says why; the line in the code says where."""
    page = (ROOT / "docs/explanation/mathematics.md").read_text(encoding="utf-8")
    table = page.partition("## Where we deviate from the printed paper")[2]
    named = rf"Eqns?\. (\d+ and )?{equation}\b"
    assert re.search(named, table)
    sources = (ROOT / "src/whatwhere").rglob("*.py")
    lines = [line for file in sources for line in file.read_text(encoding="utf-8").splitlines()]
    marked = [line for line in lines if "Deviation:" in line]
    assert any(re.search(named, line) for line in marked)


def test_only_a_mark_keeps_a_block_from_running(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- setup\nx = 1\n-->\n```python\nprint(x)\n```\n<!-- not run: why -->\n```sh\nrm"
        " x\n```\n",
        encoding="utf-8",
    )
    assert [(b.kind, b.code, b.mark) for b in blocks(page)] == [
        ("python", "x = 1\n", ""),
        ("python", "print(x)\n", ""),
        ("sh", "rm x\n", "not run"),
    ]


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def runs(page: Path) -> bool:
    return any(block.kind in ("python", "sh") and not block.mark for block in blocks(page))


@pytest.mark.documentation
@pytest.mark.parametrize("page", list(filter(runs, PAGES)), ids=relative)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("sklearn", "matplotlib", "PIL"):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    printed = ""
    for block in blocks(page):
        if block.kind == "text":
            if printed:
                assert doctest.OutputChecker().check_output(
                    block.code, printed.replace("cuda:0", "cpu"), doctest.ELLIPSIS
                ), printed
            printed = ""
        elif block.kind == "python" and not block.mark:
            printed = run_python(block.code, names, f"{relative(page)}:{line_of(page, block)}")
        elif block.kind == "sh" and not block.mark:
            printed = run_commands(block.code)


def line_of(page: Path, block: Block) -> int:
    return page.read_text(encoding="utf-8")[: block.place].count("\n") + 1


def run_python(code: str, names: dict[str, object], where: str) -> str:
    with (
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        exec(compile(code, where, "exec"), names)
    return output.getvalue()


def run_commands(code: str) -> str:
    printed = ""
    for program, *arguments in commands(code):
        assert program == "whatwhere", f"{program}: mark the block as not run"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        printed += result.stdout
    return printed


def commands(code: str) -> list[list[str]]:
    """The commands of a block as lists of words; those of a launcher after `-m` are the
    program's."""
    lines = code.replace("\\\n", " ").splitlines()
    words = [shlex.split(line, comments=True) for line in lines]
    return [line[line.index("-m") + 1 :] if "-m" in line else line for line in words if line]


PARSED = [
    (page, words)
    for page in PAGES
    for block in blocks(page)
    if block.kind == "sh"
    for words in commands(block.code)
]


@pytest.mark.parametrize(
    ("page", "words"), PARSED, ids=lambda value: relative(value) if isinstance(value, Path) else ""
)
def test_a_command_exists_with_its_options(page: Path, words: list[str]) -> None:
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
    if words[0] != "whatwhere" or words[1].startswith("-"):
        return
    command, arguments = typer.main.get_command(app), words[1:]
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    # raises for an option that does not exist and for a missing argument
    command.make_context("", arguments)


def test_the_page_of_installation_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(project["optional-dependencies"]) - {"photographs"}  # for measurements
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.M)) == extras


def names_of(command: object, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The names of a command and of its sub-commands, and all their options."""
    yield " ".join(path)
    for parameter in command.params:  # type: ignore[attr-defined]
        yield from (*parameter.opts, *parameter.secondary_opts)
    for name, below in getattr(command, "commands", {}).items():
        yield from names_of(below, (*path, name))


OF_OTHERS = {"--help", "--version", "--prefix", "--array", "--first"}  # npm, sbatch, a script
OF_SCRIPTS = {"CONTRIBUTING.md", "RELEASING.md", "was_is.md"}  # the last has old forms


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.parent.name != "results" and p.name not in OF_SCRIPTS],
    ids=relative,
)
def test_options_and_commands_in_sentences_exist(page: Path) -> None:
    known = set(names_of(typer.main.get_command(app))) | OF_OTHERS
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    named = set()
    for code in re.findall(r"`([^`]+)`", text):
        if "python" not in code:
            named |= set(re.findall(r"(?:^|\s)(--[a-z][\w-]*)", code))
        if command := re.match(r"whatwhere ([a-z]+)(?=[^\d]*$)", code):
            named.add(command[1])
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_block_has_a_known_kind_and_no_code_is_indented(page: Path) -> None:
    assert {block.kind for block in blocks(page)} <= KINDS
    text = BLOCK.sub("", SETUP.sub("", page.read_text(encoding="utf-8")))
    assert "```" not in text, "a block without a kind"
    if page.name != "CONTRIBUTING.md":
        assert (
            re.findall(r"^    (?:whatwhere|torchrun|python|import|from) .*$", text, re.MULTILINE)
            == []
        )


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_has_a_target(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    broken = []
    for link in links:
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        generated = "gallery/" in link  # made by the build, which checks links to it
        if not generated and (not target.exists() or (anchor and anchor not in anchors(target))):
            broken.append(link)
    assert broken == []


MODEL_PAGES = {"training", "inference", "generate", "figures"}  # the how-tos of the model itself
WORDS_OF_THE_MODEL = re.compile(r"\b(latents?|phases?|representations?)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    "page",
    [
        page
        for page in PAGES
        if page.parent.name in ("howto", "tutorial", "docs") or page.name == "README.md"
        if page.stem not in MODEL_PAGES | {"architecture"}
    ],
    ids=relative,
)
def test_words_of_the_model_stay_in_its_pages(page: Path) -> None:
    """Elsewhere, a picture's features and positions are its code (docs/reference/glossary.md)."""
    text = BLOCK.sub("", SETUP.sub("", page.read_text(encoding="utf-8")))
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    assert WORDS_OF_THE_MODEL.findall(text) == []


def test_every_picture_is_drawn_by_a_script_and_shown_on_a_page() -> None:
    scripts = "".join(
        script.read_text(encoding="utf-8") for script in ROOT.glob("docs/*_pictures.py")
    )
    pages = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = sorted(ROOT.glob("docs/images/*"))
    assert len(pictures) > 20
    assert [
        p.name for p in pictures if not re.search(rf"[\"']{p.stem}({p.suffix})?[\"']", scripts)
    ] == []
    assert [p.name for p in pictures if f"images/{p.name})" not in pages] == []


def test_pages_that_the_source_names_exist() -> None:
    folders = [ROOT / name for name in ("src", "benchmarks", "reproduction", "examples")]
    files = [file for folder in folders for file in folder.rglob("*")]
    texts = {
        f: f.read_text(encoding="utf-8")
        for f in files
        if f.suffix in (".py", ".toml", ".md", ".js")
    }
    named = {
        (f.name, page)
        for f, text in texts.items()
        for page in re.findall(r"\bdocs/[\w/]+\.md\b", text)
    }
    assert len(named) > 10
    assert [pair for pair in sorted(named) if not (ROOT / pair[1]).is_file()] == []


@pytest.mark.parametrize(
    "page",
    [p for p in PAGES if p.parent.name == "tutorial" or p.name in ("start.md", "README.md")],
    ids=relative,
)
def test_code_that_is_read_first_fits_between_the_side_bars(page: Path) -> None:
    """The site shows 96 characters of code on a screen of 1280 pixels (docs/_static/site.css)."""
    lines = [
        line
        for block in blocks(page)
        if block.kind in ("python", "sh")
        for line in block.code.splitlines()
    ]
    assert [line for line in lines if len(line) > 96] == []


SOURCES = [
    path.relative_to(ROOT).as_posix()
    for folder in (".ci", "src", "tests", "docs", "benchmarks", "reproduction", "examples")
    for path in (ROOT / folder).rglob("*.*")
]
IMAGINED = {"similarity.py", "app/similar.py"}  # an example of a new task
HISTORY = "trials.md"  # names files as they were


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != HISTORY], ids=lambda page: page.name
)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|jsonl?|toml|txt|js|mjs))`", text))
    missing = {
        name
        for name in named - IMAGINED
        if not any(source == name or source.endswith(f"/{name}") for source in SOURCES)
    }
    assert missing == set()


def anchors(page: Path) -> list[str]:
    """The anchors of a page: its headings in lower case with hyphens."""
    text = page.read_text(encoding="utf-8")
    if included := re.match(r"```\{include\} (\S+)", text):
        return anchors(page.parent / included[1])
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]


# The reference is current: pages made from the program, and a place for every public name ---------


API = Path(reference_pages.__file__).parent / "reference" / "api"


@pytest.mark.parametrize("path", reference_pages.pages(), ids=lambda path: path.name)
def test_a_page_is_current(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == reference_pages.pages()[path], (
        "run: python docs/reference_pages.py"
    )


def documented() -> Counter[str]:
    """The full names on the API pages."""
    names: Counter[str] = Counter()
    for page in API.glob("*.md"):
        module = ""
        for kind, name in re.findall(
            r"^\.\. (\w+):: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE
        ):
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
    names = [
        name
        for row in re.findall(r"^\|.*\| (`[^|]*`) \|.*\|$", table, re.MULTILINE)
        for name in row.split(", ")
    ]
    assert len(names) > 25
    assert [name for name in names if not exists(name.strip("`"))] == []


def exists(name: str) -> bool:
    """Is there such a name below `whatwhere`: a module, what it holds, and a field or method of
    that?"""
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


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "gallery").glob("*.py"))


def test_there_are_at_least_ten_examples() -> None:
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_a_title_and_an_explanation(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, underline, *text = (ast.get_docstring(tree) or "").splitlines()
    assert title
    assert underline == "=" * len(title)
    assert len(" ".join(text)) > 50


def test_the_fine_tuning_example_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = EXAMPLES[0].parents[1] / "finetuning.py"
    source = path.read_text(encoding="utf-8")
    small = source.replace("2, 40, 25, 500, 500, 10.0", "1, 1, 5, 40, 5, 10.0")
    assert small != source
    exec(compile(small, path, "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.count("%") == 3
