"""Compile every kernel for sm_90, which needs no GPU. Run in a process of its own."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from whatwhere.nn import triton_overlap, triton_pooling

SQUARE = {"KY": 2, "KX": 2, "INSIDE": True, "CHANNELS_LAST": False, "ACC": tl.float32, "BLOCK": 256, "WIDE": False}
ALL = {"POWER": 2, "D_MU": True, "D_GAMMA": True}
OVERLAP = {"TY": 2, "TX": 2, "MY": 2, "MX": 2, "GROUP": 1, "NUMBERS": triton_overlap.NUMBERS, "UNPOOL": True}
KERNELS = (
    (triton_pooling.fit_pool_kernel, {"POWER": 2, "WHERE": True, "WIDE": True, "CHANNELS_LAST": True}),
    (triton_pooling.pool_kernel, {"SLOPES": True}),
    (triton_pooling.unpool_kernel, {"INSIDE": False}),
    (triton_pooling.fit_pool_backward_kernel, ALL),
    (triton_overlap.overlap_kernel, {**ALL, **OVERLAP, "KY": 3, "KX": 3, "INSIDE": False}),
)
POINTERS = ("z", "p", "mu", "gamma", "d_p", "d_mu", "d_gamma", "d_z", "out", "notes")


def kind(name: str, constants: dict) -> str:
    if name in constants:
        return "constexpr"
    return "*fp32" if name in POINTERS else "fp32" if name in ("lo", "hi") else "i32"


for kernel, own in KERNELS:
    constants = {**SQUARE, **own}
    signature = {name: kind(name, constants) for name in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    assert "sm_90" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
