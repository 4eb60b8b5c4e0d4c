"""What a solution says about itself."""

import torch

import whatwhere as ww


def solved(count: int) -> ww.Solution:
    return ww.infer(
        ww.load("mnist"),
        ww.data.load("digits")[:count],
        ww.InferenceSpec(steps=3),
        engine="reference",
    )


def test_values_say_what_they_hold_in_a_line() -> None:
    solution = solved(2)
    latents, stats = solution.latents, solution.stats
    assert repr(latents) == (
        "Latents(2 images, features 48×10×10; where: layer 1: 16×16×16, layer 2: 48×10×10)"
    )
    assert repr(ww.Latents()) == "Latents(no features yet; where: not fitted yet)"
    assert repr(latents[:1].pooling_params[0]) == (
        "PoolingParams(1 image, regions 16×16×16, μ and γ on 2 axes)"
    )
    first, last = stats.cost[0].mean(), stats.cost[-1].mean()
    assert repr(stats) == f"Stats(3 steps of 2 images, mean cost {first:.4g} → {last:.4g})"


def test_a_notebook_shows_the_first_reconstructions() -> None:
    assert solved(2)._repr_html_().count("<img ") == 2
    many = solved(14)
    assert many._repr_html_().count("<img ") == 12
    undecoded = ww.Solution(many.latents, many.stats, "reference")
    assert "<img" not in undecoded._repr_html_()
    signal = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    events = ww.infer(signal, torch.randn(1, 1, 100), ww.InferenceSpec(steps=2), engine="reference")
    assert "<img" not in events._repr_html_()
