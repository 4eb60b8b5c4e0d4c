"""Inference of what and where as a layer of any network, with filters that are learned."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from whatwhere.engines import Engine, resolve, unsupported_reasons
from whatwhere.engines.reference.step_size import pooling_rate
from whatwhere.errors import ImageError
from whatwhere.inference.unrolled import UnrolledInference
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.nn import replayed_steps, trained_steps
from whatwhere.nn.operators import is_recorded, is_traced
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec, PoolingKind, pooling_of
from whatwhere.spec.checks import Size

Where = tuple[PoolingParams, ...]


class SparseCode2d(UnrolledInference):
    """A sparse code of the input: a few steps of inference as a layer. Filters and sizes of the
    steps are parameters.

    Whatever the values of the parameters, the layer uses its filters masked, non-negative (if
    `nonnegative`) and of unit length. `project_()` sets the parameters to the filters that are
    used; call it, for instance, after every step of an optimizer, because an entry that was pushed
    below 0 has no gradient until then. Without gradients (`torch.no_grad()`), the fastest engine
    that supports the problem infers.

    Parameters
    ----------
    in_channels
        channels of the input
    maps
        maps of the layer, or of several layers from the input upwards
    kernel_size
        side of the filters, or a pair (height, width)
    pool_size
        side of the pooling regions, or a pair
    steps
        number of unrolled steps of inference, K
    pooling_kind
        'gaussian' (inferred), 'max' or 'sum'
    nonnegative
        features and filters are ≥ 0
    return_where
        return (what, where): the features, and the pooling variables μ and γ of every layer
    inference
        λ, α, bounds and, if it has one, the schedule to start from; None means the paper's settings
    device, dtype
        device and dtype of the parameters

    Shapes: input [N, C, H, W]; what [N, B, h, w]; μ and γ of a layer [N, 2, B, h, w] (rows,
    columns). Every layer grows by kernel_size - 1 and shrinks by pool_size: 28 → 16 → 10 with the
    defaults and two layers.

    Examples
    --------
    >>> code = ww.nn.SparseCode2d(1, maps=(4, 8), steps=3)
    >>> network = torch.nn.Sequential(code, torch.nn.Flatten(), torch.nn.Linear(8 * 10 * 10, 10))
    >>> network(ww.data.load("digits")[:2]).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int,
        maps: int | Sequence[int],
        kernel_size: Size = 5,
        pool_size: Size = 2,
        *,
        steps: int = 5,
        pooling_kind: PoolingKind = "gaussian",
        nonnegative: bool = True,
        return_where: bool = False,
        inference: InferenceSpec | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        pooling = pooling_of(pooling_kind)
        layers = tuple(
            LayerSpec(maps=count, filter_size=kernel_size, pool_size=pool_size, pooling=pooling)
            for count in ([maps] if isinstance(maps, int) else maps)
        )
        spec = ModelSpec(layers=layers, channels=in_channels, nonnegative=nonnegative)
        # drawn as other layers draw theirs: torch.manual_seed makes it repeatable
        seed = int(torch.randint(2**31, ()))
        model = DeconvNet(spec, seed, dtype=dtype or torch.get_default_dtype())
        self._begin(model.to(device), steps, inference, return_where)

    @classmethod
    def from_model(
        cls,
        model: DeconvNet,
        steps: int = 5,
        inference: InferenceSpec | None = None,
        *,
        return_where: bool = False,
    ) -> SparseCode2d:
        """Make a layer that starts with the filters of a trained model.

        >>> code = ww.nn.SparseCode2d.from_model(ww.load("mnist"), steps=3, return_where=True)
        >>> what, where = code(ww.data.load("digits")[:2])
        >>> what.shape, where[0].mu.shape
        (torch.Size([2, 48, 10, 10]), torch.Size([2, 2, 16, 16, 16]))
        """
        layer = cls.__new__(cls)
        layer._begin(model, steps, inference, return_where)
        return layer

    def _begin(
        self, model: DeconvNet, steps: int, inference: InferenceSpec | None, return_where: bool
    ) -> None:
        super().__init__(model, steps, inference)
        del self._model  # its filters are parameters here
        self.return_where = return_where
        self.filters = nn.ParameterList(nn.Parameter(f.detach().clone()) for f in model.filters)
        for k, connected in enumerate(model.connectivity, start=1):
            self.register_buffer(f"connectivity{k}", connected.to(model.device))

    @property
    def connectivity(self) -> list[Tensor]:
        """Which maps of a layer connect to which maps below, [B_{k-1}, B_k] for every layer."""
        return [getattr(self, f"connectivity{k}") for k in range(1, self.model_spec.depth + 1)]

    @property
    def model(self) -> DeconvNet:
        """The model with the filters as they are used; gradients flow to the parameters."""
        # torch 2.11 cannot trace [*self.filters], and 2.7 not list(self.filters)
        filters = [self.filters[k] for k in range(self.model_spec.depth)]
        raw = DeconvNet.from_parts(self.model_spec, filters, self.connectivity)
        used = [raw.project(k, f) for k, f in enumerate(raw.filters, start=1)]
        return DeconvNet.from_parts(self.model_spec, used, self.connectivity)

    def forward(self, images: Tensor) -> Tensor | tuple[Tensor, Where]:  # type: ignore[override]
        """Map images [N, C, H, W] to the features of the top layer, or with `return_where` (what,
        where)."""
        latents = self.code(images)
        return (latents.features, latents.pooling_params) if self.return_where else latents.features

    def code(self, images: Tensor) -> Latents:
        """Map images [N, C, H, W] to their latents after the last step."""
        channels = self.model_spec.channels
        if images.ndim != 4 or images.shape[1] != channels:
            raise ImageError(
                f"Got an input of shape {list(images.shape)}; expected [N, {channels}, H, W]."
            )
        model = self.model
        v, background = model.input_stage.forward(images, None)
        latents = self._infer(model, v)
        return Latents(latents.p, latents.pooling_params, background=background)

    def _infer(self, model: DeconvNet, v: Tensor) -> Latents:
        """Take the steps, by an engine where one computes what is asked for."""
        if not is_recorded(v):
            engine = self._engine(model, v)
            if engine is not None:
                return engine.solve(self._fixed_problem(model, v)).latents
        elif not is_traced((v,)) and len(v) > 0:
            fixed = self._fixed_problem(model, v)
            problem = self.problem(model, v)
            if trained_steps.supports(fixed):
                where = self.return_where
                return trained_steps.run(fixed, problem, self._given(v), return_where=where)
            if replayed_steps.supports(v, *model.filters):
                return trained_steps.replay(self, problem, self._given(v))
        return self.run(self.problem(model, v))

    def _given(self, v: Tensor) -> trained_steps.Given:
        """Return what the steps follow from, as tensors that gradients flow to."""
        sizes = [
            torch.cat([torch.stack([s.size, s.threshold, s.extrapolation]), s.pooling_step])
            for s in self.sizes()
        ]
        rates = pooling_rate(v, None, self.contrast)
        return trained_steps.Given(v, torch.stack(sizes), self.log_scales.exp(), rates)

    def _fixed_problem(self, model: DeconvNet, v: Tensor) -> Problem:
        """Return the problem that the steps solve, with the sizes of the steps as numbers."""
        return Problem(model, v, self.phase, self.spec)

    def _engine(self, model: DeconvNet, v: Tensor) -> Engine | None:
        """Return the engine that infers without gradients; None if no fast one supports the
        problem."""
        if len(v) == 0:
            return None
        problem = self._fixed_problem(model, v[:1])
        if all(unsupported_reasons(problem)[name] is not None for name in ("cpu", "triton")):
            return None
        return resolve("auto", problem, len(v))

    @torch.no_grad()
    def project_(self) -> SparseCode2d:
        """Set the parameters to the filters that are used: masked, non-negative and of unit
        length."""
        for f, used in zip(self.filters, self.model.filters, strict=True):
            f.copy_(used)
        return self

    def extra_repr(self) -> str:
        maps = " → ".join(
            str(count) for count in (self.model_spec.channels, *(f.shape[1] for f in self.filters))
        )
        return f"maps {maps}, steps={self.settings.steps}, return_where={self.return_where}"
