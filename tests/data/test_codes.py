"""Sparse codes in a file: NumPy and SciPy read them, and the model decodes them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from examples import SPECS, random_images
from whatwhere.data.codes import load_codes
from whatwhere.data.codes_writer import CodesWriter
from whatwhere.data.npz_writer import open_npz
from whatwhere.errors import ImageError
from whatwhere.inference import infer
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.spec import InferenceSpec, InputSpec, LayerSpec, ModelSpec

STAGE = ModelSpec(
    layers=(LayerSpec(maps=4, filter_size=3),), channels=2, input=InputSpec(kind="onoff", sigma=1.0, contrast=0.5)
)


def solve(model: DeconvNet, sizes: list[tuple[int, int]]) -> list[Solution]:
    images = [random_images(model.spec, 2, *size, seed=i).to(model.dtype) for i, size in enumerate(sizes)]
    return [infer(model, v, InferenceSpec(lam=2.0, steps=20), engine="reference") for v in images]


def write(path: Path, model: DeconvNet, solutions: list[Solution], sizes: list[tuple[int, int]], where: bool) -> None:
    with open_npz(path) as npz:
        writer = CodesWriter(npz, where=where)
        for solution, size in zip(solutions, sizes, strict=True):
            for code, image in zip(
                model.at(*size).sparse(solution.latents, where=where), solution.reconstruction, strict=True
            ):
                writer.add(code, (model.spec.channels, *size), image)
        npz.put("labels", np.arange(len(writer)))
        writer.finish()


@pytest.mark.parametrize("spec", [SPECS["2 layers"], STAGE], ids=["2 layers", "onoff"])
@pytest.mark.parametrize("sizes", [[(9, 8)], [(9, 8), (12, 7)]], ids=["one size", "two sizes"])
def test_codes_are_decoded_to_the_reconstruction(tmp_path: Path, spec: ModelSpec, sizes: list[tuple[int, int]]) -> None:
    model = DeconvNet(spec)
    solutions = solve(model, sizes)
    write(tmp_path / "codes.npz", model, solutions, sizes, where=True)
    codes = load_codes(tmp_path / "codes.npz")
    features = [p for solution in solutions for p in solution.features]
    images = [image for solution in solutions for image in solution.reconstruction]
    assert len(codes) == len(features)
    for i, (p, image) in enumerate(zip(features, images, strict=True)):
        assert torch.equal(codes.latents(i).p[0], p)
        torch.testing.assert_close(codes.decode(model, i), image, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(codes.labels, np.arange(len(features)))
    stored = np.concatenate([image.reshape(-1).numpy() for image in images])
    np.testing.assert_array_equal(codes.arrays["reconstruction"].reshape(-1), stored)
    if len(sizes) == 1:
        assert codes.arrays["reconstruction"].shape == (2, spec.channels, 9, 8)


def test_numpy_and_scipy_read_the_features(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"])
    (solution,) = solve(model, [(9, 8)])
    write(tmp_path / "codes.npz", model, [solution], [(9, 8)], where=False)
    with np.load(tmp_path / "codes.npz", allow_pickle=False) as file:
        first, last = file["features_indptr"][1:3]
        p = np.zeros(file["features_shape"][1].prod(), np.float32)
        p[file["features_indices"][first:last]] = file["features_values"][first:last]
        np.testing.assert_array_equal(p.reshape(file["features_shape"][1]), solution.features[1])
        assert not any(name.startswith(("mu", "where", "low")) for name in file)
    codes = load_codes(tmp_path / "codes.npz")
    np.testing.assert_array_equal(codes.features, solution.features)
    np.testing.assert_array_equal(codes.to_scipy().toarray(), solution.features.flatten(1))
    with pytest.raises(ImageError, match="without pooling variables it cannot be decoded; encode with --where"):
        codes.decode(model, 0)


def test_codes_without_a_feature(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["1 layer"])
    solution = infer(model, torch.zeros(1, 1, 8, 8), InferenceSpec(steps=2), engine="reference")
    write(tmp_path / "codes.npz", model, [solution], [(8, 8)], where=True)
    codes = load_codes(tmp_path / "codes.npz")
    assert codes[0].nonzeros == 0
    assert codes.decode(model, 0).count_nonzero() == 0


def test_codes_of_several_sizes_are_not_one_array(tmp_path: Path) -> None:
    model, sizes = DeconvNet(SPECS["1 layer"]), [(9, 8), (12, 7)]
    write(tmp_path / "codes.npz", model, solve(model, sizes), sizes, where=False)
    with pytest.raises(ImageError, match="codes of several sizes; dense features needs one"):
        _ = load_codes(tmp_path / "codes.npz").features


def test_files_that_are_not_codes_raise(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="cannot be read: No such file"):
        load_codes(tmp_path / "none.npz")
    (tmp_path / "noise.npz").write_bytes(b"PK\x03\x04 noise")
    with pytest.raises(ImageError, match=r"not a valid \.npz file"):
        load_codes(tmp_path / "noise.npz")
    np.savez(tmp_path / "other.npz", features=np.zeros((2, 3, 4, 4)))
    with pytest.raises(ImageError, match="not a file of sparse codes"):
        load_codes(tmp_path / "other.npz")
    model = DeconvNet(SPECS["1 layer"])
    write(tmp_path / "codes.npz", model, solve(model, [(9, 8)]), [(9, 8)], where=True)
    with np.load(tmp_path / "codes.npz") as file:
        arrays = dict(file)
    for name, values in (
        ("features_indices", arrays["features_indices"] + 10_000),
        ("features_indices", -1 - arrays["features_indices"]),
        ("features_indptr", arrays["features_indptr"] + 1),
        ("mu1", arrays["mu1"][1:]),
        ("where1_shape", arrays["where1_shape"][:1]),
    ):
        np.savez(tmp_path / "bad.npz", **{**arrays, name: values})
        with pytest.raises(ImageError, match="not a valid file of codes"):
            load_codes(tmp_path / "bad.npz")
