"""The kernels of the GPU engine: right in Triton's interpreter and on the device, without
spills."""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from examples import SPECS, random_images
from raising import raises
from whatwhere.engines import get_engine, resolve, unsupported_reasons
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.reference import ista
from whatwhere.engines.triton import engine as triton_engine
from whatwhere.engines.triton.shapes import filter_blocks, filters_of, layer_shapes
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import InferenceSpec, ModelSpec, Phase

sys.path.insert(0, str(Path(__file__).parent))
from triton_cases import (
    CASES,
    FILTER_CASES,
    LARGE_CASES,
    LARGE_FILTER_CASES,
    NONZEROS,
    TOLERANCE,
    UNKNOWN,
    poison_new_memory,
    run,
)

ALL = [*CASES, *FILTER_CASES, UNKNOWN]


def check(name: str, found: dict[str, float]) -> None:
    case = (CASES | LARGE_CASES).get(name)
    allowed = TOLERANCE["float16 products"][1 if case is None else case.steps]
    if name == UNKNOWN:
        allowed = 0.0
    for quantity, error in found.items():
        tolerance = NONZEROS if quantity == "nonzeros" else allowed
        assert error <= tolerance, (name, quantity, error, tolerance)  # false for NaN too


@pytest.mark.slow
def test_interpreted_kernels_agree_with_the_float64_reference() -> None:
    """One process for all cases: the interpreter must be on before triton is imported."""
    pytest.importorskip("triton", minversion="3.6")
    command = [sys.executable, str(Path(__file__).parent / "triton_cases.py"), *ALL]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    found = json.loads(outcome.stdout)
    assert list(found) == ALL
    for name, errors in found.items():
        check(name, errors)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [*ALL, *LARGE_CASES, *LARGE_FILTER_CASES])
