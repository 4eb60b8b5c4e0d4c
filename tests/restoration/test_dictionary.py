"""Denoising by a dictionary, learned from the noisy picture or not, and the planes of a picture in
colour."""

import numpy as np
import pytest
import torch

from pictures_to_restore import discs, error, noisy
from raising import raises
from whatwhere.errors import InvalidSetting, SpecError
from whatwhere.restoration import (
    RestorationSpec,
    denoise,
    inpaint,
    load_denoiser,
    load_dictionary,
)
from whatwhere.restoration.dictionary import denoise_plane, fit_atoms
from whatwhere.restoration.planes import (
    OPPONENT,
    PLANE_NOISE,
    from_opponent,
    restore_planes,
    to_opponent,
)
from whatwhere.restoration.pursuit import pursue

LEARN = RestorationSpec(learn=True)


def test_the_shipped_atoms_have_mean_0_and_length_1() -> None:
    atoms = load_dictionary()
    torch.testing.assert_close(atoms.mean((1, 2)), torch.zeros(len(atoms)), rtol=0, atol=1e-3)
    torch.testing.assert_close(
        atoms.flatten(1).norm(dim=1), torch.ones(len(atoms)), rtol=0, atol=1e-3
    )


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 30), (7, 9), (40, 17)])
def test_every_size(height: int, width: int) -> None:
    given = noisy(discs(height, width), 0.05)
    result = denoise_plane(load_dictionary(), given, 0.05)
    assert result.shape == given.shape
    assert result.isfinite().all()


def test_the_mean_over_patches_is_that_of_the_definition() -> None:
    """One atom that fits nothing: every patch is its mean, with the same weight."""
    plane, K = discs(12, 13), 3
    none = torch.zeros(1, K, K).index_fill(1, torch.tensor([0]), 1)
    padded = torch.nn.functional.pad(plane[None], (K - 1,) * 4, mode="reflect")[0]
    means = padded.unfold(0, K, 1).unfold(1, K, 1).mean((2, 3))
    expected = means.unfold(0, K, 1).unfold(1, K, 1).mean((2, 3))
    torch.testing.assert_close(denoise_plane(none, plane, 1e3), expected)


def test_atoms_are_fitted_to_what_they_have_to_explain() -> None:
    random = torch.Generator().manual_seed(0)
    truth = torch.nn.functional.normalize(torch.randn(6, 9, generator=random), dim=1)
    z = torch.randn(400, 6, generator=random) * (torch.rand(400, 6, generator=random) < 0.3)
    atoms = torch.nn.functional.normalize(truth + 0.3 * torch.randn(6, 9, generator=random), dim=1)
    for _ in range(20):
        atoms = fit_atoms(atoms, z.T @ z, z.T @ (z @ truth))
    torch.testing.assert_close(atoms, truth, rtol=0, atol=1e-3)


def test_stripes_are_denoised_better_than_by_the_denoiser() -> None:
    y, x = torch.meshgrid(torch.arange(60.0), torch.arange(60.0), indexing="ij")
    truth = (0.5 + 0.4 * torch.sign(torch.sin(0.5 * x + 0.5 * y)))[None, None]
    given, done = noisy(truth, 0.2), list[int]()
    model = load_denoiser()
    own = denoise(given, model, 0.2, spec=LEARN, progress=done.append)
    # The denoiser keeps stripes as well, so that learning gains less on it than on atoms that know
    # nothing of them.
    assert error(own, truth) < 0.9 * error(denoise(given, model, 0.2), truth)
    assert error(own, truth) < 0.5 * error(denoise(given, load_dictionary(), 0.2), truth)
    assert sum(done) == 60 * 60
    assert torch.equal(denoise(given, model, 0.0, spec=LEARN), given)
    large = denoise(256 * given, model, 256 * 0.2, spec=LEARN) / 256  # without rounding
    assert (large - own).abs().max() < 1e-2, "it follows the units of the images"


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.29])
def test_without_pairs_the_result_is_nearer_to_the_truth(sigma: float) -> None:
    truth = discs(50, 60)[None, None]
    given, atoms = noisy(truth, sigma), load_dictionary()
    for level in (sigma, None):
        assert error(denoise(given, atoms, level), truth) < 0.75 * error(given, truth)
    assert torch.equal(
        denoise(given, atoms, sigma)[0, 0], denoise_plane(atoms, given[0, 0], sigma)
    ), "not learned"


