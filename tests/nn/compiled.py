"""Compile every kernel for sm_90, which needs no GPU. Run in a process of its own."""

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from whatwhere.latents import PoolingParams
from whatwhere.nn import fused, triton_pooling
from whatwhere.ops.pooling import Regions
from whatwhere.spec import MomentFit


class NoDevice:  # a driver that only says what to compile for
    get_current_device = lambda self: 0  # noqa: E731
    get_current_stream = lambda self, device: 0  # noqa: E731
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)  # noqa: E731


compiled = []


def compile_only(kernel, grid):
    def launch(*arguments, **options):
        result = kernel.run(*arguments, grid=grid, warmup=True, **options)
        compiled.append((kernel.__name__, options["RULE"].operation, result.asm["ptx"]))

    return launch


driver.set_active(NoDevice())
JITFunction.__getitem__ = compile_only
fused.kernels = lambda maps: triton_pooling
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
