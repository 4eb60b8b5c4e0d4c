"""A picture of edges and waves, and a model of ten small filters that explains such pictures: both
made by formulas."""

import numpy as np
import torch
from torch import Tensor

from whatwhere.model import DeconvNet
from whatwhere.spec import InputSpec, LayerSpec, ModelSpec


def picture(height: int = 40, width: int = 44) -> Tensor:
    """[1, 1, height, width] in [0, 1]: a bright disc on a slope, and stripes."""
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    disc = ((y - height / 2) ** 2 + (x - width / 2) ** 2 < (height / 4) ** 2).float()
    stripes = ((x + y) % 8 < 4).float() * (y > 0.7 * height)
    return (0.2 + 0.4 * disc + 0.2 * stripes + 0.2 * x / width)[None, None]


def model(channels: int = 1, size: int = 5, pool: int = 1, kind: str = "highpass") -> DeconvNet:
    """Cosines of the 5×5 block, all but the flat one, the same in every channel."""
    place = np.arange(size) + 0.5
    waves = [np.cos(np.pi * place * k / size) for k in range(size)]
    blocks = [
        np.outer(waves[i], waves[j]) for i in range(size) for j in range(size) if 0 < i + j < size
    ]
    f = torch.tensor(np.stack(blocks), dtype=torch.float32)[None].repeat(channels, 1, 1, 1)
    f = f / f.square().sum((0, 2, 3), keepdim=True).sqrt()
    layer = LayerSpec(
        maps=f.shape[1],
        filter_size=size,
        pool_size=pool,
        pooling="gaussian" if pool > 1 else "sum",
    )
    spec = ModelSpec(
        layers=(layer,),
        channels=channels,
        nonnegative=False,
        normalise="filter",
        input=InputSpec(kind=kind, sigma=2.0),  # type: ignore[arg-type]
    )
    return DeconvNet.from_parts(spec, [f], DeconvNet(spec).connectivity)


def noisy(images: Tensor, noise: float, seed: int = 0) -> Tensor:
    return images + noise * torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))


def error(result: Tensor, truth: Tensor) -> float:
    """Root mean square."""
    return float((result - truth).square().mean().sqrt())


def discs(height: int, width: int, seed: int = 0) -> torch.Tensor:
    """Discs of several greys on a ramp: edges, and flat parts; [H, W] from 0 to 1."""
    generator = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    image = 0.2 + 0.4 * x / width + 0.1 * y / height
    for _ in range(6):
        centre, radius = (
            generator.uniform(0, (height, width)),
            generator.uniform(0.1, 0.3) * max(height, width),
        )
        image[np.hypot(y - centre[0], x - centre[1]) < radius] = generator.uniform(0.05, 0.95)
    return torch.from_numpy(image).float()


def blurred(width: float, shape: tuple[int, int], seed: int = 0) -> torch.Tensor:
    """White noise blurred by a Gaussian of this width, of standard deviation 1."""
    random = torch.Generator().manual_seed(seed)
    white = torch.randn(*shape, generator=random, dtype=torch.float64)
    rows, columns = (torch.fft.fftfreq(side, dtype=torch.float64) for side in shape)
    power = rows[:, None].square() + columns.square()
    gain = torch.exp(-2 * (torch.pi * width) ** 2 * power)
    noise = torch.fft.ifft2(torch.fft.fft2(white) * gain).real
    return noise / noise.std()
