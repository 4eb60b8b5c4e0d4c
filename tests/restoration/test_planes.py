"""Brightness and differences of colour."""

import torch

from whatwhere.restoration.planes import OPPONENT, PLANE_NOISE, from_opponent, restore_planes, to_opponent


def test_planes_of_a_picture_are_from_0_to_1_and_grey_is_in_the_first() -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 3, 4, 5)
    torch.testing.assert_close(from_opponent(to_opponent(images)), images)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)[..., None, None]
    planes = to_opponent(corners)
    assert planes.amin((0, 2, 3)).tolist() == [0, 0, 0]
    torch.testing.assert_close(planes.amax((0, 2, 3)), torch.ones(3))
    grey = torch.full((1, 3, 2, 2), 0.3)
    torch.testing.assert_close(to_opponent(grey), torch.tensor([0.3, 0.5, 0.5])[:, None, None].expand(1, 3, 2, 2))


def test_noise_stays_independent_with_the_standard_deviation_of_each_plane() -> None:
    covariance = OPPONENT @ OPPONENT.T
    torch.testing.assert_close(covariance, torch.tensor(PLANE_NOISE, dtype=torch.float64).square().diag())


def test_each_plane_is_restored_with_its_own_noise() -> None:
    levels: list[float] = []

    def restore(plane: torch.Tensor, noise: float, mask: torch.Tensor | None) -> torch.Tensor:
        levels.append(noise)
        return plane

    image = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(restore_planes(restore, image, 0.2), image)
    assert levels == [0.2 * factor for factor in PLANE_NOISE]
    restore_planes(restore, image[:2], 0.2)
    assert levels[3:] == [0.2, 0.2]
