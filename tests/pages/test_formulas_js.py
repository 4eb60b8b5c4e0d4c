"""Every formula of the page gives the numbers of `formulas`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d

from formula_cases import CASES, evaluate, expected, inputs
from pages.opened import PAGE, PAGE_MJS, needs_node, run_node
from whatwhere.formulas import FORMULAS

EXPORT = re.compile(r"^export (?:const|function) (\w+)", re.MULTILINE)
NAMES = [
    name
    for name in EXPORT.findall((PAGE / "formulas.js").read_text(encoding="utf-8"))
    if name != "clamp"
]


def snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda letter: "_" + letter[0].lower(), name)


def row_of(argument: object, row: int) -> object:
    """The number of one row of a tensor, or of every tensor in a tuple."""
    if isinstance(argument, tuple):
        return [row_of(part, row) for part in argument]
    return argument[row].item() if isinstance(argument, torch.Tensor) else argument


def test_every_formula_of_the_page_is_one_of_the_library() -> None:
    assert len(NAMES) > 10
    assert {snake(name) for name in NAMES} <= {formula.__name__ for formula in FORMULAS}


@needs_node
def test_the_page_computes_the_same(tmp_path: Path) -> None:
    values = inputs()
    by_name = {snake(name): name for name in NAMES}
    cases = [case for case, (name, _) in CASES.items() if name in by_name]
    calls = []
    for case in cases:
        name, arguments = CASES[case]
        given = evaluate(arguments, values)
        calls.append([by_name[name], [row_of(given, row) for row in range(len(values["x"]))]])
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(calls))
    done = run_node(PAGE_MJS, "formulas", PAGE, path)
    assert set(done["names"]) == {*NAMES, "clamp"}
    for case, result in zip(cases, done["results"], strict=True):
        found = torch.tensor(result, dtype=torch.float64)
        found = found.T if found.dim() == 2 else found[None]
        torch.testing.assert_close(
            found,
            expected(case, values).double(),
            rtol=1e-11,
            atol=1e-13,
            msg=lambda text, case=case: f"{case}: {text}",
        )


# The page's modules under TypeScript's checker, where it is installed -----------------------------


CHECK = (
    "--noEmit --allowJs --checkJs --strict --target es2022 --lib es2022,dom,dom.iterable --module"
    " es2022"
)


@pytest.mark.skipif(
    shutil.which("tsc") is None, reason="needs TypeScript (tsc), which is not installed"
)
def test_the_modules_are_well_typed() -> None:
    files = sorted(map(str, PAGE.glob("*.js")))
    assert len(files) > 10
    command = ["tsc", *CHECK.split(), "--moduleResolution", "bundler", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout


# The hues of the page are those of the figures ----------------------------------------------------


@needs_node
def test_hues_are_those_of_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from whatwhere.figures.style import feature_colours

    counts = [1, 2, 3, 8, 16, 25, 48]
    script = tmp_path / "colours.mjs"
    script.write_text(
        f'import {{ featureColours }} from "{(PAGE / "pictures.js").as_uri()}";\n'
        f"console.log(JSON.stringify({counts}.map((count) => featureColours(count))));\n"
    )
    for features, found in zip(counts, run_node(script), strict=True):
        np.testing.assert_allclose(found, feature_colours(features), atol=1e-9)


# The page's convolutions against PyTorch's --------------------------------------------------------


SHAPES = {
    "5×5": (8, 12, 5, 11, 18, 1.0),
    "a map smaller than the filters": (8, 12, 5, 3, 2, 1.0),
    "a sparse signal": (8, 12, 5, 11, 18, 0.02),
    "one channel": (1, 6, 5, 13, 9, 1.0),
    "3×3": (8, 12, 3, 7, 10, 1.0),
}


def convolved(
    below: int, maps: int, size: int, height: int, width: int, density: float
) -> tuple[dict[str, object], dict[str, torch.Tensor]]:
    """A case for the page, and what PyTorch makes of it."""
    chance = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=chance, dtype=torch.float64)
        return values * (torch.rand(shape, generator=chance) < density)

    connected = torch.rand(below, maps, generator=chance) < (0.8 if below > 1 else 1.0)
    drawn = torch.randn(below, maps, size, size, generator=chance)
    filters = drawn * connected[:, :, None, None]
    z, signal = draw(maps, height + size - 1, width + size - 1), draw(below, height, width)
    sizes = {"below": below, "maps": maps, "size": size, "height": height, "width": width}
    arrays = {"filters": drawn, "connected": connected.int(), "z": z, "signal": signal}
    kernel = filters.double().flip(2, 3)  # conv2d correlates
    truth = {"down": conv2d(z[None], kernel), "up": conv_transpose2d(signal[None], kernel)}
    return sizes | {name: values.flatten().tolist() for name, values in arrays.items()}, truth


@needs_node
def test_convolutions_agree_with_pytorch(tmp_path: Path) -> None:
    """One process for all cases, in which none may leave anything behind for the next."""
    cases = [convolved(*shape) for shape in SHAPES.values()]
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([given for given, _ in cases]))
    results = run_node(PAGE_MJS, "convolutions", PAGE, path)
    for name, (_, truth), result in zip(SHAPES, cases, results, strict=True):
        for way, values in truth.items():
            np.testing.assert_allclose(
                result[way], values.flatten(), atol=1e-11, err_msg=f"{name}, {way}"
            )
