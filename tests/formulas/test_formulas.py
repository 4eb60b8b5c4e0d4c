"""Every formula compiled by Numba and by Triton gives the numbers of torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from formula_cases import CASES, expected, inputs, render
from whatwhere.formulas import FORMULAS
from whatwhere.model.sized import objective
from whatwhere.spec import Power


def call(case: str, number: str) -> str:
    """A call of a case's formula with inputs that `number` reads, e.g. 'load({}, i)'."""
    name, arguments = CASES[case]
    return f"formulas.{name}{render(arguments, number.format)}"


def test_every_formula_has_a_case() -> None:
    assert {name for name, _ in CASES.values()} == {formula.__name__ for formula in FORMULAS}


@pytest.mark.parametrize("case", CASES)
def test_numba_computes_the_same_on_vectors(case: str) -> None:
    numba = pytest.importorskip("numba")
    from whatwhere.engines.jit.simd import LANES, load, store
    from whatwhere.engines.jit.vector_math import formulas

    values, target = inputs(), expected(case, inputs())
    found = torch.zeros_like(target).flatten()
    stores = [
        f"store(out, {row} * n + i, {'result' if len(target) == 1 else f'result[{row}]'})"
        for row in range(len(target))
    ]
    body = "\n        ".join([f"result = {call(case, 'load({}, i)')}", *stores])
    source = (
        f"def run(out, n, {', '.join(values)}):\n    for i in range(0, n, {LANES}):\n        {body}"
    )
    scope = {"formulas": formulas, "load": load, "store": store}
    exec(source, scope)
    numba.njit(scope["run"])(
        found.numpy(), target.shape[1], *(value.numpy() for value in values.values())
    )
    torch.testing.assert_close(found.view_as(target), target, rtol=1e-12, atol=1e-13)


KERNELS = """
import json, sys
import torch, triton
import triton.language as tl
from formula_cases import expected, inputs
from whatwhere.engines.triton.math import formulas
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
            f"tl.store(out + {row} * 64 + i, {'result' if rows == 1 else f'result[{row}]'})"
            for row in range(rows)
        ]
        body = "\n    ".join(
            ["i = tl.arange(0, 64)", f"result = {call(case, 'tl.load({} + i)')}", *stores]
        )
        kernels.append(
            f"\n@triton.jit\ndef kernel{number}(out, {', '.join(values)}):\n    {body}\n"
        )
        table.append(f"{case!r}: kernel{number}")
    program = tmp_path / "kernels.py"
    program.write_text(KERNELS.format(kernels="".join(kernels), table=", ".join(table)))
    path = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 0, outcome.stderr[-2000:]
    errors = json.loads(outcome.stdout)
    assert set(errors) == set(CASES)
    assert {case: error for case, error in errors.items() if not error < 1e-9} == {}


# Sparsity -----------------------------------------------------------------------------------------


def by_brute_force(p: float, beta: float, alpha: float) -> float:
    """argmin_u ½ (u - p)² + β |u|^α over a fine grid, refined around its best point."""
    low, high = min(p, 0.0), max(p, 0.0)
    for _ in range(6):
        u = np.append(np.linspace(low, high, 20001), 0.0)
        best = u[np.argmin(0.5 * (u - p) ** 2 + beta * np.abs(u) ** alpha)]
        if best == 0:
            return 0.0
        width = (high - low) / 1000
        low, high = best - width, best + width
    return float(best)


@given(p=st.floats(-5, 5), beta=st.floats(0.001, 3))
def test_soft_threshold_minimises(p: float, beta: float) -> None:
    found = float(Power().shrink(torch.tensor([p], dtype=torch.float64), torch.tensor(beta)))
    assert found == pytest.approx(by_brute_force(p, beta, 1.0), abs=1e-6)


@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.8, 1.0])
@given(p=st.floats(-5, 5).filter(lambda p: abs(p) > 1e-3), beta=st.floats(0.001, 3))
def test_gradient_shrinkage_as_printed(alpha: float, p: float, beta: float) -> None:
    stepped = p - beta * alpha * abs(p) ** (alpha - 1) * np.sign(p)
    expected = stepped if stepped * p > 0 else 0.0
    given = torch.tensor([p], dtype=torch.float64), torch.tensor(beta, dtype=torch.float64)
    found = float(Power(alpha=alpha).shrink(*given))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("alpha", [0.5, 0.7, 1.0])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_zero_stays_zero(alpha: float, beta: float) -> None:
    zero = torch.zeros(3)
    assert (Power(alpha=alpha).shrink(zero, torch.tensor(beta)) == 0).all()


@pytest.mark.parametrize("alpha", [0.5, 0.75, 1.0])
def test_penalty(alpha: float) -> None:
    p = torch.tensor([[-2.0, 0.0], [3.0, 0.25]], dtype=torch.float64)
    expected = [2.0**alpha, 3.0**alpha + 0.25**alpha]
    torch.testing.assert_close(
        objective(p, p, 1.0, Power(alpha=alpha)).penalty,
        torch.tensor(expected, dtype=torch.float64),
    )
