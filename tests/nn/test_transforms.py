"""Gaussian pooling under torch.compile, torch.export, ONNX, torch.fx and torch.func."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.func import grad, jvp, vmap

from onnx_export import onnx_function, onnx_model
from whatwhere.latents import PoolingParams
from whatwhere.nn import GaussianPool1d, GaussianPool2d, GaussianUnpool1d, GaussianUnpool2d
from whatwhere.nn import functional as F
from whatwhere.spec import MomentFit


class ThereAndBack(nn.Module):
    """Pool and unpool to the input's size; returns all that the pair knows."""

    def __init__(self, *window: object) -> None:
        super().__init__()
        self.pool = GaussianPool2d(*window[:3], ceil_mode=len(window) > 3, return_where=True)
        self.unpool = GaussianUnpool2d(*window[:3])

    def forward(self, z: Tensor) -> tuple[Tensor, PoolingParams, Tensor]:
        p, where = self.pool(z)
        return p, where, self.unpool(p, where, z.shape)


WINDOWS = {"2": (2,), "3/2/1": (3, 2, 1), "ceil": (2, 2, 0, True)}

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ],
)
devices = pytest.mark.parametrize("device", ["cpu", CUDA])


def flat(outputs: tuple[Tensor, PoolingParams, Tensor]) -> list[Tensor]:
    p, where, z = outputs
    return [p, where.mu, where.gamma, z]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@devices
def test_compiles_to_one_graph(device: str) -> None:
    module, z = (
        ThereAndBack(*WINDOWS["3/2/1"]),
        torch.randn(2, 3, 9, 11, device=device, requires_grad=True),
    )
    ours = flat(torch.compile(module, fullgraph=True, backend="aot_eager", dynamic=False)(z))
    expected = flat(module(z))
    torch.testing.assert_close(ours, expected)
    (gradient,) = torch.autograd.grad(ours[-1].square().sum(), z)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected[-1].square().sum(), z)[0])


