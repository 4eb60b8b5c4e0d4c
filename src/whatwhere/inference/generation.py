"""New images from the codes of others: what is there, and where, exchanged or interpolated.

ww.transfer(examples_a, examples_b)           # what of the first, where of the second
ww.morph(examples_a, examples_b, 8)           # from one to the other
"""

import torch
from torch import Tensor

from whatwhere.errors import ImageError
from whatwhere.latents import Latents
from whatwhere.model.solution import Solution
from whatwhere.spec.checks import require_count


def transfer(what: Solution, where: Solution) -> Tensor:
    """Images [N, C, H, W] with the features of one solution, placed by the pooling variables of another.

    what, where   solutions of the same model, for as many images of the same size

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> first, second = (ww.infer(model, digits[n : n + 1], ww.InferenceSpec(steps=5)) for n in (0, 1))
    >>> ww.transfer(first, second).shape
    torch.Size([1, 1, 28, 28])
    """
    check_alike(what, where)
    with torch.no_grad():
        moved = Latents(what.latents.p, where.latents.pooling_params, what.latents.background)
        return what.model.decode(moved)


def morph(first: Solution, second: Solution, count: int = 8) -> Tensor:
    """Images [count, N, C, H, W] from those of the first solution to those of the second, both ends included.

    Features, pooling variables and background move along straight lines.

    first, second  solutions of the same model, for as many images of the same size
    count          of images on the way

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> first, second = (ww.infer(model, digits[n : n + 1], ww.InferenceSpec(steps=5)) for n in (0, 1))
    >>> ww.morph(first, second, count=3).shape
    torch.Size([3, 1, 1, 28, 28])
    """
    require_count("count", count, least=2)
    check_alike(first, second)

    def between(t: float) -> Latents:
        others = iter(second.latents.tensors())
        return first.latents.map(lambda tensor: torch.lerp(tensor, next(others), t))

    with torch.no_grad():
        return torch.stack([first.model.decode(between(t)) for t in torch.linspace(0, 1, count).tolist()])


def check_alike(first: Solution, second: Solution) -> None:
    """Raise an ImageError for solutions of different numbers of images, or of different models."""
    shapes = [[tuple(tensor.shape) for tensor in solution.latents.tensors()] for solution in (first, second)]
    if shapes[0] != shapes[1]:
        raise ImageError(
            f"solutions with features {list(first.features.shape)} and {list(second.features.shape)} were given; "
            "expected two of the same model and the same number of images of one size"
        )
