"""The device on which this process computes."""

import torch

from whatwhere.errors import SpecError


def choose_device(asked: torch.device | str, engine: str = "auto") -> torch.device:
    """The device asked for; 'auto' is a GPU where there is one and the engine can use it."""
    if asked == "auto":
        asked = "cuda" if torch.cuda.is_available() and engine not in ("cpu", "greedy") else "cpu"
    try:
        device = torch.device(asked)
    except RuntimeError:
        raise SpecError(
            f"device {asked!r} was given; expected auto, cpu, cuda, cuda:1, …"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SpecError(
            f"device {str(asked)!r} was given; there is no GPU that torch can use here ('cpu'"
            " works)"
        )
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device
