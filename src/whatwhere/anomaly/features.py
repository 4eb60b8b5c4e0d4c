"""Features that a user gives: any callable from pictures to maps, such as a pretrained network.

A callable takes pictures [n, C, h, w] and returns a map [n, D, h', w'] of any size, or several. The
maps of a picture, at the size of the finest one, are its cells; all that follows is the same as for
the detector's own features.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.anomaly.filters import FILL, Cells, Search
from whatwhere.anomaly.pictures import is_large
from whatwhere.errors import RunError, SpecError
from whatwhere.nn.feature_maps import FeatureMaps, feature_maps, name_of
from whatwhere.ops.input_stage import lowpass
from whatwhere.views import MapView, Network, as_view
from whatwhere.views.choice import NAMED, OWN

_PROBE = (64, 72)  # height and width of the picture that tells features apart

_GIVEN = Search(scales=(), cell=0, around=3, own=0.0, nearest=5, texture=1, gap=3)


@dataclass(frozen=True, kw_only=True)
class GivenSpec:
    """Settings of features that a user gives.

    Parameters
    ----------
    most_channels
        more are projected on as many random directions
    alike
        share of the largest value by which features may differ; other processors and network
        versions round differently
    """

    most_channels: int = 256
    alike: float = 1e-2


_SETTINGS = GivenSpec()


@dataclass(frozen=True)
class GivenFeatures:
    """The cells of pictures by a user's callable, which several threads may call at once."""

    function: FeatureMaps

    @property
    def name(self) -> str:
        if isinstance(self.function, MapView):
            return self.function.name
        return name_of(self.function)

    @property
    def for_signals(self) -> bool:
        return False

    def __call__(self, picture: Tensor) -> Cells:
        """Return what a picture [C, H, W] shows; NaN is an unknown pixel."""
        known = picture.isfinite().all(0)
        values = filled(picture, known)
        maps = feature_maps(self.function, values[None])
        size = max((m.shape[2:] for m in maps), key=lambda shape: shape[0] * shape[1])
        energy = torch.cat([_resized(m, size)[0] for m in maps])
        share = F.adaptive_avg_pool2d(known[None, None].float(), (size[0], size[1]))[0, 0]
        return Cells(_projected(energy), energy[:0], share >= 0.5, _GIVEN)

    def cell_size(self, cells: Cells, picture: Tensor) -> tuple[float, float]:
        """Return height and width of a cell in pixels."""
        rows, columns = cells.known.shape
        return picture.shape[1] / rows, picture.shape[2] / columns

    def to_pixels(self, by_cell: Tensor, size: Sequence[int]) -> Tensor:
        """Return values of cells [rows, columns] at every pixel of a picture of this size."""
        return F.interpolate(by_cell[None, None], list(size), mode="bilinear")[0, 0]

    def detail_to_pixels(self, cells: Cells, size: Sequence[int]) -> Tensor:
        """Features that are given have no detail."""
        return torch.zeros(size[0], size[1])

    def fingerprint(self, channels: int) -> Tensor:
        """Return the mean and the deviation of every channel of a fixed picture's maps: it
        distinguishes these features from others."""
        generator = torch.Generator().manual_seed(0)
        picture = torch.rand(1, channels, *_PROBE, generator=generator)
        maps = feature_maps(self.function, F.avg_pool2d(picture, 3, 1, 1))
        return torch.cat(
            [torch.cat([m.mean((0, 2, 3)), m.std((0, 2, 3), correction=0)]) for m in maps]
        )

    def check(self, expected: Tensor, channels: int) -> None:
        """Raise a RunError unless these are the features that a detector was fitted with."""
        found = self.fingerprint(channels)
        if found.shape != expected.shape:
            raise RunError(
                f"The detector learned from features of {len(expected) // 2} channels, but"
                f" {self.name} has {len(found) // 2}. Give the same features as in fit."
            )
        if (found - expected).abs().max() > _SETTINGS.alike * expected.abs().max().clamp_min(1e-6):
            raise RunError(
                f"The detector learned from other features than {self.name}: their values for a"
                " test picture differ. Give the same features as in fit, with the same weights."
            )


def features_of(word: str) -> FeatureMaps:
    """Return the features that a word means, or an ONNX file: those of `views`, at the size of
    places.

    The network's maps are those of blocks 4 and 10, which show places of 8 and 16 pixels, and
    pictures are enlarged or reduced only where memory demands it.
    """
    view = as_view(word)
    if isinstance(view, Network):
        return Network(blocks=(4, 10), side=32, most=2048)
    if not isinstance(view, MapView):
        raise SpecError(f"The features {word!r} have no places; expected a view with maps.")
    return view


def usual_features(picture: Tensor, aligned: bool) -> list[str]:
    """Return the names of the features that commands use unless somebody chooses others: the
    detector's own, joined with those of the network where it is installed. Pictures like this one
    [C, H, W] that are small, signals, or aligned objects are compared by the own features alone.

    Joined features were better than the own ones in all ten splits of five sets that were measured
    (`docs/results/defects.md`)."""
    joined = Network.is_installed() and is_large(picture) and not aligned
    return [OWN, "network"] if joined else [OWN]


def are_known(words: Sequence[str]) -> bool:
    """Tell whether all of these names of features are words, so that a file can be read without
    them."""
    return all(word in (OWN, *NAMED) for word in words)


def filled(picture: Tensor, known: Tensor) -> Tensor:
    """Return a picture [C, H, W] whose unknown pixels are a low-pass of the known ones."""
    if known.all():
        return picture
    values = torch.where(known, picture, 0.0)
    return torch.where(known, values, lowpass(values[None], FILL, known[None, None].float())[0])


def _resized(maps: Tensor, size: Sequence[int]) -> Tensor:
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    return F.interpolate(maps, list(size), mode="bilinear")


def _projected(energy: Tensor) -> Tensor:
    """Return as many channels as memory allows: random directions keep distances well enough."""
    channels = len(energy)
    if channels <= _SETTINGS.most_channels:
        return energy
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(_SETTINGS.most_channels, channels, generator=generator) / channels**0.5
    return torch.einsum("kd,dhw->khw", directions, energy)
