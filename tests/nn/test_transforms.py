"""Gaussian pooling under torch.compile, torch.export, ONNX and torch.func."""

import functools
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.func import grad, jvp, vmap

from onnx_export import onnx_function
from whatwhere.latents import PoolingParams
from whatwhere.nn import GaussianPool2d, GaussianUnpool2d
from whatwhere.nn import functional as F


class ThereAndBack(nn.Module):
    """Pool and unpool to the input's size; returns all that the pair knows."""

    def __init__(self, *window: object) -> None:
        super().__init__()
        self.pool = GaussianPool2d(*window, return_where=True)
        self.unpool = GaussianUnpool2d(*window[:3])

    def forward(self, z: Tensor) -> tuple[Tensor, PoolingParams, Tensor]:
        p, where = self.pool(z)
        return p, where, self.unpool(p, where, z.shape)


WINDOWS = {"2": (2,), "3/2/1": (3, 2, 1), "ceil": (2, 2, 0, True)}
DYNAMIC = {"z": {0: Dim("n"), 2: Dim("h", min=6, max=99), 3: Dim("w", min=6, max=99)}}


CUDA = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
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
@pytest.mark.parametrize("window", ["2", "3/2/1"])
def test_compiles_to_one_graph(window: str, device: str) -> None:
    module, z = ThereAndBack(*WINDOWS[window]), torch.randn(2, 3, 9, 11, device=device, requires_grad=True)
    backend = "inductor" if device == "cuda" else "aot_eager"
    ours = flat(torch.compile(module, fullgraph=True, backend=backend, dynamic=False)(z))
    expected = flat(module(z))
    torch.testing.assert_close(ours, expected)
    (gradient,) = torch.autograd.grad(ours[-1].square().sum(), z)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected[-1].square().sum(), z)[0])


@pytest.fixture(scope="module")
def exported() -> Callable[[str], ExportedProgram]:
    """The layers with overlapping regions, exported on a device with a dynamic batch, height and width."""

    @functools.cache
    def export(device: str) -> ExportedProgram:
        example = torch.randn(2, 3, 9, 11, device=device)
        return torch.export.export(ThereAndBack(*WINDOWS["3/2/1"]).eval(), (example,), dynamic_shapes=DYNAMIC)

    return export


@devices
def test_exports_with_dynamic_batch_height_and_width(exported: Callable[[str], ExportedProgram], device: str) -> None:
    module, program = ThereAndBack(*WINDOWS["3/2/1"]).eval(), exported(device).module()
    for size in ((5, 3, 14, 7), (1, 3, 6, 23), (3, 3, 32, 32)):
        z = torch.randn(size, device=device)
        for a, b in zip(flat(program(z)), flat(module(z)), strict=True):
            torch.testing.assert_close(a, b)


def test_pooling_in_ceil_mode_exports_too() -> None:
    pool = GaussianPool2d(3, 2, 1, ceil_mode=True).eval()
    exported = torch.export.export(pool, (torch.randn(2, 3, 9, 11),), dynamic_shapes={"input": DYNAMIC["z"]}).module()
    for size in ((5, 3, 14, 7), (1, 3, 6, 23)):
        z = torch.randn(size)
        torch.testing.assert_close(exported(z), pool(z))


def test_onnx_runtime_agrees(exported: Callable[[str], ExportedProgram]) -> None:
    run = onnx_function(exported("cpu"))
    module = ThereAndBack(*WINDOWS["3/2/1"]).eval()
    for size in ((2, 3, 9, 11), (5, 3, 14, 7)):
        z = torch.randn(size)
        for ours, expected in zip(run(z), flat(module(z)), strict=True):
            assert ((ours - expected).abs() <= 1e-5 * expected.abs().clamp(min=1)).all()


@devices
@pytest.mark.parametrize("window", WINDOWS)
def test_vmap_is_a_loop(window: str, device: str) -> None:
    module, z = ThereAndBack(*WINDOWS[window]), torch.randn(4, 2, 3, 7, 9, device=device)
    mapped = flat(vmap(module)(z))
    for ours, one in zip(mapped, zip(*(flat(module(part)) for part in z), strict=True), strict=True):
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
        image, filters = torch.randn(1, 1, 8, 8, device=device), torch.randn(2, 1, 3, 3, device=device)
        z = torch.nn.functional.conv2d(image, filters)
        outputs = flat(ThereAndBack(2)(z))
    assert {z.dtype} == {output.dtype for output in outputs} == {torch.bfloat16}
