"""The package from outside: what importing it costs, and how the program starts."""

import re
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import whatwhere as ww


def run(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout


def test_importing_needs_torch_and_numpy_alone() -> None:
    """Nothing else is imported. With every other package hidden and without a network, the model,
    inference and the digits work, the command line imports without matplotlib, and `figures` says
    what to install."""
    code = """
import socket, sys
import torch, whatwhere as ww, whatwhere.engines
others = {"safetensors", "typer", "rich", "numba", "triton", "sklearn", "scipy", "matplotlib", "PIL"}
print(others & set(sys.modules))
socket.socket.connect = None
for name in others: sys.modules[name] = None
model = ww.DeconvNet(ww.ModelSpec.paper())
print(ww.infer(model, torch.rand(1, 1, 8, 8), ww.InferenceSpec(steps=1)).engine)
print(ww.data.load("digits")[:3].shape)
for name in ("typer", "rich"): del sys.modules[name]
import whatwhere.app
try: ww.figures
except ww.errors.MissingExtra as error: print(error)
"""  # noqa: E501
    imported, engine, digits, error = run(code).strip().split("\n", 3)
    assert (imported, engine, digits) == ("set()", "reference", "torch.Size([3, 1, 28, 28])")
    assert "pip install matplotlib" in error


def test_help_answers_quickly_and_without_torch() -> None:
    code = (
        "import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.app import main\ntry:"
        " main()\n"
    )
    code += "except SystemExit: pass\nprint('TORCH' if 'torch' in sys.modules else 'LIGHT')"
    assert run(code).strip().endswith("LIGHT")
    seconds = []
    # processor time: the clock on the wall depends on what else the machine does
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run(
            "import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.app import main\nmain()"
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.8


def test_every_public_name_is_there() -> None:
    for name in ww.__all__:
        getattr(ww, name)
    assert re.fullmatch(r"\d+\.\d+\.\d+", ww.__version__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        ww.nothing  # noqa: B018


# What a release writes in several files says the same in all of them ------------------------------


ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOWEST = dict(
    re.match(r"([\w-]+)(?:\[[\w,]+\])?>=([\d.]+)", requirement).groups()
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in requirements
    if ">=" in requirement
)


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: ([\d.]+)$"),
        ("conda/recipe.yaml", r'^  version: "([\d.]+)"$'),
        ("docs/start.md", r"^whatwhere (\d+\.\d+\.\d+)$"),
        ("CHANGELOG.md", r"^## \[(\d+\.\d+\.\d+)\]"),
    ],
)
def test_the_version_is_the_same_everywhere(file: str, pattern: str) -> None:
    """In the changelog, the newest version comes first."""
    versions = re.findall(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert versions[0] == ww.__version__
    assert len(versions) == 1 or file == "CHANGELOG.md"


def test_the_citation_has_the_fields_of_its_format_and_the_date_of_the_release() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    fields = dict(re.findall(r"^([a-z-]+): *(.*)$", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors", "license"} <= set(fields)
    assert re.search(r"^authors:\n  - (?:name|family-names|given-names): \S", text, re.MULTILINE)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{ww.__version__}] - {fields['date-released']}" in changelog.replace("–", "-")


def test_the_oldest_versions_that_are_tested_are_the_oldest_that_are_allowed() -> None:
    tested = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / ".ci" / "oldest.txt").read_text(), re.MULTILINE)
    )

    def parts(version: str) -> tuple[int, ...]:
        return (*map(int, version.split(".")), 0, 0)[:3]

    assert {name: parts(version) for name, version in tested.items()} == {
        name: parts(version)
        for name, version in LOWEST.items()
        if name not in ("triton", "ray")  # comes with torch; has a cluster of its own
    }


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    recipe = dict(
        re.findall(
            r"^    - ([\w-]+) >=([\d.]+)",
            (ROOT / "conda" / "recipe.yaml").read_text(),
            re.MULTILINE,
        )
    )
    for extra in ("cpu", "sklearn", "figures", "data"):
        for requirement in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]):
            name = re.match(r"[\w-]+", requirement)[0]
            assert recipe[names.get(name, name)] == LOWEST[name]
