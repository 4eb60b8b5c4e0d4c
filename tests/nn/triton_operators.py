"""The Triton operators without a GPU, in a process of its own that exits with 0 if all is well:

TRITON_INTERPRET=1 python triton_operators.py interpret      on the CPU, compared with the plain
form
python triton_operators.py compile                           every kernel, for sm_90
python triton_operators.py inline                            the source that torch.compile copies
"""

import os
import runpy
import sys
import tempfile
import warnings
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

sys.path.insert(0, str(Path(__file__).parents[1]))

if os.environ.get("TRITON_INTERPRET") == "1":
    import fast_interpreter  # noqa: F401
from whatwhere.latents import PoolingParams
from whatwhere.nn import fused, plain, triton_pairs, triton_pooling
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit

TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5, torch.bfloat16: 2e-2}
# size, stride, padding, ceil, dtype, channels_last, power
CASES = [
    ((2, 2), (2, 2), (0, 0), False, torch.float32, True, 1),
    ((3, 2), (2, 1), (0, 1), True, torch.float64, False, 2),
    ((1, 3), (1, 2), (0, 1), False, torch.bfloat16, True, 2),
    ((1, 2), (2, 3), (0, 1), True, torch.float64, False, 2),
    ((3, 3), (2, 2), (1, 1), False, torch.float32, False, 2),
    ((3, 1), (1, 2), (1, 0), False, torch.float64, True, 1),
]


def close(ours: Tensor, truth: Tensor, what: str) -> None:
    error = (ours.double() - truth.double()).norm() / truth.double().norm()
    assert error < TOLERANCE[ours.dtype], f"{what}: off by {error:.1e}"
    assert ours.stride() == truth.stride() or not what.startswith("value"), (
        f"{what}: {ours.stride()}, {truth.stride()}"
    )


def everything(form: object, z: Tensor, regions: Regions, fit: MomentFit) -> dict[str, Tensor]:
    """All values and all gradients of the layers."""
    torch.manual_seed(1)
    leaf = z.detach().requires_grad_()
    p, fitted = form.fit_pool(leaf, regions, fit, True)  # type: ignore[attr-defined]
    found = {"value p": p, "mu": fitted.mu, "gamma": fitted.gamma}
    outputs = (p, fitted.mu, fitted.gamma)
    found["∇ fit"] = torch.autograd.grad(
        outputs, leaf, [torch.randn(y.shape, dtype=z.dtype) for y in outputs]
    )[0]
    if form is fused:
        alone, nothing = fused.fit_pool(leaf, regions, fit, False)
        assert nothing is None
        assert torch.equal(alone, p)
    where = fitted.map(lambda theta: (torch.rand(theta.shape, dtype=z.dtype) / 2).requires_grad_())
    q = torch.randn(p.shape, dtype=z.dtype).requires_grad_()
    for name, given, function in (("pool", leaf, form.pool), ("unpool", q, form.unpool)):  # type: ignore[attr-defined]
        found[f"value {name}"] = y = function(given, where, regions)
        gradients = torch.autograd.grad(
            y, (given, where.mu, where.gamma), torch.randn(y.shape, dtype=z.dtype)
        )
        found |= {f"∇{k} {name}": gradient for k, gradient in enumerate(gradients)}
    return found


def values() -> None:
    # fills new memory with NaN, so that what is not written shows
    torch._C._set_deterministic_algorithms(True)
    assert torch.zeros(1).new_empty(1).isnan()
    for number, (size, stride, padding, ceil, dtype, channels_last, power) in enumerate(CASES):
        z = torch.randn(1, 2, 5, 6, generator=torch.Generator().manual_seed(number)).to(dtype)
        z[0, 0, :2, :3] = 0  # an empty region, and one with a few places only
        if channels_last:
            z = z.contiguous(memory_format=torch.channels_last)
        regions = Regions((2, 5, 6), (1, *size), (1, *stride), (0, *padding), ceil)
        ours, truth = (
            everything(form, z, regions, MomentFit(power=power)) for form in (fused, plain)
        )
        for name, value in ours.items():
            close(value, truth[name], f"{name} of case {number}")
    for dtype, power in product((torch.float32, torch.bfloat16), (1, 2)):
        pairs(dtype, MomentFit(0.05, 30.0, power))
    empty = torch.zeros(0, 2, 5, 6)
    assert fused.fit_pool(empty, regions, MomentFit(), True)[0].shape[0] == 0


