"""Gradients of inference by the CPU engine are those of back-propagation through the reference, in
float64 to rounding and in float32 to 1e-5."""

from typing import Any

import pytest
import torch
from torch import Tensor

from examples import SPECS, random_images
from whatwhere import data, load
from whatwhere.engines.cpu import CPUEngine
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.nn import SparseCode2d, trained_steps
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec, MomentFit, Power, Schedule, StepSpec

SCHEDULE = tuple(
    StepSpec(size=0.005 / n, threshold=0.002, extrapolation=0.3 * n, pooling_step=(0.3, 0.2 * n))
    for n in (1, 2, 3)
)
# most maps below fill vectors: Winograd's method, and sums over regions
WIDE = ModelSpec(layers=(LayerSpec(maps=16, filter_size=3), LayerSpec(maps=20, filter_size=3)))
FLAT_TOP = ModelSpec(
    layers=(LayerSpec(maps=16, filter_size=3), LayerSpec(maps=5, filter_size=3, pool_size=1))
)
MODELS = {
    **{name: SPECS[name] for name in ("2 layers", "1 layer, colour", "2 layers, max")},
    **{name: SPECS[name] for name in ("2 layers, sum", "2 layers, signed", "2 layers, per filter")},
    "wide": WIDE,
    "no pooling at the top": FLAT_TOP,
}


def layer(
    spec: ModelSpec,
    dtype: torch.dtype = torch.float64,
    contrast: float | None = 0.8,
    **settings: Any,
) -> SparseCode2d:
    schedule = Schedule(steps=SCHEDULE, contrast=contrast, mu_scale=(0.9,), gamma_scale=(1.2,))
    inference = InferenceSpec(step=schedule, lam=2.0, **settings)
    code = SparseCode2d.from_model(
        DeconvNet(spec, seed=1, dtype=dtype), 3, inference, return_where=True
    )
    with torch.no_grad():  # filters of any value
        for f in code.filters:
            f.add_(0.05)
    return code


def inputs_of(code: SparseCode2d, count: int = 3) -> list[Tensor]:
    """Images of an odd height, so that regions reach beyond the maps, and the parameters."""
    x = random_images(code.model_spec, count, 9, 8).to(code.filters[0].dtype).requires_grad_()
    return [x, *code.parameters()]


def reference(code: SparseCode2d, x: Tensor) -> Latents:
    model = code.model
    v, _ = model.input_stage.forward(x, None)
    return code.run(code.problem(model, v))


def directions(latents: Latents) -> list[Tensor]:
    generator = torch.Generator().manual_seed(2)
    return [
        torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype)
        for t in latents.tensors()
    ]


def gradients(latents: Latents, inputs: list[Tensor]) -> list[Tensor]:
    tensors = [t for t in latents.tensors() if t.requires_grad]
    along = [
        d for d, t in zip(directions(latents), latents.tensors(), strict=True) if t.requires_grad
    ]
    found = torch.autograd.grad(tensors, inputs, along, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, inputs, strict=True)]


@pytest.mark.parametrize(
    "settings", [{}, {"penalty": Power(alpha=0.5)}, {"moments": MomentFit(power=1)}]
)
@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_those_of_the_reference(name: str, settings: dict[str, Any]) -> None:
    code = layer(MODELS[name], **settings)
    inputs = inputs_of(code)
    ours = code.code(inputs[0])
    assert type(ours.features.grad_fn).__name__ == "_StepsBackward"
    assert (ours.features != 0).any()
    expected = reference(code, inputs[0])
    for a, b in zip(ours.tensors(), expected.tensors(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)
    for a, b in zip(gradients(ours, inputs), gradients(expected, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8 * float(b.abs().max()) + 1e-12)


def test_gradients_of_digits_in_float32_are_within_1e_5() -> None:
    x = data.load("digits")[:4]

    def found(dtype: torch.dtype, by_engine: bool) -> list[Tensor]:
        code = SparseCode2d.from_model(load("mnist").to(dtype), steps=3)
        inputs = [x.to(dtype).requires_grad_(), *code.parameters()]
        latents = code.code(inputs[0]) if by_engine else reference(code, inputs[0])
        return gradients(Latents(latents.features, ()), inputs)

    exact = found(torch.float64, False)
    for ours, expected in zip(found(torch.float32, True), exact, strict=True):
        assert (ours.double() - expected).norm() <= 1e-5 * expected.norm()


def test_a_graph_can_be_used_twice_and_differentiated_twice() -> None:
    code = layer(MODELS["2 layers"])
    x = inputs_of(code)[0]
    p = code.code(x).features
    once, again = (torch.autograd.grad(p.square().sum(), x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(once, again)

    def slope(latents: Latents) -> Tensor:
        (first,) = torch.autograd.grad(latents.features.square().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(slope(code.code(x)), slope(reference(code, x)), rtol=1e-7, atol=1e-9)


def test_results_do_not_depend_on_other_images_or_the_number_of_threads() -> None:
    code = layer(WIDE)
    x = inputs_of(code, 20)[0]
    code.code(x).features.square().sum().backward()
    all_filters = [f.grad for f in code.filters]
    code.zero_grad()
    alone = x.detach()[3:4].requires_grad_()
    code.code(alone).features.square().sum().backward()
    assert torch.equal(alone.grad[0], x.grad[3])
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        code.zero_grad()
        code.code(x.detach()).features.square().sum().backward()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(f.grad, g) for f, g in zip(code.filters, all_filters, strict=True))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("2 layers, 3×3 regions", "regions of 2 × 2 side by side, not those of layer 1"),
        ("2 layers, overlapping", "regions of 2 × 2"),
    ],
)
def test_other_problems_are_left_to_the_reference(name: str, reason: str) -> None:
    code = layer(SPECS[name])
    v, _ = code.model.input_stage.forward(inputs_of(code)[0].detach(), None)
    problem = code._fixed_problem(code.model, v)
    assert reason in str(CPUEngine().unsupported_gradients(problem))
    assert not trained_steps.supports(problem)
    code.code(inputs_of(code)[0]).features.sum().backward()
    assert code.filters[0].grad is not None
