"""What a release writes in several files says the same in all of them."""

import re
import tomllib
from pathlib import Path

import pytest

import whatwhere as ww

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOWEST = dict(
    re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
    for requirements in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for requirement in requirements
    if ">=" in requirement
)


@pytest.mark.parametrize(
    ("file", "pattern"),
    [("CITATION.cff", r"^version: ([\d.]+)$"), ("conda/recipe.yaml", r'^  version: "([\d.]+)"$')],
)
def test_the_version_is_the_same_everywhere(file: str, pattern: str) -> None:
    assert re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE) == [ww.__version__]


def test_the_oldest_versions_that_are_tested_are_the_oldest_that_are_allowed() -> None:
    tested = dict(re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / ".ci" / "oldest.txt").read_text(), re.MULTILINE))

    def parts(version: str) -> tuple[int, ...]:
        return (*map(int, version.split(".")), 0, 0)[:3]

    assert {name: parts(version) for name, version in tested.items()} == {
        name: parts(version)
        for name, version in LOWEST.items()
        if name != "triton"  # comes with torch
    }


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    names = {"torch": "pytorch", "matplotlib": "matplotlib-base"}
    recipe = dict(re.findall(r"^    - ([\w-]+) >=([\d.]+)", (ROOT / "conda" / "recipe.yaml").read_text(), re.MULTILINE))
    for extra in ("cpu", "sklearn", "figures", "data"):
        for requirement in (*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]):
            name = re.match(r"[\w-]+", requirement)[0]
            assert recipe[names.get(name, name)] == LOWEST[name]