def pairs(dtype: torch.dtype, fit: MomentFit) -> None:
    """Regions of 2 × 2 that fill the map, whose variables are not asked for."""
    generator = torch.Generator().manual_seed(fit.power)
    z = torch.randn(3, 5, 6, 8, generator=generator)
    z[0, 0, :2] = 0  # empty regions
    z[0, 1] *= 1e-20
    z[0, 2, ::2] = 0  # all in one row
    z = z.to(dtype).requires_grad_()
    regions = Regions((5, 6, 8), (1, 2, 2), (1, 2, 2), ceil=False)
    assert triton_pairs.fills(regions)
    assert triton_pairs.holds(z)
    gradient = torch.randn(3, 5, 3, 4, generator=generator).to(dtype)
    expanded = gradient[:1, :1].expand(3, 5, 3, 4)
    found = {}
    for name, pooled in (
        ("ours", fused.fit_pool(z, regions, fit, False)[0]),
        ("truth", plain.fit_pool(z, regions, fit)[0]),
    ):
        found[name] = [
            pooled,
            torch.autograd.grad(pooled, z, gradient, retain_graph=True)[0],
            torch.autograd.grad(pooled, z, expanded)[0],
        ]
    for ours, truth in zip(found["ours"], found["truth"], strict=True):
        for image_of_ours, image in zip(ours.flatten(0, 1), truth.flatten(0, 1), strict=True):
            if image.any():
                close(image_of_ours, image, f"pairs {dtype} {fit}")
            else:
                assert not image_of_ours.any()


def inline() -> None:
    """The copied source compiles on its own: it has every function that the kernels call."""
    from torch._inductor.codegen.wrapper import (
        user_defined_triton_kernel_transitive_closure_source_code as copied_source,
    )

    driver.set_active(NoDevice())
    folder = Path(tempfile.mkdtemp())
    z = torch.zeros(64)
    for kernel, tensors in (
        (triton_pairs.pair_fit_pool, (z, z)),
        (triton_pairs.pair_fit_pool_backward, (z, z, z)),
    ):
        file = folder / f"{kernel.__name__}.py"
        head = "import triton\nimport triton.language as tl\n@triton.jit\n"
        file.write_text(head + copied_source(kernel), encoding="utf-8")
        scope = runpy.run_path(str(file))
        numbers = (4, 16)
        rule = {"LOW": 0.01, "HIGH": 100.0, "POWER": 2, "BLOCK": 512}
        options = {**rule, "grid": (1,), "warmup": True}
        made = scope[kernel.__name__].run(*tensors, *numbers, **options)
        assert "sm_90" in made.asm["ptx"]


class NoDevice:  # a driver that only says what to compile for
    get_current_device = lambda self: 0  # noqa: E731
    get_current_stream = lambda self, device: 0  # noqa: E731
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)  # noqa: E731


def compile_kernels() -> None:
    compiled = []

    def compile_only(kernel, grid):  # type: ignore[no-untyped-def]
        def launch(*arguments, **options):  # type: ignore[no-untyped-def]
            result = kernel.run(*arguments, grid=grid, warmup=True, **options)
            operation = options["RULE"].operation if "RULE" in options else kernel.__name__
            compiled.append((kernel.__name__, operation, result.asm["ptx"]))

        return launch

    driver.set_active(NoDevice())
    JITFunction.__getitem__ = compile_only
    for dtype, size, stride, last in (
        (torch.float32, (2, 2), (2, 2), False),
        (torch.bfloat16, (1, 3), (1, 2), True),
        (torch.float64, (3, 3), (2, 2), False),
    ):
        z = torch.zeros(2, 3, 8, 8, dtype=dtype)
        z = (z.contiguous(memory_format=torch.channels_last) if last else z).requires_grad_()
        regions = Regions((3, 8, 8), (1, *size), (1, *stride))
        if size == (2, 2):  # without the variables: a kernel of its own for pairs alone
            alone, _ = fused.fit_pool(z, regions, MomentFit(), False)
            torch.autograd.grad(alone, z, alone)
        p, where = fused.fit_pool(z, regions, MomentFit(), True)
        torch.autograd.grad((p, where.mu), z, (p, where.mu))
        theta = PoolingParams(*(x.detach().requires_grad_() for x in (where.mu, where.gamma)))
        fused.pool(z, theta, regions).sum().backward()
        fused.unpool(p.detach(), theta, regions)
    pairs = {"pair_fit_pool", "pair_fit_pool_backward"}
    general = {"pooling_kernel", "slopes_kernel", "gather_kernel"}
    assert {name for name, _, _ in compiled} == pairs | general
    assert {operation for _, operation, _ in compiled} == pairs | {
        "fit_pool",
        "fit_pool_backward",
        "pool",
        "slopes",
        "unpool",
    }
    assert all("sm_90" in ptx for _, _, ptx in compiled)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of numpy, about 1 / 0 in lanes that are masked
    torch.set_num_threads(1)
    fused.kernels = lambda maps: triton_pooling
    checks = {"compile": compile_kernels, "inline": inline, "interpret": values}
    for name in sys.argv[1:]:
        checks[name]()
