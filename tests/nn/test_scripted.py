"""The pooling layers under torch.jit.script."""

import warnings

import pytest
import torch
from torch import Tensor, nn

from whatwhere.errors import EngineError
from whatwhere.nn import GaussianPool1d, GaussianPool2d, GaussianUnpool1d, GaussianUnpool2d


class Scriptable(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = GaussianPool2d(2)
        self.pool = GaussianPool2d(3, 2, 1, return_where=True)
        self.unpool = GaussianUnpool2d(3, 2, 1)

    def forward(self, z: Tensor) -> Tensor:
        p, where = self.pool(z)
        return self.unpool(p, where, z.shape) + self.first(z).mean()


def test_torch_jit_script_gives_the_same_values_and_gradients() -> None:
    pytest.importorskip("numba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of torch call TorchScript deprecated
        scripted = torch.jit.script(Scriptable())
    z = torch.randn(2, 3, 8, 9, requires_grad=True)
    assert torch.equal(scripted(z), Scriptable()(z))
    (ours,) = torch.autograd.grad(scripted(z).square().sum(), z)
    (expected,) = torch.autograd.grad(Scriptable()(z).square().sum(), z)
    torch.testing.assert_close(ours, expected)


@pytest.mark.parametrize(
    "layer", [GaussianPool1d(2), GaussianUnpool1d(2), GaussianPool2d(2, gaussians="input")]
)
def test_torch_jit_script_names_the_layer_that_it_does_not_support(layer: nn.Module) -> None:
    with pytest.raises(EngineError, match=type(layer).__name__):
        torch.jit.script(layer)
