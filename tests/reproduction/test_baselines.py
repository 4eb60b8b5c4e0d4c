"""The baselines, compared with their formulas."""

from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from scipy import sparse

import whatwhere as ww
from reproduction import baselines, whitening
from reproduction.deskew import deskew, deskewed
from reproduction.jobs import DataSpec
from reproduction.whitening import fit_whitening, layer_columns, side_by_side
from whatwhere.data import Images, load
from whatwhere.errors import RunError, SpecError


@pytest.fixture
def digits():
    return DataSpec("digits", limit=80).load()


def test_pixels_are_of_unit_length(digits):
    x, x_test = baselines.RawPixels().describe(*digits)
    assert x.shape == x_test.shape == (80, 784)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, rtol=1e-5)


def test_columns_are_standardised_by_the_training_images_alone():
    rng = np.random.default_rng(0)
    x, x_test = (
        rng.normal(3, 5, (200, 4)).astype(np.float32),
        rng.normal(0, 1, (50, 4)).astype(np.float32),
    )
    x[:, 2] = 7.0
    training, test = (Images(part[:, None, :, None], None, "columns") for part in (x, x_test))
    y, describe = baselines.standardise(lambda images: images[:].flatten(1).numpy(), training)
    y_test = describe(test)
    np.testing.assert_allclose(y.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(y.std(0), [1, 1, 0, 1], rtol=1e-5)
    np.testing.assert_allclose(
        y_test[:, 0], (x_test[:, 0] - x[:, 0].mean()) / x[:, 0].std(), rtol=1e-4, atol=1e-5
    )


def test_whitened_patches_have_the_identity_as_covariance():
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(5000, 6, generator=generator) @ torch.randn(6, 6, generator=generator) + 2
    mean, whiten = baselines.zca(points, 1e-9)
    covariance = ((points - mean) @ whiten).T.cov()
    torch.testing.assert_close(covariance, torch.eye(6), atol=2e-3, rtol=0)
    torch.testing.assert_close(whiten, whiten.T, atol=1e-5, rtol=1e-4)


def test_lloyd_ends_where_every_centroid_is_the_mean_of_its_points():
    generator = torch.Generator().manual_seed(1)
    points = torch.randn(300, 3, generator=generator)
    centroids = baselines.lloyd(points, 5, 100, generator)
    nearest = torch.cdist(points, centroids).argmin(1)
    for k in range(5):
        torch.testing.assert_close(centroids[k], points[nearest == k].mean(0), atol=1e-4, rtol=1e-4)


def test_the_triangle_is_the_distance_below_the_average_one():
    x, centroids = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    # distances 5 and 1
    torch.testing.assert_close(baselines.triangle(x, centroids), torch.tensor([[0.0, 2.0]]))


def test_k_means_averages_the_answers_of_all_patches_on_a_grid(digits, monkeypatch):
    monkeypatch.setattr(baselines, "standardise", lambda rows, training: (rows(training), rows))
    method = baselines.KMeans(centroids=5, patches=500, iterations=2, patch=5, grid=2)
    monkeypatch.setattr(
        baselines, "triangle", lambda x, centroids: torch.full((*x.shape[:-1], len(centroids)), 3.0)
    )
    x, _ = method.describe(*digits)
    assert x.shape == (80, 5 * 2 * 2)
    np.testing.assert_allclose(x, 3, rtol=1e-6)


def test_the_same_seed_gives_the_same_rows(digits):
    method = baselines.KMeans(centroids=8, patches=500, iterations=3)
    first, again = (method.describe(*digits)[0] for _ in range(2))
    np.testing.assert_allclose(first, again, atol=1e-4)  # a GPU adds in another order every time
    other = replace(method, seed=1).describe(*digits)[0]
    assert np.abs(first - other).max() > 0.1


def test_every_baseline_has_its_name_and_default_settings():
    for name, kind in baselines.BASELINES.items():
        assert kind().name == name
        assert tuple(sorted(kind.C)) == kind.C


@pytest.mark.skipif(find_spec("kymatio") is not None, reason="kymatio is installed here")
def test_scattering_says_why_it_cannot_run(digits):
    with pytest.raises(
        RunError, match=r"'scattering' cannot run here: kymatio 0\.3 .*reproduction/README\.md"
    ):
        baselines.Scattering().describe(*digits)


# Upright images: moments before and after, and digits that stay digits ----------------------------


def moments(image: np.ndarray) -> tuple[float, float, float]:
    """Mean row, mean column and lean (columns per row) of the ink."""
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    row, column = np.average(rows, weights=image), np.average(columns, weights=image)
    covariance = np.average((rows - row) * (columns - column), weights=image)
    return row, column, covariance / np.average((rows - row) ** 2, weights=image)


@pytest.mark.parametrize("lean", [-0.6, 0.3])
def test_a_leaning_bar_comes_upright(lean: float) -> None:
    rows, columns = torch.meshgrid(torch.arange(21.0), torch.arange(25.0), indexing="ij")
    bar = torch.exp(-((columns - 11 - lean * (rows - 9)) ** 2) / 4) * ((rows - 9).abs() < 6)
    assert moments(bar.numpy())[2] == pytest.approx(lean, abs=0.02)
    row, column, after = moments(deskew(bar[None, None])[0, 0].numpy())
    assert after == pytest.approx(0, abs=0.02)
    assert (row, column) == (pytest.approx(10, abs=0.1), pytest.approx(12, abs=0.1))


def test_digits_lean_less_and_an_empty_image_stays_empty() -> None:
    digits = load("digits")
    before = [abs(moments(image[0])[2]) for image in digits[:50].numpy()]
    after = [abs(moments(image[0])[2]) for image in deskew(digits[:50]).numpy()]
    assert np.mean(after) < 0.1 * np.mean(before)
    assert not deskew(torch.zeros(1, 1, 8, 8)).any()


def test_upright_images_keep_labels_and_order() -> None:
    digits = load("digits").subset(np.arange(30))
    upright = deskewed(digits)
    assert upright.labels is not None
    assert (upright.labels == digits.labels).all()
    assert torch.equal(upright[7], deskew(digits[:])[7])


# Whitened rows against NumPy's eigenvectors, whatever holds them ----------------------------------


BLOCKS = (3, 5)


def rows(count: int, seed: int) -> np.ndarray:
    """Rows whose columns are correlated and far from 0; the last one never changes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)) @ np.random.default_rng(9).normal(size=(8, 8)) + np.arange(8.0)
    x[:, -1] = 0.5
    return x.astype(np.float32)


def truth(training: np.ndarray, x: np.ndarray, share: float) -> np.ndarray:
    """The inner products of whitened rows: each block by the eigenvectors of its covariance, of
    the same length."""
    products = 0
    for columns in np.split(np.arange(8), np.cumsum(BLOCKS)[:-1]):
        part, mean = (
            training[:, columns].astype(np.float64),
            training[:, columns].mean(0, dtype=np.float64),
        )
        covariance = np.cov(part.T, bias=True)
        values, vectors = np.linalg.eigh(covariance)
        white = (x[:, columns] - mean) @ (
            vectors / np.sqrt(values + share * np.trace(covariance) / len(columns))
        )
        white /= np.linalg.norm(white, axis=1, keepdims=True)
        products = products + white @ white.T / len(BLOCKS)
    return np.asarray(products)


@pytest.mark.parametrize("holder", [np.asarray, sparse.csr_array, torch.from_numpy])
@pytest.mark.parametrize("share", [0.01, 2.0])
def test_rows_are_decorrelated_block_by_block(holder, share, monkeypatch):
    monkeypatch.setattr(whitening, "BATCH", 16)  # several batches, the last one shorter
    training, x = rows(100, 0), rows(30, 1)
    white = fit_whitening(holder(training), share, BLOCKS)(holder(x))
    np.testing.assert_allclose(white @ white.T, truth(training, x, share), atol=2e-5)
    assert white.dtype == torch.float32


def test_without_blocks_all_columns_are_one():
    x = rows(100, 0)
    np.testing.assert_array_equal(fit_whitening(x, 1.0)(x), fit_whitening(x, 1.0, [8])(x))


def test_what_cannot_be_whitened_is_an_error():
    x = rows(20, 0)
    with pytest.raises(SpecError, match="blocks of 7 columns; the rows have 8"):
        fit_whitening(x, 1.0, [3, 4])
    with pytest.raises(SpecError, match=r"share = 0\.0; expected a finite number above 0"):
        fit_whitening(x, 0.0)


@pytest.mark.parametrize(
    "kinds", [("dense", "dense"), ("dense", "sparse"), ("sparse", "sparse"), ("tensor", "tensor")]
)
def test_rows_side_by_side_are_of_unit_length_whatever_holds_them(kinds):
    make = {"dense": np.asarray, "sparse": sparse.csr_array, "tensor": torch.from_numpy}
    unit = rows(6, 0) / np.linalg.norm(rows(6, 0), axis=1, keepdims=True)
    parts = [unit, unit[:, ::-1].copy()]
    found = side_by_side([make[kind](part) for kind, part in zip(kinds, parts, strict=True)])
    assert isinstance(
        found, {"tensor": torch.Tensor, "sparse": sparse.csr_array, "dense": np.ndarray}[kinds[1]]
    )
    found = found.toarray() if sparse.issparse(found) else np.asarray(found)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found * np.sqrt(2), np.concatenate(parts, 1), rtol=1e-6)


def test_the_columns_of_each_layer_are_those_of_the_paper():
    model = ww.DeconvNet(ww.ModelSpec.paper())
    assert layer_columns(model, ww.DescriptorSpec(layers=(1, 2)), 28, 28) == (9216, 4800)
    assert layer_columns(model, ww.DescriptorSpec(), 28, 28) == (4800,)
