"""Denoising by a dictionary, and learning one from the noisy picture."""

import pytest
import torch

from pictures_to_restore import discs, error, noisy
from whatwhere.restoration import Dictionary, denoise, learn_dictionary, load_dictionary
from whatwhere.restoration.dictionary import fit_atoms

DICTIONARY = load_dictionary()


def test_the_shipped_atoms_have_mean_0_and_length_1() -> None:
    torch.testing.assert_close(DICTIONARY.atoms.mean((1, 2)), torch.zeros(len(DICTIONARY.atoms)), rtol=0, atol=1e-3)
    torch.testing.assert_close(
        DICTIONARY.atoms.flatten(1).norm(dim=1), torch.ones(len(DICTIONARY.atoms)), rtol=0, atol=1e-3
    )


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.29])
def test_the_result_is_nearer_to_the_truth(sigma: float) -> None:
    truth = discs(50, 60)[None, None]
    given = noisy(truth, sigma)
    for level in (sigma, None):
        assert error(denoise(DICTIONARY, given, level), truth) < 0.75 * error(given, truth)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 30), (7, 9), (40, 17)])
def test_every_size(height: int, width: int) -> None:
    given = noisy(discs(height, width), 0.05)[None, None]
    result = denoise(DICTIONARY, given, 0.05)
    assert result.shape == given.shape
    assert result.isfinite().all()


def test_the_mean_over_patches_is_that_of_the_definition() -> None:
    """One atom that fits nothing: every patch is its mean, with the same weight."""
    plane, K = discs(12, 13), 3
    none = Dictionary(torch.zeros(1, K, K).index_fill(1, torch.tensor([0]), 1))
    padded = torch.nn.functional.pad(plane[None], (K - 1,) * 4, mode="reflect")[0]
    means = padded.unfold(0, K, 1).unfold(1, K, 1).mean((2, 3))
    expected = means.unfold(0, K, 1).unfold(1, K, 1).mean((2, 3))
    torch.testing.assert_close(none.denoise(plane, 1e3), expected)


def test_atoms_are_fitted_to_what_they_have_to_explain() -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(6, 9, generator=random), dim=1)
    z = torch.randn(400, 6, generator=random) * (torch.rand(400, 6, generator=random) < 0.3)
    atoms = torch.nn.functional.normalize(truth + 0.3 * torch.randn(6, 9, generator=random), dim=1)
    for _ in range(20):
        atoms = fit_atoms(atoms, z.T @ z, z.T @ (z @ truth))
    torch.testing.assert_close(atoms, truth, rtol=0, atol=1e-3)


def test_a_dictionary_learned_from_noisy_stripes_denoises_them_better() -> None:
    y, x = torch.meshgrid(torch.arange(80.0), torch.arange(80.0), indexing="ij")
    truth = (0.5 + 0.4 * torch.sign(torch.sin(0.9 * x + 0.5 * y)))[None, None]
    given = noisy(truth, 0.2)
    own = learn_dictionary(DICTIONARY, given[0], 0.2)
    assert error(denoise(own, given, 0.2), truth) < 0.8 * error(denoise(DICTIONARY, given, 0.2), truth)
