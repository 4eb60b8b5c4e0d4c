"""The Triton operators without a GPU, in a process of its own that exits with 0 if all is well:

TRITON_INTERPRET=1 python triton_operators.py interpret      on the CPU, compared with the plain form
python triton_operators.py compile                           every kernel, for sm_90
"""

import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).parents[1]))

import fast_interpreter  # noqa: F401
from whatwhere.latents import PoolingParams
from whatwhere.nn import functional as F
from whatwhere.nn import fused, plain, triton_pooling
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2}
# size, stride, padding, ceil, dtype, channels_last, power
CASES = [
    ((2, 2), (2, 2), (0, 0), False, torch.float64, True, 1),
    ((2, 2), (2, 2), (0, 0), True, torch.float32, False, 2),
    ((3, 3), (2, 2), (1, 1), False, torch.float64, False, 2),
    ((3, 2), (2, 1), (0, 1), True, torch.bfloat16, True, 1),
    ((1, 2), (2, 3), (0, 1), True, torch.float64, False, 2),
]


def close(ours: Tensor, truth: Tensor, what: str) -> None:
    error = (ours.double() - truth.double()).norm() / truth.double().norm()
    assert error < TOLERANCE[ours.dtype], f"{what}: off by {error:.1e}"
    assert ours.stride() == truth.stride() or not what.startswith("value"), f"{what}: {ours.stride()}, {truth.stride()}"


def everything(form: object, z: Tensor, regions: Regions, fit: MomentFit) -> dict[str, Tensor]:
    """All values and all gradients of the layers."""
    torch.manual_seed(1)
    leaf = z.detach().requires_grad_()
    arguments = (leaf, regions, fit) if form is plain else (leaf, regions, fit, True)
    p, fitted = form.fit_pool(*arguments)  # type: ignore[attr-defined]
    found = {"value p": p, "mu": fitted.mu, "gamma": fitted.gamma}
    outputs = (p, fitted.mu, fitted.gamma)
    found["∇ fit"] = torch.autograd.grad(outputs, leaf, [torch.randn(y.shape, dtype=z.dtype) for y in outputs])[0]
    if form is fused:
        alone, nothing = fused.fit_pool(leaf, regions, fit, False)
        assert nothing is None
        assert torch.equal(alone, p)
    where = fitted.map(lambda theta: (torch.rand(theta.shape, dtype=z.dtype) / 2).requires_grad_())
    q = torch.randn(p.shape, dtype=z.dtype).requires_grad_()
    for name, given, function in (("pool", leaf, form.pool), ("unpool", q, form.unpool)):  # type: ignore[attr-defined]
        found[f"value {name}"] = y = function(given, where, regions)
        gradients = torch.autograd.grad(y, (given, where.mu, where.gamma), torch.randn(y.shape, dtype=z.dtype))
        found |= {f"∇{k} {name}": gradient for k, gradient in enumerate(gradients)}
    return found


def values() -> None:
    torch.use_deterministic_algorithms(True)  # which fills new memory with NaN: what is not written shows
    assert torch.zeros(1).new_empty(1).isnan()
    for number, (size, stride, padding, ceil, dtype, channels_last, power) in enumerate(CASES):
        z = torch.randn(1, 2, 5, 6, generator=torch.Generator().manual_seed(number)).to(dtype)
        z[0, 0, :2, :3] = 0  # an empty region, and one with a few places only
        if channels_last:
            z = z.contiguous(memory_format=torch.channels_last)
        regions = Regions((2, 5, 6), (1, *size), (1, *stride), (0, *padding), ceil)
        ours, truth = (everything(form, z, regions, MomentFit(power=power)) for form in (fused, plain))
        for name, value in ours.items():
            close(value, truth[name], f"{name} of case {number}")
    empty = torch.zeros(0, 2, 5, 6)
    assert fused.fit_pool(empty, regions, MomentFit(), True)[0].shape[0] == 0


