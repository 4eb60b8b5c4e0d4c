import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import whatwhere as ww
from examples import SPECS
from whatwhere.errors import RunError
from whatwhere.model import DeconvNet


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SPECS)
def test_a_model_comes_back_as_it_was(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = DeconvNet(SPECS[name], seed=4, dtype=dtype)
    ww.save(model, tmp_path / "model.safetensors")
    back = ww.load(tmp_path / "model.safetensors")
    assert back.spec == model.spec
    assert back.dtype == dtype
    for old, new in zip(model.filters + model.connectivity, back.filters + back.connectivity, strict=True):
        assert torch.equal(old, new)
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]  # nothing left aside


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_damaged_file_is_refused(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ww.save(DeconvNet(SPECS["2 layers"]), path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(RunError, match="not a usable model file"):
        ww.load(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(1)}, path, metadata={"format": "whatwhere model 99"})
    with pytest.raises(RunError, match=r"whatwhere model 99.*expected 'whatwhere model 2'"):
        ww.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(RunError, match="no format at all"):
        ww.load(path)


def saved_with(tmp_path: Path, spec: object, filters: torch.Tensor) -> Path:
    tensors = {"layer1.filters": filters, "layer1.connectivity": torch.ones(1, 3, dtype=torch.bool)}
    path = tmp_path / "model.safetensors"
    save_file(tensors, path, metadata={"format": "whatwhere model 1", "spec": json.dumps(spec)})
    return path


def test_filters_that_do_not_fit_the_spec_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"\[1, 3, 4, 4\].*its spec says \[1, 3, 5, 5\]"):
        ww.load(saved_with(tmp_path, {"layers": [{"maps": 3}]}, torch.zeros(1, 3, 4, 4)))


def test_filters_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="not finite"):
        ww.load(saved_with(tmp_path, {"layers": [{"maps": 3}]}, torch.full((1, 3, 5, 5), torch.nan)))


def test_a_spec_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"mpas is not a setting; did you mean 'layers\.1\.maps'"):
        ww.load(saved_with(tmp_path, {"layers": [{"mpas": 3}]}, torch.zeros(1, 3, 5, 5)))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"nowhere\.safetensors.*no such file"):
        ww.load(tmp_path / "nowhere.safetensors")


def test_a_run_folder_stands_for_its_model(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"], seed=4)
    ww.save(model, tmp_path / "model.safetensors")
    assert torch.equal(ww.load(tmp_path).filters[1], model.filters[1])


@pytest.mark.parametrize(
    ("path", "reason"),
    [("", "an empty path was given"), ("x" * 300, "no such file"), ("/dev/zero", "no such file")],
)
def test_a_path_that_is_no_file_raises(path: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        ww.load(path)
