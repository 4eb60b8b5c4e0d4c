"""Rows that forget where: the place has no influence, textures are told apart, few steps."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.classification import anywhere
from whatwhere.classification.anywhere import (
    describe_anywhere,
    describe_where,
    few_steps,
    learn_anywhere,
    map_strengths,
)
from whatwhere.classification.picture_classifier import Describer


def small() -> tuple[ww.DeconvNet, ww.Recipe]:
    layer = ww.LayerSpec(maps=4, filter_size=3, pool_size=2)
    model = ww.DeconvNet(ww.ModelSpec(layers=(layer,)), seed=0)
    recipe = replace(ww.Recipe.paper(model.spec), inference=ww.InferenceSpec(steps=5))
    return model, recipe


def stripes(count: int = 30, side: int = 32) -> tuple[torch.Tensor, np.ndarray]:
    """Stripes across and along, at any phase."""
    generator = torch.Generator().manual_seed(0)
    wave = (torch.arange(side)[None] * 1.5 + 7 * torch.rand(count, 1, generator=generator)).sin()
    wave = (wave + 1) / 2
    across = wave[: count // 2, :, None].expand(-1, side, side)
    along = wave[count // 2 :, None, :].expand(-1, side, side)
    return torch.cat([across, along])[:, None].contiguous(), np.arange(count) // (count // 2)


def test_strengths_do_not_depend_on_the_place() -> None:
    p = torch.rand(3, 5, 8, 8)
    moved = p.roll((3, 2), (2, 3))
    torch.testing.assert_close(map_strengths(p).pictures, map_strengths(moved).pictures)
    assert map_strengths(p).quarters.shape == (3, 4, 5)


def test_textures_are_told_apart_in_their_metric() -> None:
    model, recipe = small()
    images, y = stripes()
    metric = learn_anywhere(model, images, recipe, engine="reference").metric
    rows = metric(describe_anywhere(model, images, recipe, engine="reference"))
    nearest = (rows @ rows.T - 2 * torch.eye(len(rows))).argmax(1)
    assert (y[nearest.numpy()] == y).all()


def test_few_steps_are_taken(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    model, recipe = small()
    taken = []
    infer = anywhere.infer

    def counted(model, images, spec, *rest, **options):  # type: ignore[no-untyped-def]
        taken.append(spec.steps)
        return infer(model, images, spec, *rest, **options)

    monkeypatch.setattr(anywhere, "infer", counted)
    describe_anywhere(model, stripes(4)[0], recipe, engine="reference")
    assert set(taken) == {anywhere.ANYWHERE.steps}
    coding = ww.InferenceSpec.coding()
    assert few_steps(coding).steps == anywhere.ANYWHERE.steps


def test_rows_hold_what_is_at_a_place_anywhere_or_both() -> None:
    model, recipe = small()
    images, _ = stripes(4)
    rows = {}
    for where in ("keep", "forget", "both"):
        chosen = ww.override(recipe, {"descriptor": {"where": where}})
        rows[where] = describe_where(model, images, chosen, engine="reference")
    widths = {where: part.shape[1] for where, part in rows.items()}
    assert widths["both"] == widths["keep"] + widths["forget"]
    np.testing.assert_allclose(np.linalg.norm(rows["both"], axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(rows["both"][:, : widths["keep"]] * 2**0.5, rows["keep"], rtol=1e-5)


def test_the_estimator_and_the_describer_follow_the_choice() -> None:
    images, _ = stripes(12)
    features = ww.DeconvNetFeatures(
        maps=(4,), epochs=1, descriptor=ww.DescriptorSpec(), engine="reference"
    )
    rows = features.fit_transform(images)
    assert features.where_ == "forget"
    assert rows.shape[1] == 4 * len(anywhere.ANYWHERE.scales)
    model, recipe = small()
    metric = learn_anywhere(model, images, recipe, engine="reference").metric
    describe = Describer(model, recipe, None, (1, 32, 32), "reference", metric)
    kept = {name for name in describe.tensors() if not name.startswith("model.")}
    assert kept == {"anywhere.mean", "anywhere.matrix", "anywhere.variances"}
    assert describe(ww.data.load(images)).shape[0] == 12


def test_what_differs_between_the_quarters_of_a_picture_counts_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two columns vary alike between pictures; the first varies as much within them."""
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randn(200, 2, generator=generator)
    noise = torch.randn(200, 4, 2, generator=generator) * torch.tensor([3.0, 0.01])
    part = anywhere.Strengths(pictures, pictures[:, None] + noise)
    monkeypatch.setattr(anywhere, "in_batches", lambda *_: iter([part]))
    model, recipe = small()
    learned = learn_anywhere(model, torch.zeros(200, 1, 32, 32), recipe)
    torch.testing.assert_close(learned.rows, pictures)
    within, between = learned.metric.matrix.norm(dim=0)
    assert within < 0.7 * between
