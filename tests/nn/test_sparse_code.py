"""A sparse code as a layer: gradients are finite differences, filters keep their constraints, and
it exports."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from examples import SPECS, random_images
from onnx_export import onnx_function, onnx_model
from raising import Containing, raises
from whatwhere.errors import ImageError, InvalidSetting, SpecError
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, save
from whatwhere.nn import SparseCode2d
from whatwhere.spec import InferenceSpec, Power, Schedule, StepSpec

SCHEDULE = (
    StepSpec(size=0.005, threshold=0.004, extrapolation=0.2, pooling_step=(0.1, 0.2)),
    StepSpec(size=0.004, threshold=0.003, extrapolation=0.4, pooling_step=(0.3, 0.1)),
)


def layer(name: str = "2 layers", alpha: float = 1.0, return_where: bool = False) -> SparseCode2d:
    """A layer in float64 with the filters of a small model."""
    inference = InferenceSpec(step=Schedule(steps=SCHEDULE), lam=2.0, penalty=Power(alpha=alpha))
    return SparseCode2d.from_model(
        DeconvNet(SPECS[name], dtype=torch.float64), 2, inference, return_where=return_where
    )


def images(name: str = "2 layers", count: int = 2) -> Tensor:
    return random_images(SPECS[name], count, 7, 6)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("name", ["2 layers", "2 layers, max"])
def test_gradients_are_finite_differences(name: str, alpha: float) -> None:
    """Of what and where, with respect to the filters before their projection, the sizes of the
    steps and the input."""
    code, x = layer(name, alpha, return_where=True), images(name)
    names = [each for each, _ in code.named_parameters()]
    # filters of 0, and fitted μ at their bounds
    moved = {"filters": 0.05, "log_scales": -0.05}
    away_from_kinks = [
        p + moved.get(each.split(".")[0], 0.0) for each, p in code.named_parameters()
    ]

    def outputs(x: Tensor, *parameters: Tensor) -> tuple[Tensor, ...]:
        what, where = torch.func.functional_call(
            code, dict(zip(names, parameters, strict=True)), (x,)
        )
        return what, where[0].mu if name == "2 layers" else what

    inputs = tuple(p.detach().clone().requires_grad_() for p in (x, *away_from_kinks))
    assert outputs(*inputs)[0].sum() > 0, "some features are not 0"
    assert torch.autograd.gradcheck(outputs, inputs, eps=1e-6, atol=1e-5, rtol=1e-4, fast_mode=True)


@pytest.mark.parametrize(
    "name", ["2 layers", "2 layers, max", "1 layer, colour", "2 layers, signals"]
)
def test_the_layer_is_what_infer_computes(name: str) -> None:
    code, x = layer(name, return_where=True), images(name)
    what, where = code(x)
    solution = infer(code.model, x, code.spec, engine="reference")
    assert torch.allclose(what, solution.features, rtol=1e-10, atol=0)
    assert torch.allclose(
        where[-1].gamma, solution.latents.pooling_params[-1].gamma, rtol=1e-10, atol=0
    )


@pytest.mark.parametrize("name", ["2 layers", "2 layers, per filter", "2 layers, signed"])
def test_filters_of_any_value_are_used_masked_nonnegative_and_of_unit_length(name: str) -> None:
    code = layer(name)
    with torch.no_grad():
        for f in code.filters:
            f.add_(torch.randn(f.shape, generator=torch.Generator().manual_seed(0), dtype=f.dtype))
    used, dims = code.model.filters[1], (0, 2, 3) if "filter" in name else (2, 3)
    length = used.square().sum(dims).sqrt()
    assert torch.allclose(length[length > 0], torch.ones_like(length[length > 0]))
    assert (used >= 0).all() == SPECS[name].nonnegative
    assert (used[~code.connectivity[1]] == 0).all()
    before = code(images(name))
    assert torch.allclose(code.project_()(images(name)), before)
    assert torch.allclose(code.filters[1], used)


def test_it_trains_end_to_end_in_any_network() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        SparseCode2d(1, maps=(3, 4), kernel_size=3, steps=2), nn.Flatten(), nn.LazyLinear(2)
    )
    x, y = images(count=12).float(), torch.arange(12) % 2
    # what differs is where the light is
    x[y == 1] = x[y == 1].flip(2) * torch.linspace(0, 1, 7)[:, None]
    network(x)
    start = [p.detach().clone() for p in network[0].parameters()]
    optimizer, losses = torch.optim.Adam(network.parameters(), 0.05), []
    for _ in range(12):
        loss = F.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all((p != q).any() for p, q in zip(start, network[0].parameters(), strict=True))


def test_an_empty_image_has_finite_gradients() -> None:
    code, x = layer("2 layers"), images()
    x[0] = 0
    code(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in code.parameters())


class WhatAndWhere(nn.Module):
    """The outputs as plain tensors; one step, since exporting takes long."""

    def __init__(self) -> None:
        super().__init__()
        spec = InferenceSpec(step=Schedule(steps=SCHEDULE[:1]), lam=2.0)
        self.coder = SparseCode2d.from_model(
            DeconvNet(SPECS["1 layer"]), 1, spec, return_where=True
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        what, where = self.coder(x)
        return what, where[0].mu


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    return torch.export.export(
        WhatAndWhere(), (images().float(),), dynamic_shapes={"x": {0: Dim("n", max=64)}}
    )


@pytest.mark.parametrize("count", [2, 5])
def test_it_exports_for_batches_of_any_size(exported: ExportedProgram, count: int) -> None:
    x = images(count=count).float()
    for ours, expected in zip(exported.module()(x), WhatAndWhere()(x), strict=True):
        torch.testing.assert_close(ours, expected)


@pytest.mark.skipif(
    torch.__version__ < "2.12",
    reason="the exporter of torch 2.11 fails on a parameter times a buffer",
)
def test_onnx_runtime_agrees(exported: ExportedProgram) -> None:
    x = images(count=3).float()
    for ours, expected in zip(
        onnx_function(onnx_model(exported))(x), WhatAndWhere()(x), strict=True
    ):
        torch.testing.assert_close(ours, expected.detach(), rtol=1e-4, atol=1e-6)


def test_the_same_seed_draws_the_same_filters_and_a_state_is_loaded() -> None:
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(SparseCode2d(3, maps=4, kernel_size=3, steps=1))
    assert torch.equal(drawn[0].filters[0], drawn[1].filters[0])
    assert not torch.equal(drawn[0].filters[0], drawn[2].filters[0])
    x = torch.rand(2, 3, 8, 8)
    drawn[2].load_state_dict(drawn[0].state_dict())
    assert torch.equal(drawn[2](x), drawn[0](x))
    assert drawn[0].double()(x.double()).dtype == torch.float64


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(
        ImageError, match=r"an input of shape \[2, 3, 8, 8\]; expected \[N, 1, H, W\]"
    ):
        layer()(torch.rand(2, 3, 8, 8, dtype=torch.float64))
    with pytest.raises(SpecError, match="steps"):
        SparseCode2d(1, maps=2, steps=0)
    with raises(InvalidSetting, given={"model": "mnist"}):
        SparseCode2d.from_model("mnist")  # type: ignore[arg-type]
    with raises(InvalidSetting, expected=Containing("a DeconvNet")):
        save(layer(), "model.safetensors")  # type: ignore[arg-type]
