"""An exported program as ONNX Runtime runs it."""

import io
import logging
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import ExportedProgram


def onnx_function(model: bytes) -> Callable[[Tensor], list[Tensor]]:
    """An ONNX model as a function of images."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    session = onnxruntime.InferenceSession(model)
    name = session.get_inputs()[0].name
    return lambda images: [torch.from_numpy(y) for y in session.run(None, {name: images.numpy()})]


def onnx_model(exported: ExportedProgram) -> bytes:
    """The ONNX model of an exported program."""
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    buffer = io.BytesIO()
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(exported, dynamo=True, verbose=False).save(buffer)
    finally:
        logging.disable(logging.NOTSET)
    return buffer.getvalue()
