"""Rows of several descriptions of a picture, side by side."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from whatwhere.data import Images, Source, load
from whatwhere.errors import ImageError, SpecError
from whatwhere.files import FileFields
from whatwhere.progress import no_op
from whatwhere.views import Colour, Edges, MapView, Network, Patches, Patterns

Advance = Callable[[int], object]

_SAVED: Mapping[str, type[MapView]] = {
    "colour": Colour,
    "edges": Edges,
    "patterns": Patterns,
    "patches": Patches,
    "network": Network,
}
"""Views that a classifier file can name."""


class PictureDescriber(Protocol):
    """Describes images of one shape (C, H, W) by rows [N, d], and can be saved."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def why(self) -> str:
        """A line that says what rows describe, and why."""
        ...

    @property
    def columns(self) -> Mapping[str, int]:
        """The number of columns of each description that stands side by side, by its name."""
        ...

    def __call__(self, images: Source, progress: Advance = no_op) -> Tensor: ...
    def settings(self) -> dict[str, object]: ...
    def tensors(self) -> dict[str, Tensor]: ...


@dataclass(frozen=True)
class JoinedDescriber:
    """Images of one shape → the rows of several views side by side.

    Parameters
    ----------
    views
        views, in the order of their columns
    counts
        number of columns of each view
    shape
        channels, height and width of the images
    own
        learned features, whose columns come last; None for views alone
    """

    views: tuple[MapView, ...]
    counts: tuple[int, ...]
    shape: tuple[int, int, int]
    own: PictureDescriber | None = None

    @property
    def columns(self) -> Mapping[str, int]:
        """The number of columns of each view, and of each part of the learned features."""
        names = [view.name for view in self.views]
        own = {} if self.own is None else self.own.columns
        return dict(zip(names, self.counts, strict=True)) | dict(own)

    @property
    def why(self) -> str:
        """A line that says what rows describe, and why."""
        names = " and ".join(view.name for view in self.views)
        if self.own is None:
            return f"The rows describe {names}."
        return f"{self.own.why} Beside them stand {names}."

    def __call__(self, images: Source, progress: Advance = no_op) -> Tensor:
        """Describe images by rows [N, d]."""
        if not isinstance(images, Images):
            images = load(images, size=self.shape[1] if isinstance(images, str | Path) else None)
        if images.shape != self.shape:
            raise ImageError(
                f"{images.name} has images of {'×'.join(map(str, images.shape))}, but the"
                f" classifier takes {'×'.join(map(str, self.shape))}."
            )
        parts = [view.rows(images) for view in self.views]
        if self.own is None:
            progress(len(images))
        else:
            parts.append(self.own(images, progress))
        return torch.cat(parts, 1)

    def settings(self) -> dict[str, object]:
        """Return what a file holds besides tensors."""
        views = []
        for view, count in zip(self.views, self.counts, strict=True):
            if _SAVED.get(view.name) is not type(view):
                raise SpecError(
                    f"A classifier with the view {view.name!r} cannot be saved; expected"
                    f" {', '.join(_SAVED)}."
                )
            views.append({"name": view.name, "fields": asdict(view), "columns": count})
        own = {} if self.own is None else self.own.settings()
        return own | {"shape": self.shape, "views": views}

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of learned features, as a file holds them."""
        return {} if self.own is None else self.own.tensors()


def read_joined(settings: FileFields, own: PictureDescriber | None) -> JoinedDescriber:
    """Return the describer that a file holds.

    Parameters
    ----------
    own
        the describer of its learned features
    """
    views = []
    counts = []
    for entry in settings["views"]:
        if entry["name"] not in _SAVED:
            raise SpecError(f"it has the unknown view {entry['name']!r}")
        fields = dict(entry["fields"])
        fields["cells"] = tuple(fields["cells"])
        views.append(_SAVED[entry["name"]](**fields))
        counts.append(int(entry["columns"]))
    channels, height, width = settings["shape"]
    return JoinedDescriber(tuple(views), tuple(counts), (channels, height, width), own)
