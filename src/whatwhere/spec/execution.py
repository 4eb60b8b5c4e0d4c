"""How work is computed, apart from what it computes: engine and device, and for training what it
keeps and when."""

from dataclasses import dataclass, field
from typing import Any, Literal

from whatwhere.spec.checks import Checked, CountOrZero, Positive


@dataclass(frozen=True, kw_only=True)
class Execution(Checked):
    """What computes, and where.

    engine  what computes inference: one that `whatwhere info` lists; 'auto' takes the fastest that
            supports the model
    device  where: cpu, cuda, cuda:1, …; 'auto' takes a GPU where there is one
    """

    engine: str = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", str(self.device))  # a torch.device is accepted
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(Execution):
    """How a training runs; the recipe says what it computes.

    engine            what computes inference: one that `whatwhere info` lists; 'auto' takes the
                      fastest that supports the model
    device            where: cpu, cuda, cuda:1, …; 'auto' takes a GPU where there is one
    store             where latents wait for the next epoch: 'memory', 'file', or 'auto', memory if
                      they fit
    checkpoint_every  epochs from one checkpoint to the next; 0 writes one only when stopped; None
                      writes one every epoch, or as seldom as limits them to a tenth of the time
    timeout           seconds after which several processes (torchrun) give up one that does not
                      answer; longer than the slowest batch
    notes             plain values for the checkpoint, such as where the images came from

    >>> ww.TrainingOptions(engine="reference", device="cpu", checkpoint_every=5).store
    'auto'
    """

    store: Literal["auto", "memory", "file"] = "auto"
    checkpoint_every: CountOrZero | None = None
    timeout: Positive = 300.0
    notes: dict[str, Any] = field(default_factory=dict)
