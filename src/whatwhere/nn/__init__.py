"""The parts of the model as PyTorch layers for any network.

GaussianPool2d and GaussianUnpool2d are a pair like MaxPool2d and MaxUnpool2d; `functional` has the
same as functions. GaussianPool1d and GaussianUnpool1d are the same for signals. SparseCode2d infers
what and where in a few steps.
"""

from torch.export import register_dataclass

from whatwhere.latents import PoolingParams
from whatwhere.nn import functional
from whatwhere.nn.modules import GaussianPool1d, GaussianPool2d, GaussianUnpool1d, GaussianUnpool2d
from whatwhere.nn.sparse_code import SparseCode2d

# lets pooling variables pass through torch.export, torch.onnx and torch.func like tensors
register_dataclass(PoolingParams, serialized_type_name="whatwhere.PoolingParams")

__all__ = [
    "GaussianPool1d",
    "GaussianPool2d",
    "GaussianUnpool1d",
    "GaussianUnpool2d",
    "PoolingParams",
    "SparseCode2d",
    "functional",
]


def __dir__() -> list[str]:
    return __all__