def test_kernels_agree_on_the_device(name: str) -> None:
    pytest.importorskip("triton", minversion="3.6")
    poison_new_memory()
    triton_engine._prepared.clear()  # no workspace from before
    for _ in range(3):  # compiled, recorded, replayed
        check(name, run(name, "cuda"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_single_images_are_solved_by_one_recorded_graph() -> None:
    """Each image its own code, whichever filters came before: the graph reads the images and
    filters of its call.

    Longer steps of θ amplify the rounding of one of these images to 5e-3.
    """
    triton_engine._prepared.clear()
    images = random_images(SPECS["2 layers"], 5).cuda()
    spec = InferenceSpec(steps=6, lam=2.0, pooling_step=0.1)
    phase = Phase(layer=2, update_pooling=(1, 2))
    for seed in (0, 1, 0):
        model = DeconvNet(SPECS["2 layers"], seed=seed, dtype=torch.float64).to("cuda")
        low = model.to(torch.float32)
        for v in images.split(1):
            truth = ista.solve(Problem(model, v, phase, spec)).stats.cost
            found = get_engine("triton").solve(Problem(low, v.float(), phase, spec)).stats.cost
            torch.testing.assert_close(found.double(), truth, rtol=1e-3, atol=0)


COMPILE = """
import subprocess, sys, torch, triton
from dataclasses import replace
from pathlib import Path
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from whatwhere.engines.triton.filters import TritonFilterMap
from whatwhere.engines.triton.workspace import Workspace
from whatwhere.engines.reference.ista import start_features
from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.model import Problem
from whatwhere.spec import Fixed, InferenceSpec, LayerSpec, LineSearch, ModelSpec, Phase, Power, Schedule, StepSpec

class NoDevice:  # a driver that only says what to compile for
    get_current_device = lambda self: 0
    get_current_stream = lambda self, device: 0
    get_current_target = lambda self: GPUTarget("cuda", 90, 32)

driver.set_active(NoDevice())
compiled = {}

def compile_only(kernel, grid):
    def launch(*arguments, **options):
        result = kernel.run(*arguments, grid=grid, warmup=True, **options)
        compiled[result.hash] = result
    return launch

JITFunction.__getitem__ = compile_only
paper, v = ModelSpec.paper(), torch.rand(100, 1, 28, 28)  # enough for the large tiles
model, joint = DeconvNet(paper), Phase(layer=2, update_pooling=(1, 2))
training = InferenceSpec(steps=2, step=LineSearch(per="batch"), penalty=Power(alpha=0.5))
inference = InferenceSpec(steps=1, step=LineSearch(momentum=True))
Workspace(Problem(model, v, joint, training)).run()
Workspace(Problem(model, v, joint, inference, mask=v)).run()
# the kernels of `regions`
layers = LayerSpec(maps=16, pool_size=3, pool_stride=2), LayerSpec(maps=48, pool_stride=1)
still = InferenceSpec(steps=1, step=Fixed())
Workspace(Problem(DeconvNet(ModelSpec(layers=layers)), v, joint, still)).run()
scheduled = InferenceSpec(step=Schedule(steps=[StepSpec(size=0.01, threshold=0.01, extrapolation=0.5)] * 2))
Workspace(Problem(model, v, joint, scheduled), from_zero=True).run()
for k in (1, 2):
    problem = Problem(model, v, Phase(layer=k), InferenceSpec(steps=0, step=Fixed()))
    latents = Latents(start_features(problem), start_pooling(problem))
    TritonFilterMap(Workspace(problem), replace(problem, latents=latents), k).normal(model.filters[k - 1])

cuobjdump = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
for result in compiled.values():
    Path(sys.argv[1], "kernel.cubin").write_bytes(result.asm["cubin"])
    report = subprocess.check_output([cuobjdump, "-res-usage", "kernel.cubin"], cwd=sys.argv[1], text=True)
    print(result.metadata.name, " ".join(report.split()))
"""  # noqa: E501


@pytest.mark.slow
def test_every_kernel_of_the_papers_size_compiles_for_sm_90_without_spills(tmp_path: Path) -> None:
    pytest.importorskip("triton", minversion="3.6")
    command = [sys.executable, "-c", COMPILE, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert outcome.returncode == 0, outcome.stderr
    lines = outcome.stdout.splitlines()
    names = (
        "down unpool unpool_overlapping up step take_theta measure sum_rows line_search shared_step"
        " correlate propagate"
    )
    assert {line.split()[0] for line in lines} == set(names.split())
    for line in lines:
        assert re.findall(r"(?:STACK|LOCAL):(\d+)", line) == ["0", "0"], line


@pytest.mark.parametrize(
    "name", ["2 layers, 3×3 regions", "2 layers, overlapping", "2 layers, rectangular"]
)
def test_blocks_of_filters_have_an_adjoint(name: str) -> None:
    model = DeconvNet(SPECS[name], dtype=torch.float64)
    for f, shape in zip(model.filters, layer_shapes(model, 9, 8, 2), strict=True):
        G = torch.randn_like(filter_blocks(f, shape))
        assert torch.allclose((filter_blocks(f, shape) * G).sum(), (f * filters_of(G, shape)).sum())


def test_grouping_blocks_only_moves_filters() -> None:
    """Every element of a filter appears once for each element of a group of blocks."""
    model = DeconvNet(ModelSpec.paper(), dtype=torch.float64)
    (shape, _), f = layer_shapes(model, 28, 28, 2), model.filters[0]
    assert shape.group == (2, 2)
    assert layer_shapes(model, 2, 28, 1)[0].group == (1, 4)
    for group in ((1, 1), (2, 2), (1, 4)):
        elements = math.prod(group) * shape.cell_area
        assert torch.allclose(filter_blocks(f, shape, group).sum(), elements * f.sum())


def unsupported_reason(name: str, dtype: torch.dtype = torch.float32) -> str | None:
    model = DeconvNet(SPECS[name], dtype=dtype)
    return triton_engine.unsupported(
        Problem(model, random_images(SPECS[name]).to(dtype), Phase(layer=model.spec.depth))
    )


def test_what_the_kernels_do_not_cover_is_refused_by_name() -> None:
    assert "float64" in (unsupported_reason("2 layers", torch.float64) or "")
    for change, why in (
        ({"pool_size": (3, 6)}, "stride of 3×6"),
        ({"pool_size": 9, "pool_stride": 2}, "9×9 elements"),
    ):
        model = DeconvNet(ModelSpec(layers=(replace(SPECS["1 layer"].layers[0], **change),)))
        assert why in (
            triton_engine.unsupported(Problem(model, torch.zeros(1, 1, 9, 9), Phase(layer=1))) or ""
        )
    assert "pool_maps" in (unsupported_reason("2 layers, 3-D pooling") or "")
    for name in (
        "3 layers, colour",
        "2 layers, overlapping",
        "2 layers, rectangular",
        "2 layers, signals",
    ):
        assert unsupported_reason(name) is None


def test_without_a_gpu_it_refuses_and_auto_goes_on() -> None:
    model, images = DeconvNet(SPECS["1 layer"]), random_images(SPECS["1 layer"]).float()
    spec = InferenceSpec(steps=1)
    with raises(UnsupportedProblem, engine="triton") as caught:
        infer(model, images, spec, engine="triton")
    assert re.search("CUDA|not installed", caught.value.reason)
    assert resolve("auto", Problem(model, images, Phase(layer=1), spec)).name != "triton"
    assert unsupported_reasons(Problem(model, images, Phase(layer=1), spec))["triton"] is not None


def test_without_triton_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)  # which hides the package
    model, images = DeconvNet(SPECS["1 layer"]), random_images(SPECS["1 layer"]).float()
    why = get_engine("triton").unsupported_reason(
        Problem(model, images, Phase(layer=1), InferenceSpec())
    )
    assert why is not None
    assert "triton is not installed" in why


@pytest.mark.parametrize(
    ("version", "usable"),
    [("3.3.1", False), ("3.5.1", False), ("3.6.0", True), ("3.10.0+git1", True), ("4.0", True)],
)
def test_a_triton_that_is_too_old_is_named(version: str, usable: bool) -> None:
    """A torch that is older than 2.10 brings it; `auto` then takes another engine."""
    why = triton_engine.outdated(version)
    assert (why is None) == usable
    assert usable or version in str(why)
