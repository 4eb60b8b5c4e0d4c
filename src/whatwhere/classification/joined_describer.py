"""Rows of several descriptions of a picture, side by side."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from whatwhere.data import Images, load
from whatwhere.errors import ImageError, SpecError
from whatwhere.progress import no_op
from whatwhere.views import Colour, Edges, MapView, Network

Advance = Callable[[int], object]

_SAVED: Mapping[str, type[MapView]] = {"colour": Colour, "edges": Edges, "network": Network}
"""Views that a classifier file can name."""


class PictureDescriber(Protocol):
    """Describes images of one shape (C, H, W) by rows [N, d], and can be saved."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def why(self) -> str:
        """A line that says what rows describe, and why."""
        ...

    def __call__(self, images: Any, progress: Advance = no_op) -> Tensor: ...
    def settings(self) -> dict[str, Any]: ...
    def tensors(self) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class JoinedDescriber:
    """Images of one shape → the rows of several views side by side, each with its scale.

    views   views, in the order of their columns
    scales  factor of the rows of each view
    shape   channels, height and width of the images
    own     learned features, whose columns come last; None for views alone
    own_scale  factor of the rows of learned features
    """

    views: tuple[MapView, ...]
    scales: tuple[float, ...]
    shape: tuple[int, int, int]
    own: PictureDescriber | None = None
    own_scale: float = 1.0

    @property
    def why(self) -> str:
        """A line that says what rows describe, and why."""
        names = " and ".join(view.name for view in self.views)
        return f"rows describe {names}" if self.own is None else f"{self.own.why}; next to {names}"

    def __call__(self, images: Any, progress: Advance = no_op) -> Tensor:
        """Describe images by rows [N, d]."""
        if not isinstance(images, Images):
            images = load(images, size=self.shape[1] if isinstance(images, str | Path) else None)
        if images.shape != self.shape:
            raise ImageError(
                f"{images.name} has images of {'×'.join(map(str, images.shape))}, but the"
                f" classifier takes {'×'.join(map(str, self.shape))}."
            )
        parts = [
            scale * view.rows(images) for view, scale in zip(self.views, self.scales, strict=True)
        ]
        if self.own is None:
            progress(len(images))
        else:
            parts.append(self.own_scale * self.own(images, progress))
        return torch.cat(parts, 1)

    def settings(self) -> dict[str, Any]:
        """What a file holds besides tensors."""
        views = []
        for view, scale in zip(self.views, self.scales, strict=True):
            if _SAVED.get(view.name) is not type(view):
                raise SpecError(
                    f"A classifier with the view {view.name!r} cannot be saved; expected"
                    f" {', '.join(_SAVED)}."
                )
            views.append({"name": view.name, "fields": asdict(view), "scale": scale})
        own = {} if self.own is None else self.own.settings()
        return own | {"shape": self.shape, "views": views, "own_scale": self.own_scale}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of learned features, as a file holds them."""
        return {} if self.own is None else self.own.tensors()


def read_joined(settings: Mapping[str, Any], own: PictureDescriber | None) -> JoinedDescriber:
    """The describer that a file holds.

    own  the describer of its learned features
    """
    views = []
    scales = []
    for entry in settings["views"]:
        if entry["name"] not in _SAVED:
            raise SpecError(f"it has the unknown view {entry['name']!r}")
        fields = dict(entry["fields"])
        fields["cells"] = tuple(fields["cells"])
        views.append(_SAVED[entry["name"]](**fields))
        scales.append(float(entry["scale"]))
    channels, height, width = settings["shape"]
    return JoinedDescriber(
        tuple(views), tuple(scales), (channels, height, width), own, float(settings["own_scale"])
    )


def side_by_side(parts: Sequence[Tensor], scales: Sequence[float]) -> Tensor:
    """Rows [N, d] of several descriptions, each times its scale."""
    return torch.cat([scale * rows for rows, scale in zip(parts, scales, strict=True)], 1)
