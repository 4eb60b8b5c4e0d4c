"""A few steps of Algorithm 1 whose sizes are learned: inference as a network that back-propagation
passes through.

    unrolled = UnrolledInference(model, steps=5)
    distill(unrolled, images)                       # without labels, from images alone
    infer(model, images, steps=unrolled.learned)    # the same steps in every engine
    unrolled.learned.save("runs/digits")            # for `infer(…, steps="learned")` and the
    command line

A step has a size β, a threshold, an extrapolation and a β_U for each layer: 3 + L numbers. The
start of the pooling variables has a scale of μ and one of γ for each layer. `untied` steps also
have filters of their own on the pass up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from whatwhere.engines.reference import ista
from whatwhere.engines.reference.pooling_update import Scales
from whatwhere.engines.reference.step_size import pooling_rate, safe_step
from whatwhere.errors import EmptySet, InvalidSetting
from whatwhere.formulas.step import next_momentum
from whatwhere.inference.auto_lam import sample_targets
from whatwhere.inference.infer import infer
from whatwhere.inference.learned_steps import LearnedSteps
from whatwhere.inference.target import ImageSource, Pictures, in_model_units, make_target
from whatwhere.latents import Background, Latents
from whatwhere.model import DeconvNet, Objective
from whatwhere.model.problem import Problem, lam_of
from whatwhere.spec import InferenceSpec, LineSearch, Schedule, StepSpec
from whatwhere.spec.checks import require, require_count
from whatwhere.spec.inference import DistillSpec
from whatwhere.spec.recipe import joint


class UnrolledInference(nn.Module):
    """K steps of inference with sizes of their own, as a differentiable function of images and
    filters.

    Parameters
    ----------
    model
        the trained model, whose filters stay as they are
    steps
        K
    inference
        λ, α, bounds and, if it has one, the schedule to start from; None means the paper's settings
    untied
        whether the pass up, from the error to a step, has its own learned filters, which start as
        in `model`

    Examples
    --------
    >>> unrolled = ww.UnrolledInference(ww.load("mnist"), steps=2)
    >>> unrolled(ww.data.load("digits")[:3]).p.shape
    torch.Size([3, 48, 10, 10])
    """

    def __init__(
        self,
        model: DeconvNet,
        steps: int = 5,
        inference: InferenceSpec | None = None,
        *,
        untied: bool = False,
    ) -> None:
        super().__init__()
        require_count("steps", steps)
        require(
            isinstance(model, DeconvNet),
            {"model": model},
            "a DeconvNet, such as ww.load('mnist')",
        )
        inference = inference if inference is not None else InferenceSpec()
        schedule = inference.schedule or Schedule(
            steps=tuple(_first_guess(model, steps, inference))
        )
        if len(schedule.steps) != steps:
            given = {"steps": steps, "steps of the schedule": len(schedule.steps)}
            raise InvalidSetting(given, "the same number")
        depth = model.spec.depth
        layers = range(1, depth + 1)
        sizes = [
            (step.size, step.threshold, *(step.pooling_step_of(k) for k in layers))
            for step in schedule.steps
        ]
        self.model_spec = model.spec
        self._model = model
        self.contrast = schedule.contrast
        self.settings = replace(inference, step=LineSearch(), steps=steps, tolerance=0.0)
        # made once: torch.compile does not follow the checks of a setting
        self.phase = joint(depth)[0]
        positive = torch.tensor(sizes, dtype=model.dtype).clamp(min=1e-12)  # 0 has no logarithm
        self.log_sizes = nn.Parameter(positive.log())
        extrapolation = [step.extrapolation for step in schedule.steps]
        self.extrapolation = nn.Parameter(torch.tensor(extrapolation, dtype=model.dtype))
        scales = [inference.start_scales(k) for k in layers]
        self.log_scales = nn.Parameter(torch.tensor(scales, dtype=model.dtype).log())
        self.upward = None
        if untied:
            own = [nn.Parameter(f.detach().clone()) for f in model.upward]
            self.upward = nn.ParameterList(own)
        self.to(model.device)

    @property
    def model(self) -> DeconvNet:
        """The model that the steps infer with."""
        if self.upward is None:
            return self._model
        pairs = zip(self.upward, self._model.connectivity, strict=True)
        return self._model.with_upward(
            [f * connected[:, :, None, None].to(f.dtype) for f, connected in pairs]
        )

    def sizes(self) -> list[ista.LearnedSizes]:
        """Return the sizes of every step; the logarithms that are learned keep them positive."""
        sizes = self.log_sizes.exp()
        extrapolation = self.extrapolation.clamp(min=0)
        return [
            ista.LearnedSizes(
                size=step[0], threshold=step[1], extrapolation=ahead, pooling_step=step[2:]
            )
            for step, ahead in zip(sizes, extrapolation, strict=True)
        ]

    def start_scales(self, k: int) -> tuple[Tensor, Tensor]:
        """Return the factors of the fitted μ and γ of layer k."""
        mu, gamma = self.log_scales[k - 1].exp().unbind()
        return mu, gamma

    @property
    def spec(self) -> InferenceSpec:
        """Settings with the learned schedule, for `infer`."""
        with torch.no_grad():
            schedule = [
                StepSpec(
                    size=step.size.item(),
                    threshold=step.threshold.item(),
                    extrapolation=step.extrapolation.item(),
                    pooling_step=tuple(step.pooling_step.tolist()),
                )
                for step in self.sizes()
            ]
            scales = self.log_scales.exp().T.tolist()
            mu = tuple(scales[0])
            gamma = tuple(scales[1])
        learned = Schedule(
            steps=tuple(schedule), contrast=self.contrast, mu_scale=mu, gamma_scale=gamma
        )
        return replace(self.settings, step=learned)

    @property
    def learned(self) -> LearnedSteps:
        """The steps as they are now, for `infer` and for a file."""
        upward = () if self.upward is None else tuple(f.detach() for f in self.model.upward)
        return LearnedSteps(self.spec, self.model.checksum, upward)

    def forward(self, images: Tensor, mask: Tensor | None = None) -> Latents:
        """Return images [N, C, H, W] → latents: the features p of the top layer and the pooling
        variables of every layer."""
        return self.unroll(images, mask)[0]

    def unroll(self, images: Tensor, mask: Tensor | None = None) -> tuple[Latents, Objective]:
        """Return the latents after all steps, and the objective of every image there."""
        target = make_target(self.model, images, mask)
        problem = self.problem(self.model, target.v, target.mask)
        latents = self.run(problem)
        return replace(latents, background=target.background), problem.objective(latents)

    def problem(self, model: DeconvNet, v: Tensor, mask: Tensor | None = None) -> Problem:
        """Return the problem that the steps solve, with this model and the output of its input
        stage: all layers jointly."""
        # torch.compile cannot make the values that are left out, so none is
        nothing_known = Latents(None, (), Background())
        return Problem(model, v, self.phase, self.settings, nothing_known, mask, pairs=True)

    def run(self, problem: Problem) -> Latents:
        """Return the latents after all steps. No branch depends on a value: it can be exported."""
        rate = pooling_rate(problem.images, problem.mask, self.contrast)
        return run_steps(problem, self.sizes(), self.start_scales, rate)


def run_steps(
    problem: Problem, steps: Sequence[ista.LearnedSizes], scales: Scales, rate: Tensor
) -> Latents:
    """Return the latents after steps of these sizes.

    Parameters
    ----------
    scales
        factors of the fitted μ and γ of each layer
    rate
        factors of β_U of each image, [N]
    """
    state = ista.start(problem, scales)
    state = replace(state, pooling_rate=rate.view_as(state.pooling_rate))
    for sizes in steps:
        state, _, _ = ista.step(problem, state, sizes)
    return Latents(state.p, state.theta, Background())


def _first_guess(model: DeconvNet, steps: int, inference: InferenceSpec) -> list[StepSpec]:
    """Start from FISTA's momentum, and twice the safe step, because images seldom contain what the
    filters amplify most."""
    beta = 2 * safe_step(model, model.spec.depth, lam_of(inference))
    t = torch.ones((), dtype=torch.float64)
    schedule = []
    for _ in range(steps):
        t, share = next_momentum(t, 0 * t)
        step = StepSpec(
            size=beta,
            threshold=beta,
            extrapolation=float(share),
            pooling_step=(inference.pooling_step,),
        )
        schedule.append(step)
    return schedule


def distill(
    unrolled: UnrolledInference,
    images: Pictures,
    spec: DistillSpec | None = None,
    *,
    teacher: InferenceSpec | None = None,
    engine: str = "auto",
    progress: Callable[[int, float], None] | None = None,
) -> list[float]:
    """Learn the sizes of the steps, and untied filters, from images without labels; return the mean
    cost of each batch.

    Adam, with a learning rate that falls to 0 along a cosine, minimises `loss`: the cost after the
    last step, and the distance of the features from the result of many plain steps. Minimising the
    cost alone gives features that are less useful to a classifier.

    Parameters
    ----------
    unrolled
        the steps, which are changed in place
    images
        pictures as `infer` takes them, such as a tensor [N, C, H, W]
    spec
        how long and how fast to learn, and how closely to follow the teacher
    teacher
        settings of the plain steps to imitate; None takes 50 steps of a line search
    engine
        engine of the teacher
    progress
        called after every batch with its number and its mean cost

    Examples
    --------
    >>> unrolled = ww.UnrolledInference(ww.load("mnist"), steps=2)
    >>> short = ww.DistillSpec(batches=2, batch_size=5)
    >>> costs = ww.distill(unrolled, ww.data.load("digits")[:20], short)
    >>> len(costs)
    2
    """
    spec = spec or DistillSpec()
    if not isinstance(unrolled, UnrolledInference):
        raise InvalidSetting({"unrolled": unrolled}, "an UnrolledInference(model, steps=…)")
    source: ImageSource = in_model_units(unrolled.model.spec, images)
    if len(source) == 0:
        raise EmptySet
    plain = teacher or replace(unrolled.settings, steps=50)
    optimizer = _make_optimizer(unrolled, spec)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, spec.batches)
    generator = torch.Generator().manual_seed(spec.seed)
    costs = []
    model = unrolled.model.with_upward(None)  # the model of the teacher
    unrolled.contrast = _mean_contrast(model, source)
    for number in range(1, spec.batches + 1):
        chosen = torch.randint(len(source), (spec.batch_size,), generator=generator).tolist()
        batch = torch.cat([source[slice(i, i + 1)] for i in chosen]).to(unrolled.model.device)
        target = infer(model, batch, plain, engine=engine).features if spec.imitation > 0 else None
        latents, end = unrolled.unroll(batch)
        value = loss(latents.features, end.cost, target, spec.imitation)
        optimizer.zero_grad()
        value.backward()
        if value.isfinite():  # steps that are far too long teach nothing
            optimizer.step()
        schedule.step()
        costs.append(end.cost.mean().item())
        if progress is not None:
            progress(number, costs[-1])
    return costs


def _make_optimizer(unrolled: UnrolledInference, spec: DistillSpec) -> torch.optim.Adam:
    """Make Adam on the sizes of the steps and, at a rate of their own, on untied filters."""
    groups: list[dict[str, object]] = [
        {"params": [unrolled.log_sizes, unrolled.extrapolation, unrolled.log_scales]},
        {"params": list(unrolled.upward or ()), "lr": spec.filter_rate * spec.learning_rate},
    ]
    return torch.optim.Adam(groups, spec.learning_rate)


def loss(p: Tensor, cost: Tensor, target: Tensor | None, imitation: float) -> Tensor:
    """Compute log mean C + imitation · ‖p - p_T‖² / ‖p_T‖², where p_T are the features of the
    teacher."""
    value = cost.mean().log()
    if target is None:
        return value
    power = target.square().sum().clamp(min=1e-12)  # of no features
    return value + imitation * (p - target).square().sum() / power


def _mean_contrast(model: DeconvNet, images: ImageSource) -> float | None:
    """Return the mean over some images of the largest |v|; None if they are all black."""
    contrast = float(
        torch.stack([target.v.abs().amax() for target in sample_targets(model, images)]).mean()
    )
    return contrast if contrast > 0 else None
