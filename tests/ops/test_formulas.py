"""Every formula compiled by Numba and by Triton gives the numbers of torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from formula_cases import CASES, expected, inputs, render
from whatwhere.ops.formulas import FORMULAS


def call(case: str, number: str) -> str:
    """A call of a case's formula with inputs that `number` reads, e.g. 'load({}, i)'."""
    name, arguments = CASES[case]
    return f"formulas.{name}{render(arguments, number.format)}"


def test_every_formula_has_a_case() -> None:
    assert {name for name, _ in CASES.values()} == {formula.__name__ for formula in FORMULAS}


@pytest.mark.parametrize("case", CASES)
def test_numba_computes_the_same_on_vectors(case: str) -> None:
    numba = pytest.importorskip("numba")
    from whatwhere.inference.engines.jit.simd import LANES, load, store
    from whatwhere.inference.engines.jit.vector_math import formulas

    values, target = inputs(), expected(case, inputs())
    found = torch.zeros_like(target).flatten()
    stores = [
        f"store(out, {row} * n + i, {'result' if len(target) == 1 else f'result[{row}]'})" for row in range(len(target))
    ]
    body = "\n        ".join([f"result = {call(case, 'load({}, i)')}", *stores])
    source = f"def run(out, n, {', '.join(values)}):\n    for i in range(0, n, {LANES}):\n        {body}"
    scope = {"formulas": formulas, "load": load, "store": store}
    exec(source, scope)
    numba.njit(scope["run"])(found.numpy(), target.shape[1], *(value.numpy() for value in values.values()))
    torch.testing.assert_close(found.view_as(target), target, rtol=1e-12, atol=1e-13)


KERNELS = """
import json, sys
import torch, triton
import triton.language as tl
from formula_cases import expected, inputs
from whatwhere.inference.engines.triton.formulas import formulas
{kernels}
values, errors = inputs(), {{}}
for case, kernel in {{{table}}}.items():
    target = expected(case, values)
    found = torch.zeros_like(target)
    kernel[(1,)](found, *values.values())
    errors[case] = float((found - target).abs().max())
print(json.dumps(errors))
"""


def test_triton_computes_the_same_in_its_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    kernels, table, values = [], [], inputs()
    for number, case in enumerate(CASES):
        rows = len(expected(case, values))
        stores = [
            f"tl.store(out + {row} * 64 + i, {'result' if rows == 1 else f'result[{row}]'})" for row in range(rows)
        ]
        body = "\n    ".join(["i = tl.arange(0, 64)", f"result = {call(case, 'tl.load({} + i)')}", *stores])
        kernels.append(f"\n@triton.jit\ndef kernel{number}(out, {', '.join(values)}):\n    {body}\n")
        table.append(f"{case!r}: kernel{number}")
    program = tmp_path / "kernels.py"
    program.write_text(KERNELS.format(kernels="".join(kernels), table=", ".join(table)))
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)], env=environment, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    errors = json.loads(outcome.stdout)
    assert set(errors) == set(CASES)
    assert {case: error for case, error in errors.items() if not error < 1e-9} == {}
