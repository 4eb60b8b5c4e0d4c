"""The CPU engine: the values of the reference, the same for any number of threads; what it does
not support."""

import math
import sys

import pytest
import torch

from agreement import AGREEMENTS, differences, influence_of_unknown_pixels, solve_both
from examples import SPECS, filter_problem, random_images, random_latents, random_mask
from raising import raises
from whatwhere.engines import get_engine, resolve, unsupported_reasons
from whatwhere.engines.base import UnsupportedProblem
from whatwhere.engines.reference.filter_map import FilterMap
from whatwhere.errors import NoFastEngine
from whatwhere.inference import infer
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import Fixed, InferenceSpec, LineSearch, Max, ModelSpec, Phase

pytest.importorskip("numba")
from whatwhere.engines.cpu.start import FITS

cpu = get_engine("cpu")
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-4}
JOINT = Phase(layer=2, update_pooling=(1, 2))


@pytest.mark.parametrize("dtype", TOLERANCE, ids=["float64", "float32"])
@pytest.mark.parametrize("name", AGREEMENTS)
def test_agrees_with_the_float64_reference(name: str, dtype: torch.dtype) -> None:
    found, truth = solve_both(name, cpu, dtype)
    assert found.engine == "cpu"
    for quantity, difference in differences(found, truth).items():
        assert not math.isnan(difference), quantity
        assert difference <= TOLERANCE[dtype], (quantity, difference)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_unknown_pixels_change_not_one_bit(name: str) -> None:
    assert set(influence_of_unknown_pixels(get_engine(name), torch.float32).values()) == {0.0}


@pytest.mark.parametrize("step", [LineSearch(), LineSearch(per="batch"), Fixed()])
def test_the_number_of_threads_changes_nothing(step: LineSearch | Fixed) -> None:
    model, images = DeconvNet(SPECS["2 layers"]), random_images(SPECS["2 layers"], 50).float()
    spec, found = InferenceSpec(steps=5, step=step), {}
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            found[threads] = cpu.solve(Problem(model, images, JOINT, spec))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(1)
    for threads in (2, 5):
        for one, many in zip(
            found[1].latents.tensors(), found[threads].latents.tensors(), strict=True
        ):
            assert torch.equal(one, many)
        assert torch.equal(found[1].stats.cost, found[threads].stats.cost)
        assert torch.equal(found[1].stats.step, found[threads].stats.step)


MASKS = ["", "known", "weights per channel"]


# every model in both dtypes, with two of the masks
@pytest.mark.parametrize(
    ("name", "dtype", "kind"),
    [
        (name, dtype, MASKS[(n + m) % 3])
        for n, name in enumerate(name for name in SPECS if "3-D" not in name)
        for m, dtype in enumerate(TOLERANCE)
    ],
)
def test_the_filter_map_is_the_references_at_every_layer(
    name: str, dtype: torch.dtype, kind: str
) -> None:
    reference, images = DeconvNet(SPECS[name], dtype=torch.float64), random_images(SPECS[name], 35)
    latents = random_latents(reference, images)
    # few enough for the sparse way down, too
    latents.p[::2] *= torch.rand_like(latents.p[::2]) < 0.05
    model, v, mask = reference.to(dtype), images.to(dtype), random_mask(images, kind)
    low = None if mask is None else mask.to(dtype)
    for k, f in enumerate(reference.filters, start=1):
        truth = FilterMap(filter_problem(reference, images, latents, mask), k)
        found = cpu.filter_map(filter_problem(model, v, latents.to(dtype), low), k)
        direction = f + 0.1 * torch.rand_like(f)
        for ours, theirs in (
            (found.normal(direction.to(dtype)), truth.normal(direction)),
            (found.negative_gradient(f.to(dtype)), truth.negative_gradient(f)),
        ):
            assert ours.dtype == dtype
            assert float((ours.double() - theirs).norm() / theirs.norm()) <= TOLERANCE[dtype], k