class Exported(ThereAndBack):
    """Overlapping regions there and back along one axis, in ceil mode along the other: exporting
    takes long."""

    def __init__(self) -> None:
        super().__init__((1, 3), (1, 2), (0, 1))
        self.ceil = GaussianPool2d((3, 1), (2, 1), (1, 0), ceil_mode=True)

    def forward(self, z: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return *flat(super().forward(z)), self.ceil(z)


@pytest.fixture(scope="module")
def exported() -> ExportedProgram:
    """The layers with a dynamic batch, height and width. Made here: `Dim` imports much."""
    if torch.__version__ < "2.11":
        pytest.skip("the exporter of torch 2.8 proves no bounds of such sizes")
    dynamic = {"z": {0: Dim("n"), 2: Dim("h", min=6, max=99), 3: Dim("w", min=6, max=99)}}
    return torch.export.export(
        Exported().eval(), (torch.randn(2, 3, 9, 11),), dynamic_shapes=dynamic
    )


def test_exports_with_dynamic_batch_height_and_width(exported: ExportedProgram) -> None:
    module, program = Exported().eval(), exported.module()
    for size in ((5, 3, 14, 7), (1, 3, 6, 23), (3, 3, 32, 32)):
        z = torch.randn(size)
        for a, b in zip(program(z), module(z), strict=True):
            torch.testing.assert_close(a, b)


def test_onnx_runtime_agrees(exported: ExportedProgram) -> None:
    run, module = onnx_function(onnx_model(exported)), Exported().eval()
    for size in ((2, 3, 9, 11), (5, 3, 14, 7)):
        z = torch.randn(size)
        for ours, expected in zip(run(z), module(z), strict=True):
            assert ((ours - expected).abs() <= 1e-5 * expected.abs().clamp(min=1)).all()


class Several(nn.Module):
    """Every kind of pooling, with unpooling, of maps and of signals."""

    def __init__(self) -> None:
        super().__init__()
        self.there_and_back = ThereAndBack(3, 2, 1)
        self.learned = GaussianPool2d(2, gaussians="learned", channels=3)
        self.given = GaussianPool2d(3, 2, 1, gaussians="input")
        self.pool = GaussianPool1d(2, return_where=True)
        self.unpool = GaussianUnpool1d(2)

    def forward(self, z: Tensor) -> tuple[Tensor, ...]:
        p, where, back = self.there_and_back(z)
        mu, gamma = where
        signals = z[:, :, 0]
        short, where_1d = self.pool(signals)
        long = self.unpool(short, where_1d, signals.shape)
        return p, mu, gamma, back, self.learned(z), self.given(z, where), short, long


def test_torch_fx_records_each_layer_as_one_node() -> None:
    module, z = Several(), torch.randn(2, 3, 9, 11)
    traced = torch.fx.symbolic_trace(module)
    for ours, expected in zip(traced(z), module(z), strict=True):
        assert torch.equal(ours, expected)
    names = [getattr(node.target, "__name__", "") for node in traced.graph.nodes]
    assert names.count("gaussian_pool2d") == 4


@pytest.mark.parametrize(
    "fit",
    [
        MomentFit(),
        MomentFit(gamma_min=6, gamma_max=9),
        MomentFit(gamma_min=0.1, gamma_max=2),
        MomentFit(gamma_max=1e6, power=1),
    ],
)
def test_an_exported_pooling_of_pairs_computes_the_same(fit: MomentFit) -> None:
    layer = GaussianPool2d(2, fit=fit)
    program = torch.export.export(layer, (torch.randn(2, 3, 8, 6),)).module()
    z = torch.randn(2, 3, 8, 6)
    z[0, 0] = 0
    z[0, 1, :4] = torch.tensor([[0.0, 7.0, 1.0, 0.0, 0.0, 3.0]])
    torch.testing.assert_close(program(z), layer(z), rtol=1e-4, atol=1e-5)


def test_an_onnx_pooling_of_pairs_has_at_most_thirty_nodes() -> None:
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    layer, z = GaussianPool2d(2), torch.randn(2, 3, 8, 8)
    exported = torch.export.export(layer, (z,), dynamic_shapes={"input": {0: Dim("n")}})
    model = onnx_model(exported)
    assert len(onnx.load_model_from_string(model).graph.node) <= 30
    z = torch.randn(5, 3, 8, 8)
    torch.testing.assert_close(onnx_function(model)(z)[0], layer(z), rtol=1e-5, atol=1e-5)


@devices
@pytest.mark.parametrize("window", WINDOWS)
def test_vmap_is_a_loop(window: str, device: str) -> None:
    module, z = ThereAndBack(*WINDOWS[window]), torch.randn(4, 2, 3, 7, 9, device=device)
    mapped = flat(vmap(module)(z))
    for ours, one in zip(
        mapped, zip(*(flat(module(part)) for part in z), strict=True), strict=True
    ):
        torch.testing.assert_close(ours, torch.stack(one))
    torch.testing.assert_close(vmap(module, in_dims=1)(z)[0], vmap(module)(z.transpose(0, 1))[0])


@devices
def test_gradients_of_single_images(device: str) -> None:
    z = torch.randn(4, 3, 6, 6, device=device)

    def energy(image: Tensor) -> Tensor:
        return F.gaussian_pool2d(image, 2).square().sum()

    expected = torch.stack([torch.autograd.functional.jacobian(energy, image) for image in z])
    torch.testing.assert_close(vmap(grad(energy))(z), expected)


@devices
@pytest.mark.parametrize("window", WINDOWS)
def test_forward_mode_is_the_directional_derivative(window: str, device: str) -> None:
    module = ThereAndBack(*WINDOWS[window])
    torch.manual_seed(0)
    z, direction = (torch.randn(2, 3, 7, 9).double().to(device) for _ in range(2))
    _, slopes = jvp(lambda z: tuple(flat(module(z))), (z,), (direction,))
    h = 1e-6
    for slope, after, before in zip(
        slopes, flat(module(z + h * direction)), flat(module(z - h * direction)), strict=True
    ):
        torch.testing.assert_close(slope, (after - before) / (2 * h), rtol=1e-4, atol=1e-4)


@devices
def test_autocast_leaves_the_dtype_to_the_input(device: str) -> None:
    with torch.autocast(device, torch.bfloat16):
        image, filters = (
            torch.randn(1, 1, 8, 8, device=device),
            torch.randn(2, 1, 3, 3, device=device),
        )
        z = torch.nn.functional.conv2d(image, filters)
        outputs = flat(ThereAndBack(2)(z))
    assert {z.dtype} == {output.dtype for output in outputs} == {torch.bfloat16}
