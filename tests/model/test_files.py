import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import whatwhere as ww
from examples import SPECS
from raising import raises
from whatwhere.errors import DamagedFilters, InvalidSetting, NoSuchRun, RunError, UnusableRunFile
from whatwhere.model import DeconvNet
from whatwhere.model.checksums import checksum
from whatwhere.model.files import FORMAT
from whatwhere.spec import LayerSpec, ModelSpec


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SPECS)
def test_a_model_comes_back_as_it_was(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = DeconvNet(SPECS[name], seed=4, dtype=dtype)
    ww.save(model, tmp_path / "model.safetensors")
    back = ww.load(tmp_path / "model.safetensors")
    assert back.spec == model.spec
    assert back.dtype == dtype
    for old, new in zip(
        model.filters + model.connectivity, back.filters + back.connectivity, strict=True
    ):
        assert torch.equal(old, new)
    assert [f.name for f in tmp_path.iterdir()] == ["model.safetensors"]  # nothing left aside


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_damaged_file_is_refused(keep: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ww.save(DeconvNet(SPECS["2 layers"]), path)
    path.write_bytes(path.read_bytes()[:keep])
    with raises(UnusableRunFile, kind="model file"):
        ww.load(path)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"x": torch.zeros(1)}, path, metadata={"format": "whatwhere model 99"})
    with raises(UnusableRunFile, kind="model file") as newer:
        ww.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with raises(UnusableRunFile, kind="model file") as foreign:
        ww.load(path)
    causes = [raised.value.__cause__ for raised in (newer, foreign)]
    assert [cause.given for cause in causes] == ["whatwhere model 99", None]
    assert [cause.expected for cause in causes] == ["whatwhere model 2"] * 2


def saved_with(tmp_path: Path, spec: object, filters: torch.Tensor) -> Path:
    tensors = {"layer1.filters": filters, "layer1.connectivity": torch.ones(1, 3, dtype=torch.bool)}
    path = tmp_path / "model.safetensors"
    text = json.dumps(spec)
    save_file(
        tensors, path, metadata={"format": FORMAT, "spec": text, "sha256": checksum(text, tensors)}
    )
    return path


def test_filters_that_do_not_fit_the_spec_are_refused(tmp_path: Path) -> None:
    with raises(UnusableRunFile, kind="model file") as caught:
        ww.load(saved_with(tmp_path, {"layers": [{"maps": 3}]}, torch.zeros(1, 3, 4, 4)))
    cause = caught.value.__cause__
    assert isinstance(cause, InvalidSetting)
    assert cause.given["layers.1.filters"] == [1, 3, 4, 4]


def test_filters_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    with raises(DamagedFilters, layer=1):
        ww.load(
            saved_with(tmp_path, {"layers": [{"maps": 3}]}, torch.full((1, 3, 5, 5), torch.nan))
        )


def test_a_spec_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with raises(UnusableRunFile, kind="model file") as raised:
        ww.load(saved_with(tmp_path, {"layers": [{"mpas": 3}]}, torch.zeros(1, 3, 5, 5)))
    assert raised.value.__cause__.given == "layers.1.mpas"
    assert raised.value.__cause__.near == ("layers.1.maps",)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raises(NoSuchRun, path=str(tmp_path / "nowhere.safetensors")):
        ww.load(tmp_path / "nowhere.safetensors")


