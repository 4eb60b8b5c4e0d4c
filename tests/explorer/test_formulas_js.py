"""Every formula of the page gives the numbers of `ops.formulas`."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from explorer.node import PAGE, needs_node, run_node
from formula_cases import CASES, evaluate, expected, inputs
from whatwhere.ops.formulas import FORMULAS

EXPORT = re.compile(r"^export (?:const|function) (\w+)", re.MULTILINE)
NAMES = [name for name in EXPORT.findall((PAGE / "formulas.js").read_text(encoding="utf-8")) if name != "clamp"]


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
    done = run_node(Path(__file__).parent / "formulas.mjs", PAGE, path)
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


# The page's modules under TypeScript's checker, where it is installed --------------------------------------------


CHECK = "--noEmit --allowJs --checkJs --strict --target es2022 --lib es2022,dom,dom.iterable --module es2022"


@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs TypeScript (tsc), which is not installed")
def test_the_modules_are_well_typed() -> None:
    files = sorted(map(str, PAGE.glob("*.js")))
    assert len(files) > 10
    command = ["tsc", *CHECK.split(), "--moduleResolution", "bundler", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout


# The hues of the page are those of the figures -------------------------------------------------------------------


@needs_node
@pytest.mark.parametrize("features", [1, 2, 3, 8, 16, 25, 48])
def test_hues_are_those_of_the_figures(features: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from whatwhere.figures.tiles import feature_colours

    script = tmp_path / "colours.mjs"
    script.write_text(
        f'import {{ featureColours }} from "{(PAGE / "pictures.js").as_uri()}";\n'
        f"console.log(JSON.stringify(featureColours({features})));\n"
    )
    np.testing.assert_allclose(run_node(script), feature_colours(features), atol=1e-9)
