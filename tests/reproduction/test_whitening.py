"""Whitened rows against NumPy's eigenvectors, whatever holds them."""

import numpy as np
import pytest
import torch
from scipy import sparse

import whatwhere as ww
from reproduction import whitening
from reproduction.whitening import fit_whitening, layer_columns, side_by_side
from whatwhere.errors import SpecError

BLOCKS = (3, 5)


def rows(count: int, seed: int) -> np.ndarray:
    """Rows whose columns are correlated and far from 0; the last one never changes."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)) @ np.random.default_rng(9).normal(size=(8, 8)) + np.arange(8.0)
    x[:, -1] = 0.5
    return x.astype(np.float32)


def truth(training: np.ndarray, x: np.ndarray, share: float) -> np.ndarray:
    """The inner products of whitened rows: each block by the eigenvectors of its covariance, of the same length."""
    products = 0
    for columns in np.split(np.arange(8), np.cumsum(BLOCKS)[:-1]):
        part, mean = training[:, columns].astype(np.float64), training[:, columns].mean(0, dtype=np.float64)
        covariance = np.cov(part.T, bias=True)
        values, vectors = np.linalg.eigh(covariance)
        white = (x[:, columns] - mean) @ (vectors / np.sqrt(values + share * np.trace(covariance) / len(columns)))
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
    with pytest.raises(SpecError, match="blocks of 7 columns were given; the rows have 8"):
        fit_whitening(x, 1.0, [3, 4])
    with pytest.raises(SpecError, match=r"share = 0\.0 was given; expected a finite number above 0"):
        fit_whitening(x, 0.0)


@pytest.mark.parametrize("kinds", [("dense", "dense"), ("dense", "sparse"), ("sparse", "sparse"), ("tensor", "tensor")])
def test_rows_side_by_side_are_of_unit_length_whatever_holds_them(kinds):
    make = {"dense": np.asarray, "sparse": sparse.csr_array, "tensor": torch.from_numpy}
    unit = rows(6, 0) / np.linalg.norm(rows(6, 0), axis=1, keepdims=True)
    parts = [unit, unit[:, ::-1].copy()]
    found = side_by_side([make[kind](part) for kind, part in zip(kinds, parts, strict=True)])
    assert isinstance(found, {"tensor": torch.Tensor, "sparse": sparse.csr_array, "dense": np.ndarray}[kinds[1]])
    found = found.toarray() if sparse.issparse(found) else np.asarray(found)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(found * np.sqrt(2), np.concatenate(parts, 1), rtol=1e-6)


def test_the_columns_of_each_layer_are_those_of_the_paper():
    model = ww.DeconvNet(ww.ModelSpec.paper())
    assert layer_columns(model, ww.DescriptorSpec(layers=(1, 2)), 28, 28) == (9216, 4800)
    assert layer_columns(model, ww.DescriptorSpec(), 28, 28) == (4800,)
