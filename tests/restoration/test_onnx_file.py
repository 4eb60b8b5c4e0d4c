"""The denoiser as an ONNX file, run by onnxruntime."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pictures_to_restore import noisy, picture
from whatwhere.errors import MissingExtra
from whatwhere.restoration import RestorationSpec, load_denoiser, save_onnx

DENOISER = load_denoiser()


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> object:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("onnx") / "denoiser.onnx"
    save_onnx(DENOISER, path, RestorationSpec(quality=8))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("height", "width", "sigma"), [(40, 44, 0.1), (33, 97, 0.05), (9, 16, 0.02), (2, 2, 0.29)]
)
def test_the_file_denoises_as_the_denoiser_does(
    session: object, height: int, width: int, sigma: float
) -> None:
    y = noisy(picture(height, width), sigma)[0, 0]
    inputs = {"picture": y.numpy(), "sigma": np.array([sigma], np.float32)}
    (clean,) = session.run(None, inputs)  # type: ignore[attr-defined]
    expected = DENOISER.denoise(y, sigma, 8)
    torch.testing.assert_close(torch.from_numpy(clean), expected, atol=1e-5, rtol=0)
    assert not torch.equal(expected, y)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(MissingExtra, match="pip install onnx"):
        save_onnx(DENOISER, tmp_path / "denoiser.onnx")
    assert not list(tmp_path.iterdir())
