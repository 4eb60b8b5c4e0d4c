"""Rises, against sums written out sample by sample."""

import math

import pytest
import torch

from whatwhere.errors import SpecError
from whatwhere.ops.input_stage import InputStage
from whatwhere.ops.rise import louder, rise, rise_reach
from whatwhere.spec import InputSpec, LayerSpec, ModelSpec


def rise_by_hand(x: list[float], known: list[bool], span: int) -> list[float]:
    rises = []
    for t in range(len(x)):
        sides = [range(t, t + span), range(t - span, t)]
        values = [[x[i] for i in side if 0 <= i < len(x) and known[i]] for side in sides]
        enough = all(2 * len(side) >= span for side in values)
        after, before = (sum(side) / max(1, len(side)) for side in values)
        rises.append(after - before if enough else 0.0)
    return rises


def test_a_rise_is_the_mean_after_minus_the_mean_before() -> None:
    x = torch.randn(60, generator=torch.Generator().manual_seed(0))
    known = torch.ones(60)
    known[20:27] = 0
    found = rise(x[None, None, None], 5, known[None, None, None])[0, 0, 0]
    expected = rise_by_hand(x.tolist(), (known > 0).tolist(), 5)
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-6, rtol=0)


def test_a_louder_part_begins_where_its_decibels_say() -> None:
    """Channels that are silent have no influence, nor has silence."""
    x = torch.randn(1, 2, 1, 4000, generator=torch.Generator().manual_seed(0))
    x[..., 2000:] *= 10
    x[..., 3000:] = 0
    x[:, 1] = 0
    found = louder(x, 400)[0, :, 0]
    assert abs(int(found[0].argmax()) - 2000) <= 5
    assert float(found.max()) == pytest.approx(20, abs=1)
    assert torch.equal(found[0], found[1])
    assert float(found[0, 3100:].abs().max()) == 0


@pytest.mark.parametrize("kind", ["rise", "louder"])
def test_the_stage_is_local_and_has_an_inverse(kind: str) -> None:
    stage = InputStage(InputSpec(kind=kind, span=20))  # type: ignore[arg-type]
    x = torch.randn(1, 1, 1, 400, generator=torch.Generator().manual_seed(0))
    target, background = stage.forward(x)
    torch.testing.assert_close(stage.inverse(target, background), x)
    part = stage.forward(x[..., 100:300])[0]
    inside = slice(stage.reach, 200 - stage.reach)
    whole = target[..., 100:300][..., inside]
    torch.testing.assert_close(part[..., inside], whole, atol=1e-4, rtol=0)
    assert stage.reach == rise_reach(20)
    assert math.isfinite(float(target.sum()))


def test_rises_are_for_signals() -> None:
    with pytest.raises(SpecError):
        ModelSpec(layers=(LayerSpec(maps=1),), nonnegative=False, input=InputSpec(kind="rise"))
