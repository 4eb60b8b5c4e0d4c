"""Time GaussianPool2d and GaussianUnpool2d against max_pool2d, avg_pool2d and the plain-torch form,
on one CUDA GPU.

    python -m benchmarks.layers.pooling_layers --out pooling_layers.json

First every fused result, forward and backward, is compared with the plain form in float64; no time
is reported on a wrong answer. Times are medians over many runs with the cache flushed before each,
the best of three such medians: as a program in eager mode sees them, and again as replayed CUDA
graphs, which leaves out what Python takes to launch. `--compiled` also times both poolings inside
`torch.compile`, forward and backward, and a small network that is trained with each.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as torch_functional
from torch import Tensor, nn

from benchmarks.machine import machine
from whatwhere import PoolingParams
from whatwhere.nn import GaussianPool2d
from whatwhere.nn import functional as F


@dataclass(frozen=True)
class Case:
    """A map and how it is pooled."""

    shape: tuple[int, int, int, int]
    dtype: str = "float32"
    channels_last: bool = False
    kernel: int = 2
    stride: int = 2
    padding: int = 0

    def maps(self, seed: int = 0) -> Tensor:
        torch.manual_seed(seed)
        z = torch.randn(self.shape, device="cuda").to(getattr(torch, self.dtype))
        return z.contiguous(memory_format=torch.channels_last) if self.channels_last else z

    @property
    def window(self) -> tuple[int, int, int]:
        return self.kernel, self.stride, self.padding

    def __str__(self) -> str:
        layout = " channels_last" if self.channels_last else ""
        return (
            f"{'×'.join(map(str, self.shape))} {self.dtype}{layout}"
            f" {self.kernel}/{self.stride}/{self.padding}"
        )


SIZES = ((64, 256, 56, 56), (64, 64, 112, 112), (128, 512, 28, 28), (256, 128, 32, 32))
CASES = (
    *(Case(size) for size in SIZES),
    *(Case(size, "bfloat16") for size in SIZES),
    Case(SIZES[0], "float16"),
    Case(SIZES[0], channels_last=True),
    Case((64, 64, 112, 112), kernel=3, stride=2, padding=1),
    Case((64, 64, 112, 112), "bfloat16", kernel=3, stride=2, padding=1),
)


def pool_functions(case: Case) -> dict[str, Callable[[Tensor], Tensor]]:
    return {
        "max": lambda z: torch_functional.max_pool2d(z, *case.window),
        "avg": lambda z: torch_functional.avg_pool2d(z, *case.window),
        "fused": lambda z: F.gaussian_pool2d(z, *case.window, form="fused"),
        "plain": lambda z: F.gaussian_pool2d(z, *case.window, form="plain"),
    }


def autoencoders(case: Case) -> dict[str, Callable[[Tensor], Tensor]]:
    """Pool and unpool to the size of the input."""

    def largest(z: Tensor) -> Tensor:
        p, indices = torch_functional.max_pool2d(z, *case.window, return_indices=True)
        return torch_functional.max_unpool2d(p, indices, *case.window, output_size=z.shape)

    def gaussian(form: F.Form) -> Callable[[Tensor], Tensor]:
        def there_and_back(z: Tensor) -> Tensor:
            p, where = F.gaussian_pool2d(z, *case.window, form=form, return_where=True)
            return F.gaussian_unpool2d(p, where, *case.window, output_size=z.shape, form=form)

        return there_and_back

    return {"max": largest, "fused": gaussian("fused"), "plain": gaussian("plain")}


def median_ms(function: Callable[..., object], *arguments: Tensor) -> float:
    from triton.testing import do_bench

    return min(
        float(do_bench(lambda: function(*arguments), warmup=10, rep=30, return_mode="median"))
        for _ in range(3)
    )


def graph_ms(function: Callable[..., object], *arguments: Tensor) -> float:
    """The time on the device alone: a captured graph, replayed, has no gaps in which Python
    prepares a launch."""
    from triton.testing import do_bench_cudagraph

    return float(do_bench_cudagraph(lambda: function(*arguments), rep=20, return_mode="median"))


def with_gradient(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], object]:
    return lambda leaf, gradient: torch.autograd.grad(function(leaf), leaf, gradient)


def times(case: Case) -> dict[str, dict[str, float]]:
    """Milliseconds of every function: pooling alone, and there and back; forward, and forward with
    backward."""
    z = case.maps()
    milliseconds: dict[str, dict[str, float]] = {}
    for name, functions in (("pool", pool_functions(case)), ("pool+unpool", autoencoders(case))):
        in_graph = {who: functions[who] for who in ("max", "fused")}
        with torch.no_grad():
            milliseconds[f"{name} forward"] = {who: median_ms(f, z) for who, f in functions.items()}
            milliseconds[f"{name} forward, graph"] = {
                who: graph_ms(f, z) for who, f in in_graph.items()
            }
        leaf, gradient = z.detach().requires_grad_(), torch.randn_like(functions["max"](z))
        both = f"{name} forward+backward"
        milliseconds[both] = {
            who: median_ms(with_gradient(f), leaf, gradient) for who, f in functions.items()
        }
        milliseconds[f"{both}, graph"] = {
            who: graph_ms(with_gradient(f), leaf, gradient) for who, f in in_graph.items()
        }
    return milliseconds


def peak_mib(function: Callable[[Tensor], Tensor], z: Tensor) -> float:
    """What forward and backward need in addition to the input and the gradient."""
    leaf = z.detach().requires_grad_()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    output = function(leaf)
    output.sum().backward()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


# --- inside torch.compile

COMPILED = (
    Case((512, 64, 32, 32)),
    Case((512, 64, 32, 32), "bfloat16"),
    Case((64, 256, 56, 56)),
    Case((64, 64, 112, 112), kernel=3, stride=2, padding=1),
)


def compiled_times(case: Case) -> dict[str, dict[str, float]]:
    """Milliseconds of max pooling and of Gaussian pooling, forward with backward: in eager mode,
    and compiled without a graph break."""
    z = case.maps().requires_grad_()
    poolings = {
        "max": lambda z: torch_functional.max_pool2d(z, *case.window),
        "Gaussian": lambda z: F.gaussian_pool2d(z, *case.window),
    }
    gradient = torch.randn_like(poolings["max"](z))
    milliseconds: dict[str, dict[str, float]] = {"eager": {}, "compiled": {}}
    for name, pooling in poolings.items():
        torch.compiler.reset()
        compiled = torch.compile(pooling, fullgraph=True)
        milliseconds["eager"][name] = median_ms(with_gradient(pooling), z, gradient)
        milliseconds["compiled"][name] = median_ms(with_gradient(compiled), z, gradient)
    return milliseconds


def network(pooling: type[nn.MaxPool2d] | type[GaussianPool2d]) -> nn.Module:
    """Two convolutions for images of 32 × 32 in three colours."""
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1),
        nn.ReLU(),
        pooling(2),
        nn.Conv2d(64, 128, 3, padding=1),
        nn.ReLU(),
        pooling(2),
        nn.Flatten(),
        nn.Linear(128 * 8 * 8, 10),
    )


def training_times() -> dict[str, dict[str, float]]:
    """Milliseconds of a training step of 512 images with each pooling, in float32 and under
    autocast."""
    images = torch.randn(512, 3, 32, 32, device="cuda")
    labels = torch.randint(10, (512,), device="cuda")
    milliseconds: dict[str, dict[str, float]] = {}
    for mode, enabled in (("float32", False), ("autocast bfloat16", True)):
        milliseconds[mode] = {}
        for name, pooling in (("max", nn.MaxPool2d), ("Gaussian", GaussianPool2d)):
            torch.compiler.reset()
            torch.manual_seed(0)
            model = torch.compile(network(pooling).cuda(), fullgraph=True)
            optimizer = torch.optim.SGD(model.parameters(), 1e-3)

            def step(model=model, optimizer=optimizer, enabled=enabled) -> None:
                with torch.autocast("cuda", torch.bfloat16, enabled):
                    loss = torch_functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            milliseconds[mode][name] = median_ms(step)
    return milliseconds


def time_compiled() -> dict[str, Any]:
    """All times inside torch.compile, with the ratios to max pooling."""
    rows = []
    for case in COMPILED:
        milliseconds = compiled_times(case)
        print(case, milliseconds, flush=True)
        rows.append({"case": asdict(case), "milliseconds": milliseconds})
    training = training_times()
    print("training step", training, flush=True)
    return {"rows": rows, "training step, milliseconds": training}


# --- right before fast

TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def results(
    z: Tensor, window: tuple, ceil_mode: bool, form: F.Form, seed: int
) -> Iterator[tuple[str, Tensor]]:
    """Everything the layers compute, by name: values, and gradients of random sums of them."""
    leaf = z.detach().requires_grad_()
    p, fitted = F.gaussian_pool2d(leaf, *window, ceil_mode=ceil_mode, form=form, return_where=True)
    generator = torch.Generator("cuda").manual_seed(seed)

    def random_like(tensor: Tensor) -> Tensor:
        drawn = torch.randn(tensor.shape, generator=generator, device="cuda", dtype=torch.float64)
        return drawn.bfloat16().to(tensor.dtype)  # numbers that every dtype can hold

    outputs = (p, fitted.mu, fitted.gamma)
    yield from zip(("p", "mu", "gamma"), outputs, strict=True)
    yield "∇z", torch.autograd.grad(outputs, leaf, [random_like(y) for y in outputs])[0]
    where = PoolingParams(random_like(fitted.mu) / 2, random_like(fitted.gamma).abs())
    where.mu.requires_grad_(), where.gamma.requires_grad_()
    for name, given, function in (
        (
            "pool",
            leaf,
            lambda: F.gaussian_pool2d(leaf, *window, ceil_mode=ceil_mode, where=where, form=form),
        ),
        (
            "unpool",
            q := random_like(p).requires_grad_(),
            lambda: F.gaussian_unpool2d(q, where, *window, z.shape, form=form),
        ),
    ):
        y = function()
        yield name, y
        gradients = torch.autograd.grad(y, (given, where.mu, where.gamma), random_like(y))
        yield from zip((f"∇ {name}", f"∇mu {name}", f"∇gamma {name}"), gradients, strict=True)


CHECKS = (  # dtype, channels_last, (kernel, stride, padding), ceil_mode
    (torch.float32, False, (2, 2, 0), False),
    (torch.float32, True, (3, 2, 1), False),
    (torch.float32, False, (2, 3, 0), True),
    (torch.float64, False, (3, 2, 1), True),
    (torch.float16, False, (3, 2, 1), False),
    (torch.float16, True, (2, 2, 0), True),
    (torch.bfloat16, True, (2, 2, 0), False),
    (torch.bfloat16, False, (3, 1, 1), True),
)


def check() -> None:
    """Compare the fused form with the plain one in float64, on an odd shape."""
    torch.use_deterministic_algorithms(True, warn_only=True)  # which fills new memory with NaN
    worst: dict[str, float] = {}
    for seed, (dtype, channels_last, window, ceil_mode) in enumerate(CHECKS):
        z = torch.randn(3, 37, 23, 31, device="cuda").bfloat16().to(dtype)
        z[:, :2, :8, :8] = 0
        if channels_last:
            z = z.contiguous(memory_format=torch.channels_last)
        fused = results(z, window, ceil_mode, "fused", seed)
        exact = results(z.double(), window, ceil_mode, "plain", seed)
        for (name, ours), (_, truth) in zip(fused, exact, strict=True):
            # where regions are nearly empty, a derivative may exceed what the dtype can hold
            largest = torch.finfo(dtype).max
            found = ours.double().clamp(-largest, largest)
            expected = truth.clamp(-largest, largest)
            error = ((found - expected).norm() / expected.norm()).item()
            worst[f"{dtype} {name}"] = max(worst.get(f"{dtype} {name}", 0.0), error)
            if not error < TOLERANCE[dtype]:
                print(
                    f"WRONG {name} {dtype} {window} ceil={ceil_mode} channels_last={channels_last}:"
                    f" {error:.1e}"
                )
    torch.use_deterministic_algorithms(False)
    for dtype, tolerance in TOLERANCE.items():
        errors = {key: error for key, error in worst.items() if key.startswith(str(dtype))}
        print(
            f"{dtype}: largest relative error {max(errors.values()):.1e} (allowed {tolerance:.0e})",
            errors,
        )
    if any(
        not error < TOLERANCE[getattr(torch, key.split()[0][6:])] for key, error in worst.items()
    ):
        raise SystemExit("the fused kernels are wrong; nothing was timed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where to write every time")
    parser.add_argument("--check", action="store_true", help="check the answers only")
    parser.add_argument("--compiled", action="store_true", help="also inside torch.compile")
    parser.add_argument(
        "--only", default="", help="only cases whose name holds this, such as 'float32 2/2/0'"
    )
    options = parser.parse_args()
    check()
    if options.check:
        return
    compiled = time_compiled() if options.compiled else None
    rows = []
    for case in (case for case in CASES if options.only in str(case)):
        milliseconds = times(case)
        memory = {who: peak_mib(f, case.maps()) for who, f in pool_functions(case).items()}
        rows.append({"case": asdict(case), "milliseconds": milliseconds, "peak MiB": memory})
        print(case, flush=True)
        for what, by in milliseconds.items():
            listed = "  ".join(f"{who} {ms:.3f}" for who, ms in by.items())
            print(f"    {what:36} {listed}   fused/max {by['fused'] / by['max']:.2f}", flush=True)
        print(
            "    peak MiB                            ",
            "  ".join(f"{who} {mib:.0f}" for who, mib in memory.items()),
        )
    if options.out:
        found = {"machine": machine(), "rows": rows, "compiled": compiled}
        options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
