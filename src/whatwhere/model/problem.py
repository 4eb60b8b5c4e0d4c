"""What an engine solves: one value, checked once when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor

from whatwhere.errors import (
    InvalidImages,
    InvalidSetting,
    WrongShape,
    plural,
)
from whatwhere.latents import Latents
from whatwhere.model.deconvnet import DeconvNet
from whatwhere.model.sized import Objective, SizedModel, masked, objective, residual
from whatwhere.spec import AutoLam, InferenceSpec, Phase


@dataclass(frozen=True, eq=False)
class Problem:
    """Explain images by features and pooling variables: min λ/2 ‖M ⊙ (R p - v)‖² + Σ|p|^α, the
    second term by `InferenceSpec.penalty`.

    Parameters
    ----------
    model
        the model whose filters make R
    images
        v, [N, C, H, W], after the model's input stage
    phase
        what is inferred: the features of one layer, and the pooling variables of some layers
    spec
        how it is inferred: λ as a number, the penalty, the steps
    latents
        latents to start from: missing pooling variables are fitted, and missing features start at 0
    mask
        M ≥ 0, [N, 1 or C, H, W]; None if all pixels count the same
    pairs
        pool 2 × 2 regions by operations that back-propagate faster (`SizedModel.pairs`); equal up
        to rounding

    Shapes, dtypes and devices are checked, values are not, so that it never waits for a GPU.
    `sized` is the model at the images' size.

    Examples
    --------
    >>> problem = ww.model.Problem(ww.load("mnist"), ww.data.load("digits")[:3], ww.Phase(layer=2))
    >>> solution = ww.engines.resolve("auto", problem).solve(problem)
    >>> problem.objective(solution.latents).cost.shape
    torch.Size([3])
    """

    model: DeconvNet
    images: Tensor
    phase: Phase
    spec: InferenceSpec = field(default_factory=InferenceSpec)
    latents: Latents = field(default_factory=Latents)
    mask: Tensor | None = None
    pairs: bool = False
    sized: SizedModel = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lam_of(self.spec)
        if self.phase.layer > self.model.spec.depth:
            expected = f"at most {self.model.spec.depth}, the layers of the model"
            raise InvalidSetting({"phase.layer": self.phase.layer}, expected)
        channels = self.model.spec.target_channels
        if self.images.ndim != 4 or 0 in self.images.shape:
            expected = f"[N, {channels}, H, W], with no size 0"
            raise WrongShape("images", self.images.shape, expected)
        N, _, H, W = self.images.shape
        _check("images", self.images, [(N, channels, H, W)], self.model)
        if self.mask is not None:
            _check("masks", self.mask, [(N, 1, H, W), (N, channels, H, W)], self.model)
        sized = self.model.at(H, W)
        object.__setattr__(self, "sized", replace(sized, pairs=True) if self.pairs else sized)
        check_latents(sized, self.latents, N)

    def __getitem__(self, images: slice | Tensor) -> Problem:
        """Return the same problem for some of the images."""
        mask = None if self.mask is None else self.mask[images]
        return replace(self, images=self.images[images], latents=self.latents[images], mask=mask)

    def detach(self) -> Problem:
        """Return the same problem without gradients, which compiled engines do not compute."""
        mask = None if self.mask is None else self.mask.detach()
        return replace(
            self, images=self.images.detach(), latents=self.latents.map(Tensor.detach), mask=mask
        )

    @property
    def lam(self) -> float:
        """λ."""
        return lam_of(self.spec)

    @property
    def moving(self) -> tuple[int, ...]:
        """The layers whose pooling variables move: those that the phase names, if their kind of
        pooling has variables that move."""
        layers = self.model.spec.layers
        return tuple(k for k in self.phase.update_pooling if layers[k - 1].pooling.moves)

    @property
    def masked_target(self) -> Tensor:
        """M² ⊙ v, which is propagated up at the start: minus the gradient of the data term at p =
        0, over λ."""
        return masked(masked(self.images, self.mask), self.mask)

    @property
    def is_fresh(self) -> bool:
        """Do all latents start from the images alone?"""
        return self.latents.p is None and not self.latents.pooling_params

    def objective(self, latents: Latents) -> Objective:
        """Return the cost of every image at these latents, in its parts (Eqn. 7)."""
        p = latents.features
        v_hat = self.sized.reconstruct(p, self.sized.weights(latents.pooling_params))
        e = residual(v_hat, self.images, self.mask)
        return objective(e, p, self.lam, self.spec.penalty)

    def require_latents(self, k: int) -> None:
        """Raise an ImageError unless there are the latents that an update of layer k's filters
        needs."""
        top = len(self.latents.pooling_params)
        if self.latents.p is None or not 1 <= k <= top == self.phase.layer:
            features = "without" if self.latents.p is None else "with"
            raise InvalidImages(
                f"latents of {plural(top, 'layer')} {features} features to update the filters of"
                f" layer {k} in a phase of layer {self.phase.layer}",
                f"features of layer {self.phase.layer} and pooling variables of all layers up to"
                " it",
            )


def lam_of(spec: InferenceSpec) -> float:
    """Return λ as a number; raises a SpecError if it is still to be chosen from images."""
    if isinstance(spec.lam, AutoLam):
        remedy = "Call inference.resolve_lam to choose one."
        raise InvalidSetting({"lam": spec.lam}, "a number", remedy)
    return spec.lam


def check_latents(model: SizedModel, latents: Latents, images: int) -> None:
    """Raise an ImageError unless the latents have the number, shapes, dtype and device that the
    model needs for this many images."""
    depth = len(latents.pooling_params)
    if depth > len(model.regions) or (latents.p is not None and depth == 0):
        given = f"latents with pooling variables of {plural(depth, 'layer')}"
        raise InvalidImages(given, f"{len(model.regions)}, as the model has")
    for k, theta in enumerate(latents.pooling_params):
        regions = model.regions[k]
        for tensor in (theta.mu, theta.gamma):
            shape = (images, len(regions.axes), *regions.grid)
            _check(f"pooling variables of layer {k + 1}", tensor, [shape], model)
    if latents.p is not None:
        grid = model.regions[depth - 1].grid
        _check(f"features of layer {depth}", latents.p, [(images, *grid)], model)


def _check(
    what: str, tensor: Tensor, shapes: Sequence[tuple[int, ...]], model: DeconvNet | SizedModel
) -> None:
    """Raise an ImageError for a tensor that has none of these shapes, or another dtype or device
    than the model."""
    same_kind = tensor.dtype == model.dtype and tensor.device == model.device
    if tuple(tensor.shape) not in shapes or not same_kind:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise WrongShape(
            what,
            tensor.shape,
            f"{expected}, {model.dtype} on {model.device}",
            f"({tensor.dtype} on {tensor.device})",
        )
