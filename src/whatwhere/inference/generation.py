"""New images from the codes of others: what is there, and where, sampled, exchanged or interpolated.

    examples = ww.infer(model, images)
    ww.generate(examples, 20)                     # new images that resemble the examples
    ww.transfer(examples_a, examples_b)           # what of the first, where of the second
    ww.morph(examples_a, examples_b, 8)           # from one to the other

Features of an image depend on each other, and drawing each from its own statistics gives smudges. `generate` draws them
window by window, each given all the others: a window of a code is replaced, what and where, by that of an example
whose code is similar everywhere else. This is Gibbs sampling, with the nearest examples in place of a density.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model.solution import Solution
from whatwhere.spec.checks import require_count


def generate(
    examples: Solution, count: int, *, window: int = 5, neighbours: int = 5, sweeps: int = 2, seed: int = 0
) -> Tensor:
    """New images [count, C, H, W] that resemble the examples.

    examples    what `infer` returned for images of the kind wanted, several hundred or more
    count       number of new images
    window      side of the windows that are replaced together, in elements of the top layer's maps
    neighbours  of the examples nearest to the rest of a code, this many may give the window
    sweeps      how often all windows are replaced; the more, the farther from any one example
    seed        of the random choices

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> examples = ww.infer(model, digits[:20], ww.InferenceSpec(steps=5))
    >>> ww.generate(examples, 4).shape
    torch.Size([4, 1, 28, 28])
    """
    for name, value in (("count", count), ("window", window), ("neighbours", neighbours)):
        require_count(name, value)
    require_count("sweeps", sweeps, least=0)
    if len(examples.features) <= neighbours:
        raise ImageError(
            f"{len(examples.features)} examples were given; expected more than neighbours = {neighbours} of them"
        )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        latents = sample_latents(examples.latents, count, window, neighbours, sweeps, generator)
        return examples.model.decode(latents)


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

    first, second  solutions of the same model, for as many images of the same size
    count          of images on the way

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> first, second = (ww.infer(model, digits[n : n + 1], ww.InferenceSpec(steps=5)) for n in (0, 1))
    >>> ww.morph(first, second, count=3).shape
    torch.Size([3, 1, 1, 28, 28])
    """
    require_count("count", count, least=2)
    check_alike(first, second)
    decoder = first.model
    with torch.no_grad():
        times = torch.linspace(0, 1, count).tolist()
        return torch.stack([decoder.decode(interpolate(first.latents, second.latents, t)) for t in times])


# Sampling ------------------------------------------------------------------------------------------------------


def sample_latents(
    examples: Latents, count: int, window: int, neighbours: int, sweeps: int, generator: torch.Generator
) -> Latents:
    """Latents of `count` new images. Each begins as an example, which then gives none of its windows."""
    contexts = similarity_maps(examples.features)
    start = torch.randint(len(contexts), (count,), generator=generator).to(contexts.device)
    drawn, maps = examples[start], contexts[start]
    height, width = contexts.shape[2:]
    for _ in range(sweeps):
        for top, left in window_corners(height, width, window, generator):
            inside = (slice(top, top + window), slice(left, left + window))
            near = nearest_elsewhere(contexts, maps, inside, start, neighbours)
            pick = torch.randint(neighbours, (count, 1), generator=generator).to(near.device)
            donors = near.gather(1, pick)[:, 0]
            drawn = replace_window(drawn, examples[donors], inside, (height, width))
            maps = similarity_maps(drawn.p)  # type: ignore[arg-type]
    return drawn


def similarity_maps(p: Tensor) -> Tensor:
    """What codes are compared by, [N, B, H, W]: features, blurred by an element so that small shifts matter little."""
    blurred = F.avg_pool2d(p.square(), 3, stride=1, padding=1).sqrt()
    lengths: Tensor = torch.linalg.vector_norm(blurred, dim=(1, 2, 3), keepdim=True)
    return blurred / lengths.clamp_min(torch.finfo(p.dtype).tiny)


def window_corners(height: int, width: int, window: int, generator: torch.Generator) -> list[tuple[int, int]]:
    """The corners of windows that cover the map, with a random offset, in random order; some stick out."""
    shift = torch.randint(window, (2,), generator=generator).tolist()
    rows, columns = (range(-offset, extent, window) for offset, extent in zip(shift, (height, width), strict=True))
    corners = [(max(row, 0), max(column, 0)) for row in rows for column in columns]
    return [corners[i] for i in torch.randperm(len(corners), generator=generator).tolist()]


def nearest_elsewhere(
    contexts: Tensor, maps: Tensor, inside: tuple[slice, slice], excluded: Tensor, neighbours: int
) -> Tensor:
    """Of every map, the examples that are most similar outside the window, [count, neighbours]."""
    outside = torch.ones(contexts.shape[2:], dtype=torch.bool, device=contexts.device)
    outside[inside] = False
    distances = torch.cdist(maps[:, :, outside].flatten(1), contexts[:, :, outside].flatten(1))
    distances.scatter_(1, excluded[:, None], torch.inf)
    return distances.topk(neighbours, dim=1, largest=False).indices


def replace_window(drawn: Latents, donors: Latents, inside: tuple[slice, slice], extent: tuple[int, int]) -> Latents:
    """The latents with what and where of a window taken from others; the window is scaled to the maps of each layer."""

    def replaced(old: Tensor, new: Tensor) -> Tensor:
        rows, columns = (
            slice(round(part.start * size / whole), round(min(part.stop, whole) * size / whole))
            for part, size, whole in zip(inside, old.shape[-2:], extent, strict=True)
        )
        result = old.clone()
        result[..., rows, columns] = new[..., rows, columns]
        return result

    thetas = zip(drawn.pooling_params, donors.pooling_params, strict=True)
    where = tuple(PoolingParams(replaced(a.mu, b.mu), replaced(a.gamma, b.gamma)) for a, b in thetas)
    return Latents(replaced(drawn.features, donors.features), where, drawn.background)


# Interpolation -------------------------------------------------------------------------------------------------


def interpolate(first: Latents, second: Latents, t: float) -> Latents:
    """Between two latents: features, pooling variables and background, each along a line."""
    others = iter(second.tensors())
    return first.map(lambda tensor: torch.lerp(tensor, next(others), t))


def check_alike(first: Solution, second: Solution) -> None:
    """Raise an ImageError for solutions of different numbers of images, or of different models."""
    shapes = [[tuple(tensor.shape) for tensor in solution.latents.tensors()] for solution in (first, second)]
    if shapes[0] != shapes[1]:
        raise ImageError(
            f"solutions with features {list(first.features.shape)} and {list(second.features.shape)} were given; "
            "expected two of the same model and the same number of images of one size"
        )
