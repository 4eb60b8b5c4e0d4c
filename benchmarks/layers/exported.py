"""Exported pooling against the eager layer, and a sparse code with and without gradients:
python -m benchmarks.layers.exported [--out FILE]

Processor milliseconds with one thread, the best of several repetitions.
"""

import argparse
import io
import json
import logging
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.export import Dim

import whatwhere as ww
from benchmarks.machine import machine


def milliseconds(work: Callable[[], object], calls: int, repetitions: int = 7) -> float:
    """Processor time of one call, the best of the repetitions."""
    work()
    times = []
    for _ in range(repetitions):
        began = time.process_time()
        for _ in range(calls):
            work()
        times.append((time.process_time() - began) / calls * 1e3)
    return round(min(times), 3)


def onnx_bytes(layer: nn.Module, z: torch.Tensor) -> bytes:
    """The ONNX model of a layer with a dynamic batch."""
    program = torch.export.export(layer, (z,), dynamic_shapes={"input": {0: Dim("n")}})
    buffer = io.BytesIO()
    torch.onnx.export(program, dynamo=True, verbose=False).save(buffer)
    return buffer.getvalue()


def pooling() -> dict[str, object]:
    """2 × 2 pooling of 8 × 16 maps of 32 × 32."""
    import onnx
    import onnxruntime

    layer, z = ww.nn.GaussianPool2d(2), torch.randn(8, 16, 32, 32)
    model = onnx_bytes(layer, z)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options)
    feed = {session.get_inputs()[0].name: z.numpy()}
    with torch.no_grad():
        return {
            "ONNX nodes": len(onnx.load_model_from_string(model).graph.node),
            "ONNX Runtime, ms": milliseconds(lambda: session.run(None, feed), 100),
            "eager, ms": milliseconds(lambda: layer(z), 100),
            "eager, plain form, ms": milliseconds(
                lambda: ww.nn.functional.gaussian_pool2d(z, 2, form="plain"), 20
            ),
            "max_pool2d, ms": milliseconds(lambda: F.max_pool2d(z, 2), 100),
        }


def sparse_code() -> dict[str, object]:
    """Five steps of the model `mnist` on 100 digits, milliseconds a digit."""
    digits = ww.data.load("digits")[:100]
    code = ww.nn.SparseCode2d.from_model(ww.load("mnist"), steps=5)
    spec, model = code.spec, code.model

    def without_gradients() -> None:
        with torch.no_grad():
            code(digits)

    def training_step() -> None:
        code.zero_grad()
        code(digits).square().sum().backward()

    rows = {
        "infer, engine cpu": lambda: ww.infer(model, digits, spec, engine="cpu"),
        "infer, engine reference": lambda: ww.infer(model, digits, spec, engine="reference"),
        "layer without gradients": without_gradients,
        "layer, training step": training_step,
    }
    return {name: milliseconds(work, 1, 3) / len(digits) for name, work in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/layers/results/layers_exported.json")
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    found = {
        "machine": machine(),
        "pooling": pooling(),
        "sparse code, ms a digit": sparse_code(),
    }
    print(json.dumps(found, indent=1))
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
