"""A metric of what matters: directions in which small distortions move descriptors count less.

    W     covariance of the descriptors of distorted copies of an image around their mean, over all
          images
    T     covariance of the descriptors of the images themselves
    B     (W + εI)^-½, where ε is `share` of the mean variance of W: shrinks what distortions move
    Λ, U  the largest eigenvalues of B T B and their eigenvectors, [D, r]: the directions in which
          images differ more than distorted copies
    x  →  Uᵀ B (x − mean), scaled to unit length

No label is used. Both covariances are learned from a stream of batches in memory that does not
depend on the number of images: each is a low rank and an even rest, W ≈ V diag(w) Vᵀ + ρ (I − V
Vᵀ).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.descriptors import Matrix, describe_images, unit_length
from whatwhere.classification.settings import Distortions
from whatwhere.errors import ImageError, SpecError, plural
from whatwhere.inference.target import ImageSource, in_model_units
from whatwhere.model import DeconvNet
from whatwhere.spec import Recipe

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class MetricSettings:
    """How a metric is learned.

    Parameters
    ----------
    rank
        columns of the result, at most; fewer where descriptors or images are fewer
    share
        the smallest variance of a direction, as a share of the mean variance under distortions
    directions
        that distortions move most, each with its own variance; the others share the mean
    images
        that the metric is learned from, at most, spread evenly over all
    batch
        images at a time
    """

    rank: int = 400
    share: float = 1.0
    directions: int = 256
    images: int = 10_000
    batch: int = 500

    def covariances(self) -> "tuple[Covariance, Covariance]":
        """Return the empty covariances of distortions and of descriptors."""
        return Covariance(self.directions), Covariance(2 * max(self.rank, self.directions))


_SETTINGS = MetricSettings()


@dataclass(frozen=True, eq=False)
class Metric:
    """Maps descriptors to rows in which distances mean differences; `fit_metric` makes it.

    Parameters
    ----------
    mean
        mean of the descriptors, [D]
    matrix
        Uᵀ B, [r, D]
    variances
        Λ, [r], in descending order
    how
        the distortions that it was learned from

    Examples
    --------
    >>> x = torch.randn(100, 6)
    >>> metric = Metric(x.mean(0), torch.eye(6)[:3], torch.ones(3), Distortions())
    >>> metric(x).shape
    torch.Size([100, 3])
    """

    mean: Tensor
    matrix: Tensor
    variances: Tensor
    how: Distortions

    def __call__(self, x: Matrix) -> Tensor:
        """Rows [N, D] as rows of unit length [N, r], on the device of the metric."""
        if x.shape[1] != len(self.mean):
            raise ImageError(
                f"Got rows of {x.shape[1]:,} columns; expected {len(self.mean):,}, as in the rows"
                " that the metric learned from."
            )
        parts = []
        # so that a row does not depend on those next to it
        mean = self.mean.double()
        matrix = self.matrix.double()
        batch = 4096  # rows that are dense at a time
        for start in range(0, x.shape[0], batch):
            rows = x[start : start + batch]
            dense = torch.as_tensor(rows).to(mean)
            parts.append(unit_length((dense - mean) @ matrix.T).to(self.mean))
        return torch.cat(parts) if parts else self.mean.new_zeros(0, len(self.matrix))

    def to(self, device: torch.device | str) -> "Metric":
        return Metric(
            self.mean.to(device), self.matrix.to(device), self.variances.to(device), self.how
        )

    def tensors(self, prefix: str = "metric") -> dict[str, Tensor]:
        """Return the metric as tensors for a file; `from_tensors` is the inverse."""
        parts = {"mean": self.mean, "matrix": self.matrix, "variances": self.variances}
        return {f"{prefix}.{name}": tensor.cpu() for name, tensor in parts.items()}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], how: Distortions, prefix: str = "metric"
    ) -> "Metric":
        mean, matrix, variances = (
            tensors[f"{prefix}.{name}"].float() for name in ("mean", "matrix", "variances")
        )
        if mean.ndim != 1 or variances.ndim != 1 or matrix.shape != (len(variances), len(mean)):
            raise SpecError("the sizes of its tensors do not match")
        return cls(mean, matrix, variances, how)


class Covariance:
    """Second moments Σ x xᵀ of a stream of rows; only the `size` largest directions are kept.

    Rows are collected and merged, and only the directions with the largest singular values are
    kept. With at most `size` rows or columns, nothing is lost.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self.squares = 0.0
        self.factor: Tensor | None = None  # its rows f have Σ f fᵀ ≈ Σ x xᵀ
        self.waiting: list[Tensor] = []

    def add(self, rows: Tensor) -> None:
        self.count += len(rows)
        self.squares += float(rows.square().sum(dtype=torch.float64))
        self.waiting.append(rows)
        if sum(map(len, self.waiting)) >= self.size:
            self._merge()

    def rows(self) -> Tensor:
        """Rows [≤ size, D] whose products add up to the covariance, of the largest directions."""
        self._merge()
        assert self.factor is not None
        return self.factor / self.count**0.5

    def _merge(self) -> None:
        if not self.waiting:
            return
        rows = torch.cat(self.waiting)
        self.waiting = []
        for part in rows.split(max(self.size, 512)):  # few: the cost grows with their cube
            x = part if self.factor is None else torch.cat([self.factor, part])
            if len(x) > self.size:  # S Vᵀ of the singular value decomposition, as far as it is kept
                x = torch.linalg.eigh((x @ x.T).double()).eigenvectors[:, -self.size :].to(x).T @ x
            self.factor = x


