"""Code surprise: distances against loops over all pairs of patches."""

import numpy as np
import pytest
import torch

from whatwhere.anomaly.patch_bank import PatchBank


def patches(count: int, seed: int) -> torch.Tensor:
    return torch.rand(count, 2, 3, 4, generator=torch.Generator().manual_seed(seed))


def bank(values: torch.Tensor, aligned: bool, neighbours: int = 2, size: int = 1000) -> PatchBank:
    generator = torch.Generator().manual_seed(0)
    return PatchBank.of(values, aligned=aligned, size=size, neighbours=neighbours, generator=generator)


def surprise_of(patch: np.ndarray, normal: np.ndarray, neighbours: int) -> float:
    distances = sorted(float(((patch - other) ** 2).sum()) for other in normal)
    return float(np.mean(distances[:neighbours]))


@pytest.mark.parametrize("aligned", [True, False])
def test_surprise_is_the_mean_distance_of_the_nearest_patches(aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whatwhere.anomaly.patch_bank.DISTANCES", 60)  # several pieces
    normal, others = patches(9, 0), patches(5, 1)
    found = bank(normal, aligned).surprise(others)
    assert found.shape == (5, 2, 3)
    for n, i, j in np.ndindex(5, 2, 3):
        reference = normal[:, i, j] if aligned else normal.reshape(-1, 4)
        assert float(found[n, i, j]) == pytest.approx(surprise_of(others[n, i, j].numpy(), reference.numpy(), 2), 1e-4)


@pytest.mark.parametrize("aligned", [True, False])
def test_a_patch_of_the_bank_is_not_its_own_neighbour(aligned: bool) -> None:
    normal = patches(9, 0)
    found = bank(normal, aligned).surprise(normal)
    for n, i, j in np.ndindex(9, 2, 3):
        if aligned:
            rest = np.delete(normal[:, i, j].numpy(), n, axis=0)
        else:
            rest = np.delete(normal.reshape(-1, 4).numpy(), (n * 2 + i) * 3 + j, axis=0)
        assert float(found[n, i, j]) == pytest.approx(surprise_of(normal[n, i, j].numpy(), rest, 2), 1e-4)


def test_an_image_is_compared_with_entire_images() -> None:
    normal, others = patches(9, 0), patches(5, 1)
    found = bank(normal, True).image_surprise(others)
    for n in range(5):
        expected = surprise_of(others[n].flatten().numpy(), normal.flatten(1).numpy(), 2) / 6
        assert float(found[n]) == pytest.approx(expected, 1e-4)
    assert (bank(normal, True).image_surprise(normal) > 0.01).all(), "an image is not its own neighbour"


def test_patches_that_are_empty_in_all_images_do_not_surprise() -> None:
    normal = patches(9, 0)
    normal[:, 0, 0] = 0
    assert (bank(normal, True).surprise(normal)[:, 0, 0] == 0).all()


def test_a_bank_holds_no_more_than_its_size() -> None:
    assert bank(patches(9, 0), True, size=4).patches.shape == (6, 4, 4)
    assert bank(patches(9, 0), False, size=4).patches.shape == (1, 4, 4)


def test_a_bank_of_one_patch_and_fewer_patches_than_neighbours() -> None:
    one = bank(patches(1, 0), True, neighbours=5)
    assert (one.surprise(patches(1, 0)) < 1e-6).all()
    assert one.surprise(patches(3, 1)).isfinite().all()
    few = bank(patches(3, 0), True, neighbours=5)
    assert few.surprise(patches(2, 1)).isfinite().all()
