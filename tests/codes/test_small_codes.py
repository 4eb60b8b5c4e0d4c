"""Codes in few bits: how far they are from exact ones, and files that are read in parts."""

from pathlib import Path

import numpy as np
import pytest
import torch

from examples import SPECS, random_images
from whatwhere.codes import files as codes_module
from whatwhere.codes.files import join_blocks, load_codes, write_block
from whatwhere.codes.rows import block_arrays, code_rows
from whatwhere.codes.small_codes import SMALL, angle, expand, shrink
from whatwhere.errors import ImageError
from whatwhere.inference import infer
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec


def rows_of(model: DeconvNet, size: tuple[int, int] = (9, 8), seed: int = 0, exact: bool = True):
    images = random_images(model.spec, 4, *size, seed=seed).to(model.dtype)
    solution = infer(model, images, InferenceSpec(lam=2.0, steps=20), engine="reference")
    return code_rows(model, solution.latents, (model.spec.channels, *size), exact=exact)


def test_features_are_off_by_at_most_half_a_level() -> None:
    model = DeconvNet(SPECS["2 layers"])
    exact = block_arrays(model, [rows_of(model)], exact=True)
    small = expand(block_arrays(model, [rows_of(model)], exact=False))

    def dense(arrays):
        values = np.zeros((4, int(arrays["features_shape"][0].prod())), np.float32)
        for i in range(4):
            first, last = arrays["features_indptr"][i : i + 2]
            places = arrays["features_indices"][first:last]
            values[i, places] = arrays["features_values"][first:last]
        return values

    largest = np.abs(dense(exact)).max(1, keepdims=True)
    error = np.abs(dense(exact) - dense(small))
    assert (error <= largest / (2 * SMALL.levels) * 1.001).all()
    assert error.max() > 0, "it is not the exact code"


def test_weights_of_two_elements_are_off_by_at_most_half_an_angle() -> None:
    """Whatever μ and γ are, only their product matters to two elements."""
    generator = np.random.default_rng(0)
    mu = generator.uniform(-0.5, 0.5, (500, 2)).astype(np.float32)
    gamma = np.exp(generator.uniform(-4, 4.6, (500, 2))).astype(np.float32)
    arrays = {
        "image_shape": np.array([[1, 50, 10]]),
        "features_shape": np.array([[1, 50, 10]]),
        "features_indptr": np.array([0, 1]),
        "features_indices": np.array([3], np.int32),
        "features_values": np.array([2.0], np.float32),
        "where1_shape": np.array([[1, 50, 10]]),
        "where1_indptr": np.array([0, 500]),
        "where1_indices": np.arange(500, dtype=np.int32),
        "mu1": mu,
        "gamma1": gamma,
    }
    back = expand(shrink(arrays, [True], [np.array([0.5, 0.5])]))

    def weights(mu, gamma):
        x = np.array([-0.5, 0.5])
        q = np.exp(-gamma[..., None].astype(float) * (x - mu[..., None]) ** 2 / 2)
        return np.sqrt(q / q.sum(-1, keepdims=True))

    error = np.abs(weights(mu, gamma) - weights(back["mu1"], back["gamma1"]))
    assert error.max() <= np.pi / 4 / SMALL.angles / 2 + 1e-6
    other = expand(shrink(arrays, [False], [np.array([0.5, 0.5])]))
    np.testing.assert_allclose(other["mu1"], mu, atol=0.5 / 127)
    np.testing.assert_allclose(other["gamma1"], gamma, rtol=0.023)


def test_equal_weights_have_the_angle_0() -> None:
    assert float(angle(torch.zeros(1))) == pytest.approx(0, abs=1e-6)
    assert float(angle(torch.tensor(1e9))) == pytest.approx(np.pi / 4, abs=1e-5)


def write_blocks(folder: Path, model: DeconvNet, seeds: list[int]) -> Path:
    files = []
    for seed in seeds:
        files.append(folder / f"{seed}.npz")
        with open(files[-1], "wb") as file:
            arrays = block_arrays(model, [rows_of(model, seed=seed)], exact=False)
            write_block(file, arrays, compress=True)
    join_blocks(folder / "codes.npz", files, [4] * len(seeds))
    return folder / "codes.npz"


def test_one_image_is_read_without_the_other_blocks(tmp_path, monkeypatch) -> None:
    model = DeconvNet(SPECS["2 layers"])
    codes = load_codes(write_blocks(tmp_path, model, [0, 1, 2]))
    read = []
    checked = codes_module._checked_block
    monkeypatch.setattr(codes_module, "_checked_block", lambda *a: (read.append(1), checked(*a))[1])
    assert codes[9].nonzeros > 0
    assert codes[10].nonzeros > 0
    assert read == [1]
    assert len(codes) == 12
    assert codes.features.shape[0] == 12


def test_a_damaged_block_is_an_error(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"])
    path = write_blocks(tmp_path, model, [0, 1])
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half : half + 200] = bytes(200)
    path.write_bytes(content)
    with pytest.raises(ImageError, match="not a usable file of codes"):
        _ = load_codes(path).features


def test_pools_of_other_sizes_are_decoded_too() -> None:
    model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=3, filter_size=3, pool_size=3),)))
    arrays = expand(block_arrays(model, [rows_of(model, (11, 9), exact=False)], exact=False))
    assert arrays["mu1"].shape == arrays["gamma1"].shape == (len(arrays["where1_indices"]), 2)
    assert np.abs(arrays["mu1"]).max() <= 1.0
