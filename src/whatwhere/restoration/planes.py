"""Images as planes that are restored one at a time.

Red, green and blue are restored as brightness and two differences of colour. Noise that is the same
and independent in every channel stays independent from plane to plane, with a standard deviation in
each that is known. Most of a picture is in its brightness; the differences are smooth, and little
of them is left to be mistaken for noise. Every plane of a picture from 0 to 1 is from 0 to 1, too,
which a trained denoiser expects: brightness up to √3, as an orthonormal transform has it, loses 1
dB and more.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from whatwhere.engines.threads import workers

Progress = Callable[[int], None]
"""Called with the number of pixels just done."""
Restore = Callable[[Tensor, float, Tensor | None], Tensor]
"""A function of a plane [H, W], its noise and a mask [H, W] (0 where it has gaps) that returns the
restored plane."""
# brightness, red against blue, green against both
OPPONENT = torch.tensor(
    [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 0, -1 / 2], [1 / 4, -1 / 2, 1 / 4]],
    dtype=torch.float64,
    device="cpu",
)
OFFSET = torch.tensor([0, 0.5, 0.5], dtype=torch.float64, device="cpu")
SMALL = 128 * 128  # pixels, below which an image is too small to be shared between threads
PLANE_NOISE: list[float] = OPPONENT.norm(dim=1).tolist()  # for noise of 1 in each channel


def to_opponent(image: Tensor) -> Tensor:
    """[…, 3, H, W] in red, green and blue → brightness and two differences of colour."""
    return (
        torch.einsum("oc,...chw->...ohw", OPPONENT.to(image), image)
        + OFFSET.to(image)[:, None, None]
    )


def from_opponent(planes: Tensor) -> Tensor:
    """The inverse of `to_opponent`."""
    return torch.einsum(
        "co,...ohw->...chw",
        OPPONENT.inverse().to(planes),
        planes - OFFSET.to(planes)[:, None, None],
    )


def plane_deviations(covariance: Sequence[Sequence[float]]) -> list[float]:
    """The standard deviations in brightness and differences of colour of noise with this covariance
    of red, green and blue."""
    channels = torch.tensor(covariance, dtype=torch.float64)
    return (OPPONENT @ channels @ OPPONENT.T).diagonal().clamp(min=0).sqrt().tolist()


def restore_colour(restore: Restore, image: Tensor, noises: Sequence[float]) -> Tensor:
    """An image [3, H, W] restored as brightness and differences of colour, whose noise is given."""
    planes = zip(to_opponent(image), noises, strict=True)
    return from_opponent(torch.stack([restore(plane, noise, None) for plane, noise in planes]))


def restore_images(
    restore: Restore, images: Tensor, noises: Sequence[float], masks: Sequence[Tensor] | None = None
) -> Tensor:
    """Images [N, C, H, W] restored, small ones at the same time; an image without noise and without
    a mask stays as it is."""

    def one(image: Tensor, noise: float, mask: Tensor | None) -> Tensor:
        return image if noise == 0 and mask is None else restore_planes(restore, image, noise, mask)

    parts = images, noises, [None] * len(images) if masks is None else masks
    if images.device.type != "cpu" or len(images) == 1 or images[0, 0].numel() > SMALL:
        return torch.stack(list(map(one, *parts)))
    with workers() as each:
        return torch.stack(list(each(one, *parts)))


def restore_planes(
    restore: Restore, image: Tensor, noise: float, mask: Tensor | None = None
) -> Tensor:
    """An image [C, H, W] restored: three channels as brightness and differences of colour.

    Other numbers of channels, and channels that differ in their masks, are restored one by one.
    """
    opponent = len(image) == 3 and (mask is None or len(mask) == 1)
    planes = to_opponent(image) if opponent else image
    noises = [factor * noise for factor in PLANE_NOISE] if opponent else [noise] * len(image)
    masks = [None] * len(image) if mask is None else mask.expand_as(image)
    restored = torch.stack([restore(*part) for part in zip(planes, noises, masks, strict=True)])
    return from_opponent(restored) if opponent else restored
