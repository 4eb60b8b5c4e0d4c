"""New images from the codes of others: what is there, and where, sampled, exchanged or
interpolated.

Features of an image depend on each other, and drawing each from its own statistics gives smudges.
`generate` draws them window by window, each given all the others: a window of a code is replaced,
what and where, by the same window of an example whose code is similar everywhere else. This is
Gibbs sampling, with the nearest examples in place of a density.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import InvalidImages, WrongShape, plural
from whatwhere.latents import Latents
from whatwhere.model.solution import Solution
from whatwhere.spec.checks import require_count

Window = tuple[slice, slice]  # rows and columns of a map


@torch.no_grad()
def generate(
    examples: Solution,
    count: int,
    *,
    window: int = 5,
    neighbours: int = 5,
    sweeps: int = 2,
    seed: int = 0,
) -> Tensor:
    """Make new images [count, C, H, W] that resemble the examples.

    Parameters
    ----------
    examples
        the solution of `infer` for several hundred or more images of the wanted kind
    count
        number of new images
    window
        side of the windows that are replaced together, in elements of the top layer's maps
    neighbours
        number of examples that are nearest to the rest of a code; a random one of them supplies the
        window
    sweeps
        how often all windows are replaced; more sweeps lead farther from any single example
    seed
        seed of the random choices

    Examples
    --------
    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> examples = ww.infer(model, digits[:20], ww.InferenceSpec(steps=5))
    >>> ww.generate(examples, 4).shape
    torch.Size([4, 1, 28, 28])
    """
    for name, value in (("count", count), ("window", window), ("neighbours", neighbours)):
        require_count(name, value)
    known = _similarity_maps(examples.features)
    if len(known) <= neighbours:
        given = plural(len(known), "example")
        raise InvalidImages(given, f"more than neighbours = {neighbours}")
    generator = torch.Generator().manual_seed(seed)
    start = torch.randint(len(known), (count,), generator=generator).to(known.device)
    drawn = examples.latents[start]
    extent = known.shape[2:]
    for _ in range(sweeps):
        for inside in covering_windows(extent, window, generator):
            near = nearest_elsewhere(
                known, _similarity_maps(drawn.features), inside, start, neighbours
            )
            donors = near.gather(
                1, torch.randint(neighbours, (count, 1), generator=generator).to(near.device)
            )[:, 0]
            drawn = replace_window(drawn, examples.latents[donors], inside, extent)
    return examples.model.decode(drawn)


@torch.no_grad()
def transfer(what: Solution, where: Solution) -> Tensor:
    """Return images [N, C, H, W] with the features of one solution, placed by the pooling variables
    of another.

    Parameters
    ----------
    what, where
        solutions of the same model, for as many images of the same size

    Examples
    --------
    >>> model, digits, few = ww.load("mnist"), ww.data.load("digits"), ww.InferenceSpec(steps=5)
    >>> ww.transfer(ww.infer(model, digits[:2], few), ww.infer(model, digits[2:4], few)).shape
    torch.Size([2, 1, 28, 28])
    """
    placed = combine(what.latents, where.latents, lambda _, b: b)
    return what.model.decode(replace(what.latents, pooling_params=placed.pooling_params))


@torch.no_grad()
def morph(first: Solution, second: Solution, count: int = 8) -> Tensor:
    """Return images [count, N, C, H, W] in equal steps from the images of the first solution to the
    images of the second, including both ends.

    Parameters
    ----------
    first, second
        solutions of the same model, for as many images of the same size
    count
        number of images, with both ends

    Examples
    --------
    >>> model, digits, few = ww.load("mnist"), ww.data.load("digits"), ww.InferenceSpec(steps=5)
    >>> ww.morph(ww.infer(model, digits[:2], few), ww.infer(model, digits[2:4], few), count=3).shape
    torch.Size([3, 2, 1, 28, 28])
    """
    require_count("count", count, least=2)
    times = torch.linspace(0, 1, count).tolist()
    on_the_way = [
        combine(first.latents, second.latents, partial(torch.lerp, weight=t)) for t in times
    ]
    return torch.stack([first.model.decode(latents) for latents in on_the_way])


def combine(
    first: Latents, second: Latents, function: Callable[[Tensor, Tensor], Tensor]
) -> Latents:
    """Return latents whose tensors are each a function of the tensors of two others, which must
    have the same shapes."""
    if [tensor.shape for tensor in first.tensors()] != [
        tensor.shape for tensor in second.tensors()
    ]:
        raise WrongShape(
            "features",
            second.features.shape,
            "a solution of the same model and the same number of images of one size",
            f"next to {list(first.features.shape)}",
        )
    others = iter(second.tensors())
    return first.map(lambda tensor: function(tensor, next(others)))


def _similarity_maps(p: Tensor) -> Tensor:
    """Return the maps for comparing codes, [N, B, H, W]: features, blurred by an element so that
    small shifts matter little."""
    blurred = F.avg_pool2d(p.square(), 3, stride=1, padding=1).sqrt()
    return F.normalize(blurred.flatten(1)).view_as(blurred)


def covering_windows(extent: torch.Size, side: int, generator: torch.Generator) -> list[Window]:
    """Yield windows that cover the map, with a random offset, in random order; some stick out."""
    down, right = torch.randint(side, (2,), generator=generator).tolist()
    rows = range(-down, extent[0], side)
    columns = range(-right, extent[1], side)
    corners = [(max(row, 0), max(column, 0)) for row in rows for column in columns]
    windows = [(slice(row, row + side), slice(column, column + side)) for row, column in corners]
    return [windows[i] for i in torch.randperm(len(windows), generator=generator).tolist()]


def nearest_elsewhere(
    known: Tensor, maps: Tensor, inside: Window, own: Tensor, neighbours: int
) -> Tensor:
    """Find, for every map, the examples that are most similar outside the window, [count,
    neighbours], without its own example."""
    outside = torch.ones(known.shape[2:], dtype=torch.bool, device=known.device)
    outside[inside] = False
    distances = torch.cdist(maps[:, :, outside].flatten(1), known[:, :, outside].flatten(1))
    return distances.scatter(1, own[:, None], torch.inf).topk(neighbours, largest=False).indices


def replace_window(drawn: Latents, donors: Latents, inside: Window, extent: torch.Size) -> Latents:
    """Return the latents with what and where of a window taken from others; the window is scaled to
    the maps of each layer."""

    def replaced(old: Tensor, new: Tensor) -> Tensor:
        places = zip(inside, old.shape[-2:], extent, strict=True)
        rows, columns = (
            slice(round(w.start * n / of), round(min(w.stop, of) * n / of)) for w, n, of in places
        )
        result = old.clone()
        result[..., rows, columns] = new[..., rows, columns]
        return result

    return replace(combine(drawn, donors, replaced), background=drawn.background)