def test_any_dictionary_can_be_given_and_learned_from() -> None:
    """Stripes are two waves of 8 pixels, which explain them better than atoms of photographs."""
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    truth = (0.5 + 0.4 * torch.sin(torch.pi / 4 * (x + y)))[None, None]
    waves = torch.stack([wave(torch.pi / 4 * (x + y)[:8, :8]) for wave in (torch.sin, torch.cos)])
    waves, given = waves / waves.flatten(1).norm(dim=1)[:, None, None], noisy(truth, 0.3)
    best = error(denoise(given, waves, 0.3), truth)
    assert best < 0.7 * error(denoise(given, load_dictionary(), 0.3), truth)
    start = torch.nn.functional.normalize(
        waves.flatten(1) + 0.5 * noisy(torch.zeros(2, 64), 0.125), dim=1
    )
    start = start.view_as(waves)
    assert error(denoise(given, start, 0.3, spec=LEARN), truth) < 0.9 * error(
        denoise(given, start, 0.3), truth
    )


def test_what_a_dictionary_cannot_do() -> None:
    image, known = torch.rand(1, 1, 8, 8), torch.ones(1, 1, 8, 8)
    for model, spec in ((load_denoiser(), LEARN), (load_dictionary(), None)):
        with pytest.raises(SpecError, match="A dictionary cannot inpaint"):
            inpaint(image, known, model, spec=spec)  # type: ignore[arg-type]
    with raises(InvalidSetting, given="a tensor [4, 9] as the model"):
        denoise(image, torch.rand(4, 9), 0.1)


# Brightness and differences of colour -------------------------------------------------------------


def test_planes_of_a_picture_are_from_0_to_1_and_grey_is_in_the_first() -> None:
    torch.manual_seed(0)
    images = torch.rand(2, 3, 4, 5)
    torch.testing.assert_close(from_opponent(to_opponent(images)), images)
    corners = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 3)[..., None, None]
    planes = to_opponent(corners)
    assert planes.amin((0, 2, 3)).tolist() == [0, 0, 0]
    torch.testing.assert_close(planes.amax((0, 2, 3)), torch.ones(3))
    grey = torch.full((1, 3, 2, 2), 0.3)
    torch.testing.assert_close(
        to_opponent(grey), torch.tensor([0.3, 0.5, 0.5])[:, None, None].expand(1, 3, 2, 2)
    )


def test_noise_stays_independent_with_the_standard_deviation_of_each_plane() -> None:
    covariance = OPPONENT @ OPPONENT.T
    torch.testing.assert_close(
        covariance, torch.tensor(PLANE_NOISE, dtype=torch.float64).square().diag()
    )


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


# Orthogonal matching pursuit against a literal one ------------------------------------------------


RANDOM = np.random.default_rng(0)
ATOMS = RANDOM.standard_normal((24, 16))
ATOMS /= np.linalg.norm(ATOMS, axis=1, keepdims=True)
PATCHES = RANDOM.standard_normal((40, 16))
PATCHES[0] = 0


def literal(patch: np.ndarray, goal: float, most: int) -> np.ndarray:
    """The atom that fits what is left best, then least squares, in float64."""
    code, support = np.zeros(len(ATOMS)), []
    while np.sum((patch - code @ ATOMS) ** 2) > goal and len(support) < most:
        support.append(int(np.argmax(np.abs(ATOMS @ (patch - code @ ATOMS)))))
        code[support] = np.linalg.lstsq(ATOMS[support].T, patch, rcond=None)[0]
    return code


@pytest.mark.parametrize(("goal", "most"), [(1.0, 12), (6.0, 12), (0.0, 4), (1e9, 4)])
def test_pursuit_agrees_with_the_definition(goal: float, most: int) -> None:
    expected = np.stack([literal(patch, goal, most) for patch in PATCHES])
    atoms = torch.from_numpy(ATOMS).float()
    patches = torch.from_numpy(PATCHES).float()
    found = pursue(atoms, patches, goal, most)
    assert ((found != 0).numpy() == (expected != 0)).all()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_copies_of_an_atom_do_no_harm() -> None:
    atoms = torch.eye(4).repeat(3, 1)
    patches = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    torch.testing.assert_close(pursue(atoms, patches, 1e-9, 10) @ atoms, patches)
