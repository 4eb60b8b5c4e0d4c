"""Recorded steps give what the reference gives, however calls follow each other."""

import copy

import pytest
import torch
from torch import Tensor

from examples import SPECS, random_images
from whatwhere.latents import Latents
from whatwhere.model import DeconvNet
from whatwhere.nn import SparseCode2d, replayed_steps
from whatwhere.nn.replayed_steps import ReplaySettings

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
NAMES = ("2 layers", "1 layer, colour", "2 layers, max", "2 layers, sum", "2 layers, signed")


def layer(name: str) -> SparseCode2d:
    model = DeconvNet(SPECS[name], seed=1, dtype=torch.float64).to("cuda")
    return SparseCode2d.from_model(model, 3, return_where=True)


def images(name: str, count: int = 3, seed: int = 0) -> Tensor:
    x = random_images(SPECS[name], count, 12, 10).roll(seed, -1)
    return x.to("cuda", torch.float64).requires_grad_()


def reference(code: SparseCode2d, x: Tensor) -> Latents:
    model = code.model
    v, _ = model.input_stage.forward(x, None)
    return code.run(code.problem(model, v))


def loss(latents: Latents) -> Tensor:
    weights = [(t * torch.linspace(-1, 1, t.numel(), device="cuda").view_as(t)).sum()
               for t in latents.tensors()]  # fmt: skip
    return torch.stack(weights).sum()


def gradients(value: Tensor, code: SparseCode2d, x: Tensor) -> list[Tensor]:
    found = torch.autograd.grad(value, [x, *code.parameters()], allow_unused=True)
    return [torch.zeros(()) if g is None else g for g in found]


def recorded(code: SparseCode2d) -> bool:
    return replayed_steps._memory[code].recording is not None


def test_only_batches_on_a_gpu_that_are_trained_are_recorded() -> None:
    x = torch.rand(2, 1, 8, 8, requires_grad=True)
    assert not replayed_steps.supports(x)  # on a CPU
    if torch.cuda.is_available():
        assert replayed_steps.supports(x.cuda())
        assert not replayed_steps.supports(x.detach().cuda())
        assert not replayed_steps.supports(x.cuda(), settings=ReplaySettings(most_pixels=127))
        with torch.autocast("cuda"):
            assert not replayed_steps.supports(x.cuda())


@needs_gpu
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients_are_those_of_the_reference(name: str) -> None:
    code = layer(name)
    for call in range(4):  # the second is recorded
        x = images(name, seed=call)
        ours, expected = code.code(x), reference(code, x)
        for a, b in zip(ours.tensors(), expected.tensors(), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)
        pairs = zip(gradients(loss(ours), code, x), gradients(loss(expected), code, x), strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9 * float(b.abs().max()) + 1e-12)
        assert recorded(code) == (call > 0)
        with torch.no_grad():  # later calls see filters that have moved
            for f in code.filters:
                f.add_(0.01)


@needs_gpu
def test_two_forward_passes_before_their_backward_passes() -> None:
    name = "2 layers"
    code = layer(name)
    for _ in range(2):
        code.code(images(name))
    first, second = images(name, seed=1), images(name, seed=2)
    ours = code.code(first), code.code(second)
    kept = [t.clone() for t in ours[0].tensors()]
    expected = [gradients(loss(reference(code, x)), code, x) for x in (first, second)]
    for latents, x, wanted in zip(ours, (first, second), expected, strict=True):
        for a, b in zip(gradients(loss(latents), code, x), wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9 * float(b.abs().max()) + 1e-12)
    assert all(torch.equal(a, b) for a, b in zip(kept, ours[0].tensors(), strict=True))


@needs_gpu
def test_second_derivatives_other_sizes_and_copies() -> None:
    name = "2 layers"
    code = layer(name)
    for _ in range(3):
        code.code(images(name))
    x = images(name)

    def slope(latents: Latents) -> Tensor:
        (first,) = torch.autograd.grad(loss(latents), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    torch.testing.assert_close(slope(code.code(x)), slope(reference(code, x)), rtol=1e-7, atol=1e-9)
    last = images(name, 2)  # a smaller last batch does not replace the recording
    kept = replayed_steps._memory[code].recording
    code.code(last)
    assert replayed_steps._memory[code].recording is kept
    twin = copy.deepcopy(code)
    torch.testing.assert_close(twin.code(x).features, code.code(x).features)
