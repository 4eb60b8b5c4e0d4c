"""Random problems: the CPU engine and the reference in float32 against the reference in float64.

`make compare` runs 5,000 of them; `random_agreement.py` says what counts as agreement.
"""

import sys
from pathlib import Path

import pytest
import torch

from whatwhere.engines.reference import ista
from whatwhere.spec import Fixed

sys.path.insert(0, str(Path(__file__).parent))
import random_agreement
from random_agreement import Comparer, Comparison, compare, compare_many, draw

ENGINES = ["cpu float64", "cpu float32", "reference float32"]


# where the sums of the gradient of μ cancel, and images of 1e19, in which features of the size of
# rounding errors stay
DIFFICULT = [1238, 1817, 1_000_009]


def test_engines_agree_on_random_problems() -> None:
    pytest.importorskip("numba")
    verdicts = []
    for number in [*range(30), *DIFFICULT]:
        for engine, found in compare(ENGINES, number).items():
            assert found.verdict in ("agrees", "skipped") or number not in DIFFICULT, (
                number,
                engine,
                found,
            )
            assert found.verdict != "DISAGREES", (number, engine, found)
            verdicts.append(found.verdict)
    assert verdicts.count("agrees") > 0.95 * len(verdicts)


def test_a_wrong_engine_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is one part in a thousand too long disagrees; rounding does not explain it."""
    pytest.importorskip("numba")
    search = ista.line_search
    monkeypatch.setattr(ista, "line_search", lambda *arguments: 1.001 * search(*arguments))
    found = [compare(["cpu float64"], number)["cpu float64"] for number in range(10)]
    moving = [
        draw(number).spec.steps > 0 and not isinstance(draw(number).spec.step, Fixed)
        for number in range(10)
    ]
    assert sum(moving) >= 4
    assert all(
        comparison.verdict == "DISAGREES"
        for comparison, moves in zip(found, moving, strict=True)
        if moves
    ), found
    assert isinstance(found[0], Comparison)


def test_problems_are_those_of_their_number() -> None:
    one, two = draw(7), draw(7)
    assert one.spec == two.spec
    assert torch.equal(one.images, two.images)
    assert one.model == two.model


def test_a_case_beyond_the_tolerance_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report describes the problem, whatever its settings are."""
    wrong = Comparison("DISAGREES", 0.5, "features", 1e-6)
    monkeypatch.setattr(random_agreement, "compare", lambda engines, number: {"cpu float64": wrong})
    compare_many(Comparer(["cpu float64"], 60.0), range(30), processes=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 30
    assert all("features differs by 0.5, DISAGREES" in line for line in lines)
    assert all("images [" in line and "steps=" in line for line in lines)
