"""Large pictures are restored in parts that leave no border."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

import whatwhere as ww
from whatwhere.restoration.denoiser import Denoiser
from whatwhere.restoration.parts import PartSettings, restore_in_parts

SMALL = PartSettings(side=20, overlap=6)


@pytest.mark.parametrize("size", [(20, 20), (21, 20), (33, 50), (100, 7)])
def test_every_pixel_has_the_weight_one(size: tuple[int, int]) -> None:
    image = torch.rand(1, 2, *size)
    sides: list[tuple[int, ...]] = []

    def as_it_is(part: Tensor, progress: object) -> Tensor:
        sides.append(tuple(part.shape[2:]))
        return part

    torch.testing.assert_close(restore_in_parts(as_it_is, image, settings=SMALL), image)
    assert max(max(side) for side in sides) <= 20


def test_parts_that_differ_are_blended() -> None:
    level = iter((0.0, 1.0))
    result = restore_in_parts(
        lambda part, _: torch.full_like(part, next(level)), torch.zeros(1, 1, 5, 30), settings=SMALL
    )
    steps = result[0, 0, 0].diff()
    assert result[0, 0, 0, [0, -1]].tolist() == [0.0, 1.0]
    assert bool((steps >= 0).all())
    assert steps.max() < 0.2  # 6 pixels share the step


def test_a_pixel_counts_once_in_the_progress() -> None:
    done: list[int] = []

    def restore(part: Tensor, progress: object) -> Tensor:
        assert callable(progress)
        for _ in range(2):
            progress(part[0, 0].numel() // 2)
        return part

    image = torch.rand(1, 1, 34, 48)
    restore_in_parts(restore, image, done.append, SMALL)
    assert abs(sum(done) - 34 * 48) <= 4


@dataclass(frozen=True)
class Recorded(Denoiser):
    """A denoiser that returns what it is given, and remembers the size."""

    sides: list[int] = field(default_factory=list)

    def denoise(self, plane: Tensor, *settings: object) -> Tensor:
        self.sides.append(max(plane.shape))
        return plane


@pytest.mark.parametrize("noise", [20.0, (2.0, 1.0)])
def test_no_large_picture_is_restored_as_a_whole(noise: float | tuple[float, float]) -> None:
    model = Recorded(**vars(ww.restoration.load_denoiser()))
    image = 100 + 20 * torch.randn(16, 2000)
    ww.restoration.denoise(image, model, noise)
    assert max(model.sides) <= PartSettings().side
    assert max(model.sides) > 1000  # of few parts
