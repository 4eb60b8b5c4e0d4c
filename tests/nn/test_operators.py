"""The kernels as registered operators: their contracts, and what a compiled program contains."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.fx import GraphModule

from whatwhere.nn import GaussianPool1d, GaussianPool2d, SparseCode2d, fused
from whatwhere.nn import functional as F
from whatwhere.nn.operators import Settings
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

pytest.importorskip("numba", reason="numba is not installed")

CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    ],
)
devices = pytest.mark.parametrize("device", ["cpu", CUDA])
OVERLAPPING = Regions((2, 5, 6), (1, 3, 2), (1, 2, 2), (0, 1, 0), ceil=True)


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled_with_operators(function: Callable[..., Tensor]) -> tuple[Callable, list[str]]:
    """The function, compiled without a graph break, and the operators of its graphs, forward and
    backward; they are listed at the first call."""
    from torch._dynamo.backends.common import aot_autograd  # slow to import

    found: list[str] = []

    def record(graph: GraphModule, inputs: list[Tensor]) -> Callable:
        found.extend(str(node.target) for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    backend = aot_autograd(fw_compiler=record, bw_compiler=record)
    return torch.compile(function, fullgraph=True, backend=backend, dynamic=False), found


def test_settings_survive_as_numbers() -> None:
    settings = Settings(OVERLAPPING, MomentFit(0.5, 20, 1), return_where=False)
    assert Settings.of(settings.numbers()) == settings


@devices
def test_operators_keep_the_contract_of_pytorch(device: str) -> None:
    torch.manual_seed(0)
    z = torch.randn(1, 2, 5, 6, dtype=torch.float64, device=device, requires_grad=True)
    p = torch.randn(1, *OVERLAPPING.grid, dtype=torch.float64, device=device, requires_grad=True)
    shape = (1, 2, *OVERLAPPING.grid)
    mu, gamma = (
        torch.rand(shape, dtype=torch.float64, device=device, requires_grad=True) for _ in range(2)
    )
    numbers = Settings(OVERLAPPING, MomentFit()).numbers()
    constants = [tensor.detach() for tensor in (z, p, mu, gamma)]
    for operator, tensors in (
        (fused._fit_pool, (z,)),
        (fused._fit_pool_backward, (*constants[:2], None, None)),
        (fused._pool, (z, mu, gamma)),
        (fused._unpool, (p, mu, gamma)),
        (fused._slopes, constants),
    ):
        tests = ["test_schema", "test_autograd_registration", "test_faketensor"]
        torch.library.opcheck(operator.registered, (*tensors, *numbers), test_utils=tests)


@devices
def test_compiled_programs_run_the_kernels_forward_and_backward(device: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), GaussianPool2d(2), nn.Conv2d(4, 2, 3), GaussianPool2d(3, 2)
    ).to(device)
    images = torch.randn(2, 1, 18, 18, device=device)
    compiled, operators = compiled_with_operators(network)
    ours = compiled(images)
    expected = network(images)
    torch.testing.assert_close(ours, expected)
    weights = network[0].weight
    (gradient,) = torch.autograd.grad(ours.square().sum(), weights)
    torch.testing.assert_close(
        gradient, torch.autograd.grad(expected.square().sum(), weights)[0], rtol=1e-4, atol=1e-4
    )
    # on a GPU the compiler sees the kernels of 2 × 2 regions themselves, forward and backward
    inlined = sum(name.startswith("triton_kernel_wrapper") for name in operators)
    on_gpu = device == "cuda"
    assert inlined == (2 if on_gpu else 0)
    assert operators.count("whatwhere.gaussian_fit_pool.default") == (1 if on_gpu else 2)
    assert operators.count("whatwhere.gaussian_fit_pool_backward.default") == (1 if on_gpu else 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_inductor_inlines_the_kernels_of_pairs(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    z = torch.randn(3, 5, 8, 12, device="cuda").to(dtype).requires_grad_()

    def pool(z: Tensor) -> Tensor:
        return F.gaussian_pool2d(z, 2)

    gradient = torch.randn(3, 5, 4, 6, device="cuda").to(dtype)
    ours = torch.compile(pool, fullgraph=True)(z)
    expected = F.gaussian_pool2d(z.double(), 2, form="plain")
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {}
    torch.testing.assert_close(ours, expected.to(dtype), **tolerance)
    (slope,) = torch.autograd.grad(ours, z, gradient)
    (truth,) = torch.autograd.grad(expected, z, gradient.double())
    torch.testing.assert_close(slope, truth.to(dtype), rtol=2e-2, atol=2e-2)


@devices
def test_learned_gaussians_compile_in_mixed_precision(device: str) -> None:
    torch.manual_seed(0)
    pool = GaussianPool2d(2, gaussians="learned", channels=3).to(device)
    with torch.no_grad():
        pool.mu.uniform_(-0.3, 0.3)
    z = torch.randn(2, 3, 6, 6, device=device).bfloat16().requires_grad_()
    compiled, operators = compiled_with_operators(pool)
    ours = compiled(z)
    exact = F.learned_gaussians(z, *(value.double() for value in pool.parameters()))
    expected = F.gaussian_pool2d(z.double(), 2, where=exact, form="plain")
    assert ours.dtype == torch.bfloat16
    torch.testing.assert_close(ours.double(), expected, rtol=1e-2, atol=1e-2)
    (gradient,) = torch.autograd.grad(ours.sum(), z)
    assert gradient.dtype == torch.bfloat16
    assert "whatwhere.gaussian_pool.default" in operators
    assert "whatwhere.gaussian_unpool.default" in operators


@devices
def test_autocast_stays_in_the_kernels(device: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv1d(1, 4, 3), GaussianPool1d(2, form="fused")).to(device)
    signals = torch.randn(2, 1, 20, device=device)
    compiled, operators = compiled_with_operators(network)
    with torch.autocast(device, torch.bfloat16):
        eager = network(signals)
        traced = compiled(signals)
    assert eager.dtype == traced.dtype == torch.bfloat16
    torch.testing.assert_close(traced, eager)
    assert "whatwhere.gaussian_fit_pool.default" in operators


@devices
def test_a_mapped_axis_joins_the_images(device: str) -> None:
    torch.manual_seed(0)
    z = torch.randn(2, 4, 3, 7, 9, device=device, requires_grad=True)

    def there_and_back(z: Tensor) -> Tensor:
        p, where = F.gaussian_pool2d(z, 3, 2, 1, return_where=True, form="fused")
        return F.gaussian_unpool2d(p, where, 3, 2, 1, z.shape, form="fused")

    mapped = vmap(there_and_back, in_dims=1, out_dims=1)(z)
    one_by_one = torch.stack([there_and_back(part) for part in z.unbind(1)], 1)
    torch.testing.assert_close(mapped, one_by_one)
    gradients = [torch.autograd.grad(y.square().sum(), z)[0] for y in (mapped, one_by_one)]
    torch.testing.assert_close(*gradients)


def test_a_shared_gaussian_is_mapped_over_too() -> None:
    z = torch.randn(3, 2, 1, 4, 4)
    where = F.gaussian_pool2d(z[0], 2, return_where=True)[1]
    mapped = vmap(lambda z: F.gaussian_pool2d(z, 2, where=where, form="fused"))(z)
    expected = torch.stack([F.gaussian_pool2d(part, 2, where=where) for part in z])
    torch.testing.assert_close(mapped, expected)


# Two layers take long to compile to graphs of their gradients.
@pytest.mark.parametrize(("maps", "backend"), [((2, 3), "eager"), ((2,), "aot_eager")])
def test_sparse_codes_compile_without_a_graph_break(maps: tuple[int, ...], backend: str) -> None:
    torch.manual_seed(0)
    code = SparseCode2d(1, maps=maps, kernel_size=3, steps=2)
    images = torch.rand(2, 1, 8, 8)
    compiled = torch.compile(code, fullgraph=True, backend=backend, dynamic=False)
    ours = compiled(images)
    expected = code(images)
    torch.testing.assert_close(ours, expected)
    parameters = list(code.parameters())
    gradients = [torch.autograd.grad(y.square().sum(), parameters) for y in (ours, expected)]
    torch.testing.assert_close(*gradients)
