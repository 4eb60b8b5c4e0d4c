"""Engines by name: which one is resolved, and what is said of the others."""

import sys
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from examples import SPECS, random_images
from raising import raises
from whatwhere import engines
from whatwhere.data import load as load_data
from whatwhere.engines import ENGINES, REFERENCE, get_engine, resolve, unsupported_reasons
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.cpu import first_use
from whatwhere.engines.reference import ReferenceEngine
from whatwhere.errors import InvalidImages, NoFastEngine, SlowEngineWarning, UnknownEngine
from whatwhere.files import Busy
from whatwhere.inference import infer
from whatwhere.learning import load
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, LineSearch, ModelSpec, Phase, Recipe

SPEC, PHASE, FEW = SPECS["2 layers"], Phase(layer=2), InferenceSpec(steps=1)


def test_every_engine_has_the_name_it_is_listed_by() -> None:
    assert list(ENGINES) == ["triton", "greedy", "cpu", "reference"], "fastest first"
    assert all(engine.name == name for name, engine in ENGINES.items())
    assert get_engine("reference") is REFERENCE


def test_an_unknown_name_raises_an_error() -> None:
    known = ("auto", "triton", "greedy", "cpu", "reference")
    with raises(UnknownEngine, given="warp", known=known):
        get_engine("warp")


def test_auto_resolves_to_the_first_engine_without_a_reason() -> None:
    model, v = DeconvNet(SPEC), random_images(SPEC).float()
    reasons = unsupported_reasons(Problem(model, v, PHASE, FEW))
    assert reasons["reference"] is None
    assert resolve("auto", Problem(model, v, PHASE, FEW)).name == next(
        name for name, why in reasons.items() if why is None
    )
    for name, why in reasons.items():
        if why is not None:
            with raises(UnsupportedProblem, engine=name, reason=why):
                resolve(name, Problem(model, v, PHASE, FEW))


def test_a_missing_compiler_is_named_as_pip_knows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numba", "triton"):  # None hides a package
        monkeypatch.setitem(sys.modules, name, None)
    images = random_images(SPEC).float()
    reasons = unsupported_reasons(Problem(DeconvNet(SPEC), images, PHASE, FEW))
    assert reasons["cpu"] == "it needs the package numba (pip install numba)"
    assert reasons["triton"] == "the package triton is not installed (pip install triton)"