def fit_metric(
    describe: Callable[[Tensor], Tensor],
    images: ImageSource,
    how: Distortions | None = None,
    *,
    described: Matrix | None = None,
    settings: MetricSettings = _SETTINGS,
    progress: Callable[[int], object] = lambda images: None,
) -> Metric:
    """Learn the metric of images and their distorted copies, batch by batch.

    Parameters
    ----------
    describe
        the descriptors [n, D] of images [n, C, H, W]
    images
        without labels, [N, C, H, W] or read batch by batch; if there are many, an evenly spaced
        part of them
    how
        how images are distorted
    described
        the descriptors of the images, [N, D], if they are known already; None computes them
    progress
        called after every batch with the number of images in it

    Examples
    --------
    >>> images = ww.data.load("digits")[:40]
    >>> metric = fit_metric(lambda v: v.flatten(1), images, settings=MetricSettings(rank=9))
    >>> metric(images.flatten(1)).shape
    torch.Size([40, 9])
    """
    how = how or Distortions()
    if len(images) == 0:
        raise ImageError("Got an empty set of images; expected at least one.")
    if described is not None and described.shape[0] != len(images):
        raise ImageError(
            f"Got {plural(described.shape[0], 'descriptor')} of {plural(len(images), 'image')};"
            " expected one for each."
        )
    count = min(len(images), settings.images)
    used = torch.linspace(0, len(images) - 1, count, dtype=torch.float64).long()
    generator = torch.Generator().manual_seed(how.seed)
    within, total = settings.covariances()
    mean = None
    for rows in used.split(settings.batch):
        v = images[rows.numpy() if not isinstance(images, Tensor) else rows]
        # an unknown pixel would spread in the copies
        known = v.nan_to_num(0)
        copies = torch.stack(
            [describe(distort(known, how, generator)) for _ in range(how.copies)], 1
        )
        x = describe(v) if described is None else torch.as_tensor(described)[rows].to(copies)
        differences = (copies - copies.mean(1, keepdim=True)) * (
            how.copies / (how.copies - 1)
        ) ** 0.5
        within.add(differences.flatten(0, 1))
        total.add(x)
        mean = x.sum(0) if mean is None else mean + x.sum(0)
        progress(len(x))
    assert mean is not None
    return metric_of(within, total, mean / len(used), how, settings)


def learn_metric(
    model: DeconvNet,
    images: ImageSource,
    recipe: Recipe,
    how: Distortions | None = None,
    *,
    described: Matrix | None = None,
    engine: str = "auto",
    progress: Callable[[int], object] = lambda images: None,
) -> Metric:
    """Learn the metric of the descriptors of a model, on its device (see `fit_metric`)."""
    images = in_model_units(model.spec, images)
    describe = partial(describe_images, model, recipe=recipe, engine=engine, on_device=True)
    return fit_metric(describe, images, how, described=described, progress=progress)


