"""The page's engine against the reference engine in float64, on vectors that Python writes here."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pages.opened import PAGE, PAGE_MJS, needs_node, run_node
from whatwhere import models
from whatwhere.data import load as load_data
from whatwhere.engines.reference import ista
from whatwhere.explorer.page import pack_model, pack_settings
from whatwhere.model import DeconvNet, Problem, load
from whatwhere.spec import InferenceSpec, InputSpec, LayerSpec, ModelSpec, MomentFit, Power
from whatwhere.spec.recipe import joint

TRAINED = models.path("mnist")


def drawn(*layers: LayerSpec, **settings: Any) -> DeconvNet:
    return DeconvNet(ModelSpec(layers=layers, **settings), seed=3)


def digit() -> torch.Tensor:
    return load_data("digits", split="test")[7:8]


def blob(channels: int, height: int, width: int) -> torch.Tensor:
    """A smooth image with an empty border, so that zeros are met as well."""
    noise = torch.rand(
        1, channels, height - 4, width - 4, generator=torch.Generator().manual_seed(1)
    )
    smooth = torch.nn.functional.avg_pool2d(noise, 3, stride=1, padding=1)
    return torch.nn.functional.pad(smooth, (2, 2, 2, 2))


CASES = {
    "paper": (lambda: load(TRAINED), digit, {"steps": 50}),
    "one layer": (lambda: drawn(LayerSpec(maps=8)), digit, {}),
    "three layers": (
        lambda: drawn(
            LayerSpec(maps=4), LayerSpec(maps=6, fan_in=2), LayerSpec(maps=5, filter_size=3)
        ),
        lambda: blob(1, 24, 20),
        {"lam": 20.0},
    ),
    "colour": (
        lambda: drawn(LayerSpec(maps=6), LayerSpec(maps=8), channels=3),
        lambda: blob(3, 17, 19),
        {"lam": 10.0},
    ),
    "max pooling": (lambda: with_kind(load(TRAINED), "max"), digit, {}),
    "sum pooling": (lambda: with_kind(load(TRAINED), "sum"), digit, {}),
    "overlapping regions of 3": (
        lambda: drawn(
            LayerSpec(maps=4, filter_size=4, pool_size=3, pool_stride=2),
            LayerSpec(maps=5, pool_size=3),
        ),
        lambda: blob(1, 18, 21),
        {"lam": 10.0, "moments": MomentFit(power=1)},
    ),
    "signed, α ½": (
        lambda: drawn(LayerSpec(maps=6), LayerSpec(maps=8, fan_in=3), nonnegative=False),
        lambda: blob(1, 16, 16) - 0.3,
        {"penalty": Power(alpha=0.5), "lam": 2.0, "pooling_step": 1.0},
    ),
    "ON and OFF": (
        lambda: drawn(
            LayerSpec(maps=6), LayerSpec(maps=8, fan_in=3), input=InputSpec(kind="onoff", sigma=1.5)
        ),
        lambda: blob(1, 17, 19),
        {"lam": 20.0},
    ),
    "ON and OFF, colour, even contrast": (
        lambda: drawn(
            LayerSpec(maps=6),
            LayerSpec(maps=8),
            channels=3,
            input=InputSpec(kind="onoff", contrast=0.7),
        ),
        lambda: blob(3, 17, 19),
        {"lam": 20.0},
    ),
    "high-pass, even contrast": (
        lambda: drawn(
            LayerSpec(maps=6),
            nonnegative=False,
            input=InputSpec(kind="highpass", sigma=2.0, contrast=1.0, contrast_sigma=2.0),
        ),
        lambda: blob(1, 16, 21),
        {"lam": 10.0},
    ),
    "α ¾": (lambda: load(TRAINED), digit, {"penalty": Power(alpha=0.75)}),
}


def with_kind(model: DeconvNet, kind: Any) -> DeconvNet:
    layers = tuple(replace(layer, pooling=kind) for layer in model.spec.layers)
    return DeconvNet.from_parts(
        replace(model.spec, layers=layers), model.filters, model.connectivity
    )


@pytest.fixture(scope="module", params=CASES)
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """What the reference engine found in float64, and what the page's engine found: start, one
    step, all steps."""
    make_model, make_image, changes = CASES[request.param]
    model, image, spec = make_model(), make_image(), InferenceSpec(**{"steps": 15, **changes})
    case = {
        "model": pack_model(model),
        "height": image.shape[2],
        "width": image.shape[3],
        "image": image.flatten().tolist(),
        "settings": pack_settings(spec),
    }
    path = tmp_path_factory.mktemp("golden") / "case.json"
    path.write_text(json.dumps(case))
    exact = model.to(torch.float64)
    v, background = exact.input_stage.forward(image.double(), None)
    phase = joint(model.spec.depth)[0]
    truth = [
        ista.solve(Problem(exact, v, phase, replace(spec, steps=steps)))
        for steps in (0, 1, spec.steps)
    ]
    found = run_node(PAGE_MJS, "inference", PAGE, path)
    latents = replace(truth[2].latents, background=background)
    return truth, found | {
        "true_signal": v,
        "true_reconstruction": exact.at(*image.shape[2:]).decode(latents),
    }


def relative(found: Any, truth: torch.Tensor) -> float:
    exact = truth.flatten().numpy()
    return float(
        np.linalg.norm(np.array(found).ravel() - exact) / max(np.linalg.norm(exact), 1e-12)
    )


def theta_of(solution: Any, k: int) -> torch.Tensor:
    """θ of a layer in the page's order: μ_y, μ_x, γ_y, γ_x."""
    theta = solution.latents.pooling_params[k]
    return torch.cat([theta.mu[0], theta.gamma[0]])


@needs_node
@pytest.mark.parametrize(
    ("state", "tolerance"), [(0, 1e-5), (1, 1e-5), (2, 1e-3)], ids=["start", "1 step", "end"]
)
def test_features_and_pooling_variables_agree(both: Any, state: int, tolerance: float) -> None:
    truth, found = both
    assert relative(found["states"][state]["p"], truth[state].features) < tolerance
    for k, theta in enumerate(found["states"][state]["theta"]):
        assert relative(theta, theta_of(truth[state], k)) < tolerance
    if state == 2:
        assert truth[state].features.count_nonzero() > 0, "nothing was compared"


@needs_node
def test_the_signal_and_the_reconstruction_agree(both: Any) -> None:
    _, found = both
    assert relative(found["signal"], found["true_signal"]) < 1e-12
    assert relative(found["reconstruction"], found["true_reconstruction"]) < 1e-3


@needs_node
def test_the_cost_agrees_at_every_step(both: Any) -> None:
    truth, found = both
    stats = truth[2].stats
    for part in ("reconstruction", "penalty", "nonzeros"):
        exact = getattr(stats, part)[:, 0].double().numpy()
        np.testing.assert_allclose(
            [now[part] for now in found["trace"]], exact, rtol=1e-4, atol=1e-9
        )
    np.testing.assert_allclose(
        [now["beta"] for now in found["trace"][:-1]], stats.step[:, 0].numpy(), rtol=1e-4
    )
