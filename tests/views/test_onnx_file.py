"""A view from an ONNX file, compared with the network that was exported."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from raising import raises
from whatwhere.errors import ImageError, SpecError, UnusableImageFile
from whatwhere.views import OnnxFile, as_view

pytest.importorskip("onnxruntime")


def write_mean_network(file: Path) -> None:
    """A network that averages pictures of 16 × 16 in blocks of 4 × 4."""
    import onnx
    from onnx import TensorProto, helper

    node = helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[4, 4], strides=[4, 4])
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3, 4, 4])
    graph = helper.make_graph([node], "mean", [x], [y])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), file)


def test_maps_are_those_of_the_network(tmp_path: Path) -> None:
    file = tmp_path / "mean.onnx"
    write_mean_network(file)
    view = as_view(file)
    assert isinstance(view, OnnxFile)
    assert view.name == "mean"
    v = torch.rand(3, 3, 16, 16)
    (maps,) = view(v)
    torch.testing.assert_close(maps, F.avg_pool2d((v - 0.45) / 0.225, 4), atol=1e-5, rtol=1e-5)
    # other sizes and grey pictures are fitted to what the network takes
    assert view.rows(torch.rand(2, 1, 30, 20)).shape == (2, 3 + 12)


def test_a_missing_file_raises() -> None:
    with pytest.raises(SpecError):
        OnnxFile(file=Path("missing.onnx"))


@pytest.mark.parametrize("content", [b"", b"no network", b"\x08\x09" * 4000])
def test_a_damaged_file_raises(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "network.onnx"
    file.write_bytes(content)
    with raises(UnusableImageFile, kind="ONNX file", path=file):
        as_view(file)(torch.rand(1, 3, 16, 16))


def write_network(file: Path, operation: str, kind: str, batch: object = "n") -> None:
    """A network of one operation that takes values of a kind."""
    import onnx
    from onnx import TensorProto, helper

    numbers = getattr(TensorProto, kind)
    x = helper.make_tensor_value_info("x", numbers, [batch, 3, 16, 16])
    y = helper.make_tensor_value_info("y", numbers, [batch, 3, 16, 16])
    graph = helper.make_graph([helper.make_node(operation, ["x"], ["y"])], "one", [x], [y])
    opset = helper.make_opsetid("", 17)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=9), file)


def test_a_network_of_other_numbers_raises(tmp_path: Path) -> None:
    file = tmp_path / "network.onnx"
    write_network(file, "Identity", "INT64")
    with raises(UnusableImageFile, kind="network of pictures", path=file):
        as_view(file)(torch.rand(1, 3, 16, 16))


def test_a_network_of_two_pictures_at_a_time_does_not_take_three(tmp_path: Path) -> None:
    file = tmp_path / "network.onnx"
    write_network(file, "Identity", "FLOAT", batch=2)
    assert as_view(file)(torch.rand(4, 3, 16, 16))[0].shape == (4, 3, 16, 16)
    with raises(UnusableImageFile, kind="network of pictures", path=file):
        as_view(file)(torch.rand(3, 3, 16, 16))


def test_values_that_are_not_finite_raise(tmp_path: Path) -> None:
    file = tmp_path / "network.onnx"
    write_network(file, "Log", "FLOAT")
    with pytest.raises(ImageError, match="NaN or infinite"):
        as_view(file)(torch.zeros(1, 3, 16, 16))
