"""What an engine solves: one value, checked once where it is made."""

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from whatwhere.errors import ImageError, SpecError, one_or
from whatwhere.latents import Latents
from whatwhere.model.deconvnet import DeconvNet
from whatwhere.model.sized import Objective, SizedModel, masked, objective, residual
from whatwhere.spec import AutoLam, InferenceSpec, Phase


@dataclass(frozen=True, eq=False)
class Problem:
    """Explain images by features and pooling variables: min λ/2 ‖M ⊙ (R p - v)‖² + Σ|p|^α.

    model    whose filters make R
    images   v, [N, C, H, W], as the model's input stage gives them
    phase    what is inferred: the features of which layer, the pooling variables of which layers
    spec     how: λ as a number, α, the steps
    latents  where to start from: what is missing is fitted, p starts at 0
    mask     M ≥ 0, [N, 1 or C, H, W]; None if all pixels count the same
    pairs    pool 2 × 2 regions by operations that back-propagate faster (`SizedModel.pairs`); equal up to rounding

    Shapes, dtypes and devices are checked, values are not, so that it never waits for a GPU. `sized` is the model at
    the images' size.

    >>> problem = ww.model.Problem(ww.load("mnist"), ww.data.load("digits")[:3], ww.Phase(layer=2))
    >>> solution = ww.inference.engines.resolve("auto", problem).solve(problem)
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
            raise SpecError(
                f"a phase of layer {self.phase.layer} was given; the model has {self.model.spec.depth} layers"
            )
        check_images(self.model, self.images, self.mask)
        sized = self.model.at(*self.images.shape[2:])
        object.__setattr__(self, "sized", replace(sized, pairs=True) if self.pairs else sized)
        check_latents(sized, self.latents, self.images.shape[0])

    def __getitem__(self, images: Any) -> "Problem":
        """The same problem for some of the images."""
        mask = None if self.mask is None else self.mask[images]
        return replace(self, images=self.images[images], latents=self.latents[images], mask=mask)

    def detach(self) -> "Problem":
        """The same problem without gradients, which compiled engines do not compute."""
        mask = None if self.mask is None else self.mask.detach()
        return replace(self, images=self.images.detach(), latents=self.latents.map(Tensor.detach), mask=mask)

    @property
    def lam(self) -> float:
        """λ."""
        return lam_of(self.spec)

    @property
    def moving(self) -> tuple[int, ...]:
        """The layers whose pooling variables move: of those that the phase names, the Gaussian ones."""
        layers = self.model.spec.layers
        return tuple(k for k in self.phase.update_pooling if layers[k - 1].pooling_kind == "gaussian")

    @property
    def signal(self) -> Tensor:
        """M² ⊙ v, which is propagated up at the start: minus the gradient of the data term at p = 0, over λ."""
        return masked(masked(self.images, self.mask), self.mask)

    @property
    def is_fresh(self) -> bool:
        """Do all latents start from the images alone?"""
        return self.latents.p is None and not self.latents.pooling_params

    def objective(self, latents: Latents) -> Objective:
        """The cost of every image at these latents, in its parts (Eqn. multi)."""
        v_hat = self.sized.reconstruct(latents.features, self.sized.weights(latents.pooling_params))
        return objective(residual(v_hat, self.images, self.mask), latents.features, self.lam, self.spec.alpha)

    def require_latents(self, k: int) -> None:
        """Raise an ImageError unless there are the latents that an update of layer k's filters needs."""
        top = len(self.latents.pooling_params)
        if self.latents.p is None or not 1 <= k <= top == self.phase.layer:
            raise ImageError(
                f"latents of {top} layers {'with' if self.latents.p is not None else 'without'} features were given "
                f"for the filters of layer {k} in a phase of layer {self.phase.layer}; expected features of that "
                f"layer, and pooling variables of at least {k} layers"
            )


def lam_of(spec: InferenceSpec) -> float:
    """λ as a number; raises a SpecError where it is still to be chosen from images."""
    if isinstance(spec.lam, AutoLam):
        raise SpecError(f"lam = {spec.lam} was given; expected a number (inference.resolve_lam chooses it)")
    return spec.lam


def check_images(model: DeconvNet, images: Tensor, mask: Tensor | None) -> None:
    """Raise an ImageError for images and a mask that are not of the model's channels, dtype and device."""
    channels, home = model.spec.signal_channels, (model.dtype, model.device)
    if images.ndim != 4 or images.shape[1] != channels or 0 in images.shape:
        raise ImageError(
            f"images of shape {list(images.shape)} were given; expected [N, {channels}, H, W], none of them 0"
        )
    if (images.dtype, images.device) != home:
        raise ImageError(
            f"images of {images.dtype} on {images.device} were given; "
            f"expected those of the model, {model.dtype} on {model.device}"
        )
    N, _, H, W = images.shape
    if mask is not None and (mask.shape not in ((N, 1, H, W), images.shape) or (mask.dtype, mask.device) != home):
        raise ImageError(
            f"a mask {list(mask.shape)} of {mask.dtype} on {mask.device} was given for images {list(images.shape)} of "
            f"{images.dtype} on {images.device}; expected [{N}, {one_or(channels)}, {H}, {W}] of the same dtype and "
            "device"
        )


def check_latents(model: SizedModel, latents: Latents, images: int) -> None:
    """Raise an ImageError for latents whose number, shape, dtype or device is not that of so many images' latents."""
    depth = len(latents.pooling_params)
    if depth > len(model.regions) or (latents.p is not None and depth == 0):
        raise ImageError(
            f"latents with pooling variables of {depth} layers were given; the model has {len(model.regions)}"
        )
    expected: list[tuple[int, Tensor, tuple[int, ...]]] = []
    for k, (theta, regions) in enumerate(zip(latents.pooling_params, model.regions, strict=False), start=1):
        expected += [(k, tensor, (images, len(regions.axes), *regions.grid)) for tensor in (theta.mu, theta.gamma)]
    if latents.p is not None:
        expected.append((depth, latents.p, (images, *model.regions[depth - 1].grid)))
    home = (model.model.dtype, model.model.device)
    for k, tensor, shape in expected:
        if tuple(tensor.shape) != shape:
            raise ImageError(
                f"latents of shape {list(tensor.shape)} were given for layer {k}; those of these images have "
                f"{list(shape)} (give what `infer` returned for the same images)"
            )
        if (tensor.dtype, tensor.device) != home:
            raise ImageError(
                f"latents of {tensor.dtype} on {tensor.device} were given for layer {k}; "
                f"expected those of the model, {home[0]} on {home[1]}"
            )
