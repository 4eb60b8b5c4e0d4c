"""Small models and images that many tests use, all in float64 unless asked otherwise."""

import torch

from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model import DeconvNet, Problem
from whatwhere.spec import LayerSpec, ModelSpec, Phase

SPECS = {
    "1 layer": ModelSpec(layers=(LayerSpec(maps=3, filter_size=3),)),
    "1 layer, colour": ModelSpec(layers=(LayerSpec(maps=4, filter_size=3),), channels=3),
    "2 layers": ModelSpec(
        layers=(LayerSpec(maps=3, filter_size=3), LayerSpec(maps=4, filter_size=3, fan_in=2))
    ),
    "2 layers, 3×3 regions": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=3, pool_size=3),
            LayerSpec(maps=4, filter_size=2, pool_size=3),
        )
    ),
    "2 layers, overlapping": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=3, pool_size=3, pool_stride=2),
            LayerSpec(maps=4, filter_size=3, pool_size=3, pool_stride=2),
        )
    ),
    "2 layers, rectangular": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=(2, 4), pool_size=(3, 2)),
            LayerSpec(maps=4, filter_size=(3, 2), pool_size=(2, 3), pool_stride=(1, 2)),
        )
    ),
    "2 layers, signals": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=(1, 5), pool_size=(1, 3)),
            LayerSpec(maps=4, filter_size=(1, 3), pool_size=(1, 2)),
        )
    ),
    "2 layers, 3-D pooling": ModelSpec(
        layers=(
            LayerSpec(maps=6, filter_size=3, pool_maps=2),
            LayerSpec(maps=4, filter_size=3, pool_maps=4),
        )
    ),
    "2 layers, max": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=3, pooling="max"),
            LayerSpec(maps=4, filter_size=3, pooling="max"),
        )
    ),
    "2 layers, sum": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=3, pooling="sum"),
            LayerSpec(maps=4, filter_size=3, pooling="sum"),
        )
    ),
    "2 layers, signed": ModelSpec(
        layers=(LayerSpec(maps=3, filter_size=3), LayerSpec(maps=4, filter_size=3)),
        nonnegative=False,
    ),
    "2 layers, per filter": ModelSpec(
        layers=(LayerSpec(maps=3, filter_size=3), LayerSpec(maps=4, filter_size=3, fan_in=2)),
        normalise="filter",
    ),
    "3 layers, colour": ModelSpec(
        layers=(
            LayerSpec(maps=3, filter_size=3),
            LayerSpec(maps=4, filter_size=3, fan_in=2),
            LayerSpec(maps=5, filter_size=2, pool_size=3),
        ),
        channels=3,
    ),
}


def random_images(
    spec: ModelSpec, n: int = 3, height: int = 9, width: int = 8, seed: int = 0
) -> torch.Tensor:
    """Random images in [0, 1], or signed where the model is."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(n, spec.channels, height, width, generator=generator, dtype=torch.float64)
    return images if spec.nonnegative else images - 0.5


def random_mask(images: torch.Tensor, kind: str, seed: int = 2) -> torch.Tensor | None:
    """A mask with a third of the pixels unknown: '' (none), 'known' (0 or 1) or 'weights', of one
    channel or with 'per channel' at the end of `kind`, of each."""
    if not kind:
        return None
    N, C, height, width = images.shape
    generator = torch.Generator().manual_seed(seed)
    shape = (N, C if kind.endswith("per channel") else 1, height, width)
    weight = torch.rand(shape, generator=generator, dtype=images.dtype)
    known = (weight > 1 / 3).to(images.dtype)
    return known if kind.startswith("known") else 2 * known * weight


def filter_problem(
    model: DeconvNet, images: torch.Tensor, latents: Latents, mask: torch.Tensor | None = None
) -> Problem:
    """What a filter update is given: the latents at the end of a phase."""
    return Problem(
        model, images, Phase(layer=max(1, len(latents.pooling_params))), latents=latents, mask=mask
    )


def random_latents(model: DeconvNet, images: torch.Tensor, seed: int = 1) -> Latents:
    """Random features of the top layer, and pooling variables anywhere between their bounds;
    switches stay."""
    generator = torch.Generator().manual_seed(seed)
    fitted = start_pooling(Problem(model, images, Phase(layer=model.spec.depth)))
    thetas = []
    for theta, layer in zip(fitted, model.spec.layers, strict=True):
        if layer.pooling.moves:
            mu = torch.randn(theta.mu.shape, generator=generator, dtype=images.dtype) / 2
            gamma = 8 * torch.rand(theta.mu.shape, generator=generator, dtype=images.dtype)
            theta = PoolingParams(mu, gamma)
        thetas.append(theta)
    grid = model.at(*images.shape[2:]).regions[-1].grid
    p = torch.randn(len(images), *grid, generator=generator, dtype=images.dtype)
    return Latents(p.clamp(min=0) if model.spec.nonnegative else p, tuple(thetas))


def backwards(tensor: torch.Tensor) -> torch.Tensor:
    """The same values with the axes in the opposite order in memory."""
    order = tuple(reversed(range(tensor.ndim)))
    return tensor.permute(order).contiguous().permute(order)