def metric_of(
    within: Covariance,
    total: Covariance,
    mean: Tensor,
    how: Distortions,
    settings: MetricSettings = _SETTINGS,
) -> Metric:
    """Return the metric of the covariance of distortions and of the second moments of the
    descriptors."""
    whiten = whitening_of(within, settings.share)
    data = whiten(total.rows())
    centre = whiten(mean[None])
    # The eigenvectors of dataᵀ data - centreᵀ centre lie in the span of the rows; Q is its
    # basis.
    Q = torch.linalg.qr(torch.cat([data, centre]).T.double()).Q
    inside = data.double() @ Q
    middle = centre.double() @ Q
    variances, vectors = torch.linalg.eigh(inside.T @ inside - middle.T @ middle)
    rank = min(settings.rank, max(1, int((variances > 1e-7 * variances[-1]).sum())))
    variances = variances[-rank:].flip(0)
    vectors = vectors[:, -rank:].flip(1)
    matrix = whiten((Q @ vectors).T.to(mean))
    return Metric(mean, matrix.contiguous(), variances.to(mean), how)


def whitening_of(within: Covariance, share: float) -> Callable[[Tensor], Tensor]:
    """Return the map x → (W + εI)^-½ x for rows [N, D]; the unit is such that directions of the
    rest stay as they are."""
    rows = within.rows()
    columns = rows.shape[1]
    mean_variance = max(within.squares / within.count / rows.shape[1], TINY)
    products, vectors = torch.linalg.eigh((rows @ rows.T).double())
    kept = products > 1e-10 * products[-1]
    scales = products[kept].sqrt()
    V = vectors.T[kept].to(rows) @ rows / scales[:, None].to(rows)
    rest = max(within.squares / within.count - float(scales.square().sum()), 0.0) / max(
        columns - len(scales), 1
    )
    epsilon = share * mean_variance
    shrunk = (1 - ((rest + epsilon) / (scales.square() + epsilon)).sqrt()).to(rows)
    return lambda x: x - (x @ V.T * shrunk) @ V


def distort(images: Tensor, how: Distortions, generator: torch.Generator) -> Tensor:
    """Return one distorted copy of each image, [N, C, H, W]: turned, sheared, scaled, moved and
    bent a little, with changed brightness and colours.

    All amounts are drawn evenly between minus and plus the setting. Beyond the frame, pixels of the
    border repeat.

    Parameters
    ----------
    generator
        generator of the random distortions, on the CPU, so that every device distorts alike

    Examples
    --------
    >>> images = ww.data.load("digits")[:5]
    >>> distort(images, ww.Distortions(rotation=20), torch.Generator().manual_seed(0)).shape
    torch.Size([5, 1, 28, 28])
    """
    count, channels, height, width = images.shape

    def draw(amount: float, *shape: int) -> Tensor:
        """Return values between -amount and amount, [N, …]; also drawn for a kind that is left out,
        so that the others stay the same."""
        values = torch.rand(count, *shape, generator=generator) * 2 - 1
        return (amount * values).to(images)

    turn = torch.deg2rad(draw(how.rotation))
    shear = draw(how.shear, 2)
    scale = 1 + draw(how.scale, 2)
    shift = draw(2 * how.shift, 2)
    moves = torch.stack([turn.cos(), -turn.sin(), turn.sin(), turn.cos()], 1).view(count, 2, 2)
    moves = moves @ (torch.diag_embed(scale) + torch.diag_embed(shear).flip(2))
    frame = torch.tensor([width, height], dtype=images.dtype, device=images.device)
    # from pixels to the units of a grid, which is 2 each way
    moves = moves * (frame[None, :] / frame[:, None])
    grid = F.affine_grid(
        torch.cat([moves, shift[:, :, None]], 2), list(images.shape), align_corners=False
    )
    points = 4  # along each side; between them the elastic part is a smooth curve
    bend = draw(2 * how.elastic, 2, points, points)
    if how.elastic:
        smooth = F.interpolate(bend, (height, width), mode="bicubic", align_corners=True)
        grid = grid + smooth.permute(0, 2, 3, 1)
    moved = F.grid_sample(images, grid, padding_mode="border", align_corners=False)
    gain = (1 + draw(how.brightness, 1, 1, 1)) * (1 + draw(how.colour, channels, 1, 1))
    return moved * gain if how.brightness or how.colour else moved