def test_auto_says_why_it_took_the_reference() -> None:
    model, v = DeconvNet(SPEC, dtype=torch.bfloat16), random_images(SPEC).bfloat16()
    with pytest.warns(NoFastEngine) as said:
        assert resolve("auto", Problem(model, v, PHASE, FEW)) is REFERENCE
    (warning,) = [one.message for one in said]
    assert list(warning.reasons) == ["triton", "greedy", "cpu"]
    assert "bfloat16" in warning.reasons["cpu"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        resolve("reference", Problem(model, v, PHASE, FEW))  # asked for by name


def test_a_small_problem_does_not_wait_for_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, started = False, list[int]()
    here = first_use.FirstUse(lambda: compiled, lambda: started.append(1))
    monkeypatch.setattr(engines, "FIRST_USE", here)
    model, v, settings = DeconvNet(ModelSpec.paper()), torch.rand(1, 1, 28, 28), InferenceSpec()
    problem = Problem(model, v, PHASE, settings)
    with pytest.warns(SlowEngineWarning):
        assert infer(model, v, FEW).engine == "reference"
    assert started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert resolve("auto", problem, 3).name == "reference"
        assert resolve("auto", problem, 11).name == "cpu", "compiling is faster than the reference"
        assert resolve("auto", problem, 1).name == "reference"
        assert resolve("auto", problem, 2).name == "cpu", (
            "many small ones are as slow as a large one"
        )
        assert resolve("auto", problem).name == "cpu", "training waits"
        here.work, compiled = 0.0, True
        assert resolve("auto", problem, 1).name == "cpu"


class Threads(TorchDispatchMode):
    """Notes with how many threads operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.used.add(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


def test_a_core_is_left_to_the_compiler() -> None:
    problem = Problem(DeconvNet(SPEC), torch.rand(1, 1, 12, 12), PHASE, FEW)
    before = torch.get_num_threads()
    try:
        for threads, used in ((1, 1), (3, 2)):
            torch.set_num_threads(threads)
            with Threads() as seen:
                first_use.FirstUse.engine.solve(problem)
            assert seen.used == {used}
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)


class Started:
    """Notes the commands that would start."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command: list[str], **options: object) -> None:
        self.commands.append(command)


def test_machine_code_is_made_once() -> None:
    pytest.importorskip("numba")
    start = Started()
    for _ in range(2):
        first_use.compile_apart(start)
    ((_, _, program),) = start.commands
    exec(program)  # here the machine code is there


def test_machine_code_is_left_to_the_process_that_makes_it() -> None:
    pytest.importorskip("numba")
    start, later = Started(), Started()
    with first_use.only_compiler():  # as another process does: every open of the folder counts
        first_use.compile_apart(start)
        with pytest.raises(Busy):
            exec(first_use.COMPILE)
    assert not start.commands
    first_use.compile_apart(later)
    assert len(later.commands) == 1


class NoFloat64(TorchDispatchMode):
    """Raises where an operation makes numbers of float64, which Apple's GPUs do not have, from
    tensors."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = [x for x in tree_flatten(args)[0] if isinstance(x, torch.Tensor)]
        made = [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]
        if given and any(x.dtype == torch.float64 for x in made):
            raise AssertionError(f"{func} makes float64")
        return result


@pytest.mark.parametrize("rule", ["image", "batch"])
@pytest.mark.parametrize(
    "name", ["2 layers", "2 layers, overlapping", "2 layers, 3-D pooling", "2 layers, max"]
)
def test_the_reference_needs_no_float64(name: str, rule: str) -> None:
    """As on a device that has none: `cpu()` leaves the device, `double()` before it would not run
    there."""
    model, v = DeconvNet(SPECS[name]), random_images(SPECS[name]).float()
    with NoFloat64():
        solution = infer(
            model, v, InferenceSpec(steps=2, step=LineSearch(per=rule)), engine="reference"
        )
        assert torch.isfinite(solution.reconstruction).all()


def test_inference_resolves_its_engine_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, v, asked = DeconvNet(SPEC), random_images(SPEC, 7).float(), list[int]()

    class Asked(ReferenceEngine):
        def unsupported_reason(self, problem: Problem) -> str | None:
            asked.append(problem.phase.layer)
            return super().unsupported_reason(problem)

    monkeypatch.setitem(ENGINES, "reference", Asked())
    infer(model, v, FEW, (Phase(layer=1), Phase(layer=2)), batch_size=2, engine="reference")
    assert asked == [2]


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_a_solution_carries_the_engines_name(name: str) -> None:
    pytest.importorskip("numba" if name == "cpu" else "torch")
    solution = get_engine(name).solve(
        Problem(DeconvNet(SPEC), random_images(SPEC).float(), PHASE, FEW)
    )
    assert isinstance(solution, Solution)
    assert solution.engine == name
    with raises(InvalidImages, given="a solution without a decoder"):
        solution.reconstruction  # noqa: B018
    assert torch.isfinite(solution.features).all()


# The paper's trained model through the fast engines: 50 steps beside float64, and the test error of
# its features


FIFTY = InferenceSpec(steps=50)
FAST = [
    pytest.param("cpu", marks=pytest.mark.slow),
    pytest.param(
        "triton",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ],
    ),
]


def on_its_device(engine: str) -> DeconvNet:
    pytest.importorskip("numba" if engine == "cpu" else "triton")
    return load("mnist").to("cuda" if engine == "triton" else "cpu")


@pytest.mark.parametrize("engine", FAST)
def test_after_50_steps_the_cost_is_within_a_thousandth_of_float64(engine: str) -> None:
    model = on_its_device(engine)
    v = load_data("digits", split="test")[: 500 if engine == "triton" else 2]
    found = infer(model, v, FIFTY, engine=engine)
    truth = infer(model.to(torch.float64), v, FIFTY, engine="reference")
    cost, exact = (solution.stats.cost[-1].sum().double() for solution in (found, truth))
    assert abs(cost / exact - 1) < 1e-3
    difference = (found.features.double() - truth.features).norm() / truth.features.norm()
    assert difference < 1e-3  # measured on the device: 9e-5


# of the CPU engine, features that agree so closely are enough
@pytest.mark.parametrize("engine", FAST[1:])
def test_the_test_error_is_that_of_the_reference(engine: str) -> None:
    pytest.importorskip("sklearn")
    from whatwhere.classification import describe_images, protocol

    model = on_its_device(engine)
    training, test = load_data("digits", split="train"), load_data("digits", split="test")
    recipe = replace(Recipe.paper(), inference=replace(FIFTY, steps=20))
    rates = []
    for name in (engine, "reference"):
        x, x_test = (
            describe_images(model, images, recipe, engine=name) for images in (training, test)
        )
        rates.append(protocol.evaluate(x, training.labels, x_test, test.labels, 30.0).error)
    assert rates[0] < 0.3, "it tells digits apart"
    assert abs(rates[0] - rates[1]) <= 5e-4