def test_a_run_folder_stands_for_its_model(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"], seed=4)
    ww.save(model, tmp_path / "model.safetensors")
    assert torch.equal(ww.load(tmp_path).filters[1], model.filters[1])


@pytest.mark.parametrize("path", ["", "x" * 300, "/dev/zero"])
def test_a_path_that_is_no_file_raises(path: str) -> None:
    with raises(NoSuchRun, kind="the model"):
        ww.load(path)


def test_equal_models_give_equal_bytes(tmp_path: Path) -> None:
    """The library's own order of metadata varies from one call to the next."""
    model = DeconvNet(SPECS["1 layer"], seed=4)
    for name in "abcdef":
        ww.save(model, tmp_path / name)
    assert len({(tmp_path / name).read_bytes() for name in "abcdef"}) == 1


def test_the_safetensors_library_reads_the_file(tmp_path: Path) -> None:
    model = DeconvNet(SPECS["3 layers, colour"], dtype=torch.float64)
    ww.save(model, tmp_path / "model.safetensors")
    tensors = load_file(tmp_path / "model.safetensors")
    assert torch.equal(tensors["layer3.filters"], model.filters[2])
    assert torch.equal(tensors["layer2.connectivity"], model.connectivity[1])
    assert len(tensors) == 6


def test_every_damaged_byte_is_noticed(tmp_path: Path) -> None:
    """Each byte of a small file changed: an error, or the model that was saved."""
    model = DeconvNet(ModelSpec(layers=(LayerSpec(maps=2, filter_size=2),)))
    path = tmp_path / "model.safetensors"
    ww.save(model, path)
    content = path.read_bytes()
    raised = 0
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= (0x01, 0x20, 0xFF)[place % 3]
        path.write_bytes(damaged)
        try:
            assert ww.load(path) == model, place
        except RunError:
            raised += 1
    assert raised > 0.95 * len(content)


@pytest.mark.parametrize("keep", ["all but the end", "twice", "with more"])
def test_a_file_that_was_cut_or_has_grown_is_noticed(keep: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    ww.save(DeconvNet(SPECS["2 layers"]), path)
    content = path.read_bytes()
    path.write_bytes(
        {"all but the end": content[:-1], "twice": content * 2, "with more": content + b"x"}[keep]
    )
    with raises(UnusableRunFile, kind="model file"):
        ww.load(path)


def test_another_spec_than_the_saved_one_is_noticed(tmp_path: Path) -> None:
    """Tensors that fit both: only the checksum tells them apart."""
    path = tmp_path / "model.safetensors"
    ww.save(DeconvNet(SPECS["2 layers"]), path)
    content = path.read_bytes()
    assert content.count(b'\\"pool_size\\":2') == 2
    path.write_bytes(content.replace(b'\\"pool_size\\":2', b'\\"pool_size\\":3', 1))
    with raises(
        UnusableRunFile, kind="model file", reason="its checksum does not match its content"
    ):
        ww.load(path)


ONE_LAYER = {"layers": [{"maps": 3}]}
HOSTILE = {
    "deep nesting": "[" * 100_000,
    "deep nesting inside": '{"layers": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "a number of 5,000 digits": '{"layers": [{"maps": 3, "pool_size": ' + "9" * 5000 + "}]}",
    "a number of 400 digits": '{"layers": [{"maps": 3, "pool_size": ' + "9" * 400 + "}]}",
    "a list": "[]",
    "a number": "3",
    "null": "null",
    "layers that are numbers": '{"layers": [3]}',
    "layers that are text": '{"layers": "abc"}',
    "no layers": '{"layers": []}',
    "maps as text": '{"layers": [{"maps": "3"}]}',
    "maps as NaN": '{"layers": [{"maps": NaN}]}',
    "not JSON": "{",
    "empty": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_spec_raises_a_clear_error(name: str, tmp_path: Path) -> None:
    path, text = tmp_path / "model.safetensors", HOSTILE[name]
    tensors = {
        "layer1.filters": torch.zeros(1, 3, 5, 5),
        "layer1.connectivity": torch.ones(1, 3, dtype=torch.bool),
    }
    metadata = {"format": FORMAT, "spec": text, "sha256": checksum(text, tensors)}
    save_file(tensors, path, metadata=metadata)
    with raises(UnusableRunFile, kind="model file") as raised:
        ww.load(path)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.complex64]
)
def test_filters_of_another_type_raise_an_error(dtype: torch.dtype, tmp_path: Path) -> None:
    try:
        path = saved_with(tmp_path, ONE_LAYER, torch.zeros(1, 3, 5, 5).to(dtype))
    except KeyError:
        pytest.skip("this safetensors writes no complex numbers")
    with raises(UnusableRunFile, kind="model file"):
        ww.load(path)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_filters_of_half_precision_come_back(dtype: torch.dtype, tmp_path: Path) -> None:
    model = DeconvNet(SPECS["2 layers"]).to(dtype)
    ww.save(model, tmp_path / "model.safetensors")
    assert ww.load(tmp_path / "model.safetensors") == model


def test_a_tensor_of_no_layer_raises_an_error(tmp_path: Path) -> None:
    tensors = {
        "layer1.filters": torch.zeros(1, 3, 5, 5),
        "layer1.connectivity": torch.ones(1, 3, dtype=torch.bool),
    }
    tensors["layer2.filters"] = torch.zeros(1)
    text = json.dumps(ONE_LAYER)
    metadata = {"format": FORMAT, "spec": text, "sha256": checksum(text, tensors)}
    save_file(tensors, tmp_path / "model", metadata=metadata)
    with raises(
        UnusableRunFile, kind="model file", reason="no layer has the tensor 'layer2.filters'"
    ):
        ww.load(tmp_path / "model")
