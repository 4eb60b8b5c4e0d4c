"""`whatwhere encode` as a person uses it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_run as tiny
import whatwhere as ww
from tiny_run import PLAIN, whatwhere
from whatwhere.errors import ImageError, RunError, SpecError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("encode") / "run")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    pixels, labels = tiny.bars(37, seed=1)
    np.savez(tmp_path / "bars.npz", images=pixels, labels=labels)
    return tmp_path / "bars.npz"


def test_features_pooling_variables_and_reconstruction(run: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "codes.npz"
    told = whatwhere("encode", run, images, "--out", out, "--where", "--reconstruction", "--json", *PLAIN)
    pixels, labels = tiny.bars(37, seed=1)
    v = torch.from_numpy(pixels)[:, None]
    model = ww.load(run / "model.safetensors")
    solution = ww.infer(model, v, tiny.recipe().inference, engine="reference")
    with np.load(out) as found:
        assert set(found) == {"features", "mu1", "gamma1", "mu2", "gamma2", "reconstruction", "labels"}
        np.testing.assert_allclose(found["features"], solution.features, atol=1e-6)
        np.testing.assert_allclose(found["mu1"], solution.latents.pooling_params[0].mu, atol=1e-5)
        np.testing.assert_allclose(found["gamma2"], solution.latents.pooling_params[1].gamma, rtol=1e-4)
        weights = model.weights(solution.latents.pooling_params, 10, 10)
        np.testing.assert_allclose(found["reconstruction"], model.reconstruct(solution.features, weights), atol=1e-5)
        np.testing.assert_array_equal(found["labels"], labels)
        shapes = {name: list(found[name].shape) for name in found}
    assert json.loads(told) == {"file": str(out), "engine": "reference", "arrays": shapes}
    assert [path.name for path in out.parent.iterdir()] == ["codes.npz"]  # nothing is left behind


def test_features_alone_unless_asked(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(5)[0])
    told = whatwhere("encode", run, tmp_path / "bars.npy", "--out", tmp_path / "codes.npz", *PLAIN)
    with np.load(tmp_path / "codes.npz") as found:
        assert list(found) == ["features"]
    assert "features [5, 4, 4, 4]" in told
    assert "reference engine" in told


def test_what_cannot_be_encoded_is_refused(run: Path, images: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "codes.npz", *PLAIN)
    with pytest.raises(RunError, match="there is no such folder"):
        whatwhere("encode", tmp_path / "nowhere", images, *out)
    with pytest.raises(RunError, match=r"there is no recipe.toml and no model.safetensors in it"):
        whatwhere("encode", tmp_path, images, *out)
    with pytest.raises(ImageError, match="neither a file or folder nor the name of a set"):
        whatwhere("encode", run, tmp_path / "none.npy", *out)
    np.save(tmp_path / "colour.npy", np.zeros((2, 3, 10, 10), np.float32))
    with pytest.raises(ImageError, match="images with 3 channels were given"):
        whatwhere("encode", run, tmp_path / "colour.npy", *out)
    with pytest.raises(SpecError, match="device 'nonsense' was given"):
        whatwhere("encode", run, images, "--out", tmp_path / "codes.npz", "--device", "nonsense")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written"):
        whatwhere("encode", run, images, "--out", tmp_path / "file" / "codes.npz", *PLAIN)
    assert not (tmp_path / "codes.npz").exists()