def operators() -> None:
    """opcheck, and gradcheck of the first and second order, of every operator."""
    z = torch.randn(1, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    regions = Regions((1, 3, 4), (1, 2, 2), (1, 2, 2), (0, 0, 0), False)
    geometry, fit = fused.geometry(regions), [0.01, 100.0, 2.0]
    p = torch.randn(1, 1, 1, 2, dtype=torch.float64, requires_grad=True)
    mu, gamma = (torch.rand(1, 2, 1, 1, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for operator, arguments in (
        (fused._fit_pool, (z, geometry, fit, True)),
        (fused._fit_pool_backward, (z.detach(), p.detach(), mu.detach(), None, geometry, fit)),
        (fused._pool, (z, mu, gamma, geometry)),
        (fused._unpool, (p, mu, gamma, geometry)),
        (fused._slopes, (z.detach(), p.detach(), mu.detach(), gamma.detach(), geometry)),
    ):
        tests = ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
        torch.library.opcheck(operator.registered, arguments, test_utils=tests)

    def fitted(z: Tensor) -> tuple[Tensor, ...]:
        return fused._fit_pool(z, geometry, fit, True)

    # the registered forms are those of opcheck
    torch.autograd.gradcheck(fitted, z, fast_mode=True)
    torch.autograd.gradgradcheck(fitted, z, fast_mode=True)
    torch.autograd.gradcheck(lambda *x: fused._unpool(*x, geometry), (p, mu, gamma), fast_mode=True)
    torch.autograd.gradgradcheck(lambda *x: fused._pool(*x, geometry), (z, mu, gamma), fast_mode=True)
    # what auto would do on a GPU, in one graph
    fused.unsupported_reason = lambda *_: None  # type: ignore[assignment]
    compiled = torch.compile(lambda z: F.gaussian_pool2d(z, 2), fullgraph=True, backend="aot_eager", dynamic=False)
    assert torch.equal(compiled(z), fitted(z)[0])
    traced = torch.jit.trace(lambda z: fused._fit_pool(z, geometry, fit, False)[0], z.detach())
    another = torch.randn(1, 1, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(traced(another), fitted(another)[0], msg="a trace holds the operator")
    with FakeTensorMode():
        assert fitted(torch.zeros(1, 1, 3, 4, dtype=torch.float64))[0].shape == (1, 1, 1, 2)
    once = PoolingParams(mu, gamma)
    assert torch.equal(fused.pool(z, once, regions), fused._pool(z, mu, gamma, geometry))


class NoDevice:  # a driver that only says what to compile for
    get_current_device = lambda self: 0  # noqa: E731
    get_current_stream = lambda self, device: 0  # noqa: E731
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)  # noqa: E731


def compile_kernels() -> None:
    compiled = []

    def compile_only(kernel, grid):  # type: ignore[no-untyped-def]
        def launch(*arguments, **options):  # type: ignore[no-untyped-def]
            result = kernel.run(*arguments, grid=grid, warmup=True, **options)
            compiled.append((kernel.__name__, options["RULE"].operation, result.asm["ptx"]))

        return launch

    driver.set_active(NoDevice())
    JITFunction.__getitem__ = compile_only
    for dtype, size, stride, last in (
        (torch.float32, 2, 2, False),
        (torch.bfloat16, 3, 2, True),
        (torch.float64, 3, 3, False),
    ):
        z = torch.zeros(2, 3, 9, 8, dtype=dtype)
        z = (z.contiguous(memory_format=torch.channels_last) if last else z).requires_grad_()
        regions = Regions((3, 9, 8), (1, size, size), (1, stride, stride))
        p, where = fused.fit_pool(z, regions, MomentFit(), True)
        torch.autograd.grad((p, where.mu), z, (p, where.mu))
        theta = PoolingParams(*(x.detach().requires_grad_() for x in (where.mu, where.gamma)))
        fused.pool(z, theta, regions).sum().backward()
        fused.unpool(p.detach(), theta, regions)
    assert {name for name, _, _ in compiled} == {"pooling_kernel", "overlap_kernel"}
    assert {operation for _, operation, _ in compiled} == {"fit_pool", "fit_pool_backward", "pool", "slopes", "unpool"}
    assert all("sm_90" in ptx for _, _, ptx in compiled)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of numpy, about 1 / 0 in lanes that are masked
    torch.set_num_threads(1)
    fused.kernels = lambda maps: triton_pooling
    if sys.argv[1] == "compile":
        compile_kernels()
    else:
        operators()
        values()
