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
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_needs_torch_and_numpy_alone() -> None:
    """With every other package hidden, the model and inference import and run."""
    hidden = "safetensors typer rich numba triton sklearn scipy matplotlib PIL"
    code = f"""
import sys
for name in {hidden.split()!r}: sys.modules[name] = None
import whatwhere as ww, torch
model = ww.DeconvNet(ww.ModelSpec.paper())
print(ww.infer(model, torch.rand(1, 1, 8, 8), ww.InferenceSpec(steps=1)).engine)
"""
    assert run(code).strip() == "reference"


def test_help_answers_quickly_and_without_torch() -> None:
    code = "import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.cli import main\ntry: main()\n"
    code += "except SystemExit: pass\nprint('TORCH' if 'torch' in sys.modules else 'LIGHT')"
    assert run(code).strip().endswith("LIGHT")
    seconds = []
    for _ in range(5):  # processor time: the clock on the wall depends on what else the machine does
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.cli import main\nmain()")
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


# What a release writes in several files says the same in all of them ---------------------------------------------


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
