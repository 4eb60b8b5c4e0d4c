"""Rows of several views side by side, joined by the weights of the views."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, SpecError
from whatwhere.files import FileFields

_MEAN = "join.mean"  # name of the tensor in a file


@dataclass(frozen=True)
class ViewJoin:
    """Joins the rows [n, Σ d] of several views, which stand side by side.

    Each view is centred and scaled to unit length, so that no view counts more because its numbers
    are larger; then it is multiplied by the root of its weight. Squared distances between joined
    rows are the weighted sums of the views' distances.

    Parameters
    ----------
    columns
        number of columns of each view, by its name
    mean
        mean of the known rows, [Σ d]
    weights
        weight of each view
    """

    columns: Mapping[str, int]
    mean: Tensor
    weights: tuple[float, ...]

    @classmethod
    def of(cls, columns: Mapping[str, int], rows: Tensor) -> "ViewJoin":
        """Join views with equal weights, centred on some rows [N, Σ d]."""
        total = sum(columns.values())
        if not columns or min(columns.values()) < 1 or total != rows.shape[1]:
            raise SpecError(
                f"Got views = {dict(columns)!r}, {total} columns, for rows of {rows.shape[1]}"
                " columns; expected the number of columns of each view, at least 1."
            )
        mean = rows.double().mean(0).float()
        return cls(dict(columns), mean, (1 / len(columns),) * len(columns))

    def parts(self, rows: Tensor) -> list[Tensor]:
        """Return the rows of each view, centred and of unit length."""
        if rows.shape[1] != len(self.mean):
            raise ImageError(
                f"Got rows of {rows.shape[1]} columns; expected {len(self.mean)}, as in fit."
            )
        centred = rows.float() - self.mean.to(rows.device)
        return [F.normalize(part, dim=1) for part in centred.split(list(self.columns.values()), 1)]

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the joined rows [n, Σ d] of rows that stand side by side."""
        return self.joined(self.parts(rows))

    def joined(self, parts: list[Tensor]) -> Tensor:
        """Return the joined rows of what `parts` returned."""
        weighted = [weight**0.5 * part for weight, part in zip(self.weights, parts, strict=True)]
        return torch.cat(weighted, 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return what a file holds of it, next to `settings`; `read_join` is the inverse."""
        return {_MEAN: self.mean}

    def settings(self) -> dict[str, object]:
        """Return the names, columns and weights of the views."""
        return {"join": {"columns": dict(self.columns), "weights": list(self.weights)}}


def read_join(settings: FileFields, tensors: Mapping[str, Tensor]) -> ViewJoin | None:
    """Return the join that a file holds; None if its rows are of one description."""
    if "join" not in settings:
        return None
    columns = {str(name): int(count) for name, count in settings["join"]["columns"].items()}
    weights = tuple(float(weight) for weight in settings["join"]["weights"])
    mean = tensors[_MEAN].float()
    if len(weights) != len(columns) or mean.shape != (sum(columns.values()),):
        raise SpecError("the sizes of its views do not match")
    return ViewJoin(columns, mean, weights)