def test_the_filter_map_does_not_depend_on_the_number_of_threads() -> None:
    model, images = DeconvNet(SPECS["2 layers"]), random_images(SPECS["2 layers"], 100).float()
    latents, found = random_latents(model, images).to(torch.float32), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(
                cpu.filter_map(filter_problem(model, images, latents), 2).negative_gradient(
                    model.filters[1]
                )
            )
    finally:
        torch.set_num_threads(1)
    assert torch.equal(*found)


def test_an_image_does_not_depend_on_its_neighbours() -> None:
    model, images = (
        DeconvNet(ModelSpec.paper()),
        random_images(ModelSpec.paper(), 3, 28, 28).float(),
    )
    spec = InferenceSpec(steps=3)
    together = cpu.solve(Problem(model, images, JOINT, spec))
    for i in range(3):
        alone = cpu.solve(Problem(model, images[i : i + 1], JOINT, spec))
        for a, b in zip(
            together.latents[i : i + 1].tensors(), alone.latents.tensors(), strict=True
        ):
            # the start is fitted by torch, in another order
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_an_image_does_not_depend_on_the_one_before() -> None:
    model, image = DeconvNet(SPECS["2 layers"]), random_images(SPECS["2 layers"], 1).float()
    latents, spec = random_latents(model, image).to(torch.float32), InferenceSpec(steps=3)
    first = cpu.solve(Problem(model, image, JOINT, spec, latents))
    for other in (image.flip(2), 3e38 * image):  # the second leaves numbers that are not finite
        cpu.solve(Problem(model, other, JOINT, spec))
        again = cpu.solve(Problem(model, image, JOINT, spec, latents))
        for a, b in zip(first.latents.tensors(), again.latents.tensors(), strict=True):
            assert torch.equal(a, b)


def test_denormal_numbers_stay_as_they_were_for_the_caller() -> None:
    tiny = torch.tensor([1e-40])
    infer(
        DeconvNet(SPECS["1 layer"]),
        random_images(SPECS["1 layer"]).float(),
        InferenceSpec(steps=1),
        engine="cpu",
    )
    assert float(tiny * 1) > 0


def test_auto_takes_it_on_the_cpu() -> None:
    model, images = DeconvNet(SPECS["2 layers"]), random_images(SPECS["2 layers"]).float()
    assert infer(model, images, InferenceSpec(steps=1)).engine == "cpu"


@pytest.mark.parametrize(
    ("name", "dtype", "why"),
    [
        ("1 layer", torch.float16, "float16"),
        ("2 layers, 3-D pooling", torch.float32, "pool_maps = 2"),
    ],
)
def test_unsupported_problems_go_to_the_reference(name: str, dtype: torch.dtype, why: str) -> None:
    model, images = DeconvNet(SPECS[name], dtype=dtype), random_images(SPECS[name]).to(dtype)
    problem = Problem(model, images, Phase(layer=1, update_pooling=(1,)))
    with pytest.warns(NoFastEngine):
        assert resolve("auto", problem).name == "reference"
    reason = unsupported_reasons(problem)["cpu"]
    assert why in str(reason)
    with raises(UnsupportedProblem, engine="cpu", reason=reason):
        resolve("cpu", problem)


def test_without_numba_it_says_which_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)  # which hides the package
    model, images = DeconvNet(SPECS["1 layer"]), random_images(SPECS["1 layer"]).float()
    assert "numba" in str(
        cpu.unsupported_reason(Problem(model, images, Phase(layer=1), InferenceSpec()))
    )


def test_a_kind_of_pooling_without_a_kernel_starts_from_the_references_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = SPECS["2 layers, max"]
    model = DeconvNet(spec, seed=0, dtype=torch.float64)
    images = random_images(spec).double()
    problem = Problem(model, images, Phase(layer=2), InferenceSpec(lam=2.0, steps=3))
    own = get_engine("cpu").solve(problem)
    monkeypatch.delitem(FITS, Max)
    other = get_engine("cpu").solve(problem)
    torch.testing.assert_close(other.latents.p, own.latents.p)
    torch.testing.assert_close(other.stats.cost, own.stats.cost)
