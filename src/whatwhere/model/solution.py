"""The outcome of inference, and what every step measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from whatwhere.errors import InvalidImages, plural
from whatwhere.html import notebook_strip
from whatwhere.latents import Latents
from whatwhere.model.events import Events, events_of
from whatwhere.model.sized import SizedModel


@dataclass(frozen=True, repr=False)
class Stats:
    """The measurements at every step of inference, for every image. Row t is the state before step
    t; the last row is the end.

    Parameters
    ----------
    reconstruction
        λ/2 ‖M ⊙ (Rp - v)‖², [T + 1, N]
    penalty
        Σ|p|^α, [T + 1, N]
    nonzeros
        number of p ≠ 0, [T + 1, N]
    step
        β, [T, N]
    gap
        the relative duality gap at the end, [N] (`model.gap`), if `InferenceSpec.gap` asks for it;
        otherwise None

    T is the number of steps of the image that took most. An image that was finished earlier
    (`InferenceSpec.tolerance`) repeats its last values, with steps of size 0.
    """

    reconstruction: Tensor
    penalty: Tensor
    nonzeros: Tensor
    step: Tensor
    gap: Tensor | None = None

    @property
    def cost(self) -> Tensor:
        """The objective C of every image at every step, [T + 1, N]."""
        return self.reconstruction + self.penalty

    def __repr__(self) -> str:
        T, N = self.step.shape
        first, last = (float(self.cost[t].double().mean()) for t in (0, -1))
        return f"Stats({T} steps of {plural(N, 'image')}, mean cost {first:.4g} → {last:.4g})"

    def _repr_html_(self) -> str:
        """Show how the mean cost falls from its largest to its smallest value, under the line of
        `repr`."""
        costs = self.cost.detach().double().mean(1).cpu()
        range_of_costs = (costs.max() - costs.min()).clamp(min=1e-12)
        heights = (31 * (costs - costs.min()) / range_of_costs).round()
        places = torch.linspace(0, len(heights) - 1, 96).round().long()
        curve = (31 - torch.arange(32)[:, None] > heights[places]).float()
        return notebook_strip(repr(self), [curve[None]])

    def padded(self, steps: int) -> Stats:
        """Return a copy with this many steps: those that are added have size 0 and leave all
        measures as they were."""
        more = steps - len(self.step)

        def held(trace: Tensor) -> Tensor:
            return torch.cat([trace, trace[-1:].expand(more, -1)])

        step = torch.cat([self.step, self.step.new_zeros(more, self.step.shape[1])])
        return Stats(held(self.reconstruction), held(self.penalty), held(self.nonzeros), step)

    def of_images(self, images: Tensor) -> Stats:
        """Return the statistics of some images, chosen by a mask [N]."""
        return Stats(
            self.reconstruction[:, images],
            self.penalty[:, images],
            self.nonzeros[:, images],
            self.step[:, images],
        )

    def put(self, images: Tensor, part: Stats) -> Stats:
        """Return a copy with the statistics of some images, chosen by a mask [N], replaced."""

        def put(trace: Tensor, new: Tensor) -> Tensor:
            return trace.T.index_put((images,), new.T).T

        return Stats(
            put(self.reconstruction, part.reconstruction),
            put(self.penalty, part.penalty),
            put(self.nonzeros, part.nonzeros),
            put(self.step, part.step),
        )

    @staticmethod
    def cat(parts: Sequence[Stats]) -> Stats:
        """Join the statistics of several batches; with a tolerance, their numbers of steps
        differ."""
        if len(parts) == 1:
            return parts[0]
        longest = max(len(part.step) for part in parts)
        gaps = [part.gap for part in parts if part.gap is not None]
        gap = torch.cat(gaps) if len(gaps) == len(parts) else None
        parts = [part if len(part.step) == longest else part.padded(longest) for part in parts]
        return Stats(
            torch.cat([part.reconstruction for part in parts], dim=1),
            torch.cat([part.penalty for part in parts], dim=1),
            torch.cat([part.nonzeros for part in parts], dim=1),
            torch.cat([part.step for part in parts], dim=1),
            gap,
        )


@dataclass(frozen=True, repr=False)
class Solution:
    """The outcome of inference: what and where, what every step measured, and the engine that ran.

    Parameters
    ----------
    latents
        features and pooling variables
    stats
        cost, its parts and the number of non-zeros at every step of the last phase, [T + 1, N] each
    engine
        the name of the engine
    decoder
        the model of the latents; None if an engine was called directly
    lam
        λ, given or chosen (`AutoLam`); None if an engine was called directly
    signals
        whether signals [N, C, T] were given: features and reconstruction then have no height;
        latents have a height of 1

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> solution = ww.infer(model, ww.data.load("digits")[:3], ww.InferenceSpec(steps=5))
    >>> solution.features.shape, solution.reconstruction.shape, solution.stats.cost.shape
    (torch.Size([3, 48, 10, 10]), torch.Size([3, 1, 28, 28]), torch.Size([6, 3]))
    """

    latents: Latents
    stats: Stats
    engine: str
    decoder: SizedModel | None = None
    lam: float | None = None
    signals: bool = False

    @property
    def features(self) -> Tensor:
        """The top layer's features p, [N, B, H, W]; for signals, [N, B, T]."""
        return self.latents.features.squeeze(2) if self.signals else self.latents.features

    @property
    def model(self) -> SizedModel:
        """The decoder; raises an ImageError if there is none."""
        if self.decoder is None:
            raise InvalidImages("a solution without a decoder", "one that `infer` returned")
        return self.decoder

    def to(self, *args: object, **kwargs: object) -> Solution:
        """Return the same on another device, in another dtype."""
        decoder = None if self.decoder is None else self.decoder.to(*args, **kwargs)
        return replace(self, latents=self.latents.to(*args, **kwargs), decoder=decoder)

    @property
    def reconstruction(self) -> Tensor:
        """The images that the latents reconstruct, [N, C, H, W]; for signals, [N, C, T]."""
        with torch.no_grad():
            images = self.model.decode(self.latents)
        return images.squeeze(2) if self.signals else images

    def events(self, threshold: float = 0.0) -> Events:
        """Return the events in signals (what happened, and when), as a structured array (see
        `Events`).

        Parameters
        ----------
        threshold
            the smallest amplitude of an event, in units of the signals

        Examples
        --------
        >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
        >>> solution = ww.infer(model, torch.randn(1, 1, 100), ww.InferenceSpec.coding())
        >>> solution.events(threshold=0.5).dtype.names[:6]
        ('signal', 'layer', 'waveform', 'sample', 'seconds', 'amplitude')
        """
        return events_of(self.model, self.latents, threshold)

    def _repr_html_(self) -> str:
        """Show the first reconstructions in a notebook, under the line of `repr`."""
        if self.signals or self.decoder is None:
            return notebook_strip(repr(self), ())
        first = self.latents[:12]  # a row of a notebook
        return notebook_strip(repr(self), list(self.decoder.decode(first).detach()))

    def __repr__(self) -> str:
        N, *shape = self.features.shape

        def end(trace: Tensor) -> float:
            return float(trace[-1].cpu().double().mean())

        cost = end(self.stats.cost)
        error = end(self.stats.reconstruction)
        nonzeros = end(self.stats.nonzeros)
        return (
            f"Solution({N} images, features {'×'.join(map(str, shape))}, {len(self.stats.step)}"
            f" steps, on average: cost {cost:.4g} (reconstruction {error:.4g}), {nonzeros:.4g}"
            f" non-zeros; engine {self.engine!r})"
        )
