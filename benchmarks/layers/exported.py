"""Pooling layers against max pooling, exported and in eager mode, and a sparse code as a layer:
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
from whatwhere.nn import functional


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
                lambda: functional.gaussian_pool2d(z, 2, form="plain"), 20
            ),
            "max_pool2d, ms": milliseconds(lambda: F.max_pool2d(z, 2), 100),
        }


def there_and_back(z: torch.Tensor) -> torch.Tensor:
    """Max pooling and unpooling."""
    p, indices = F.max_pool2d(z, 2, return_indices=True)
    return F.max_unpool2d(p, indices, 2)


def gaussian_there_and_back(z: torch.Tensor) -> torch.Tensor:
    """Gaussian pooling and unpooling."""
    p, where = functional.gaussian_pool2d(z, 2, return_where=True)
    return functional.gaussian_unpool2d(p, where, 2)


def layers() -> dict[str, object]:
    """Forward and backward passes on 32 × 32 maps of 56 × 56, milliseconds and their ratio."""
    z = torch.randn(32, 32, 56, 56, requires_grad=True)

    def passes(layer: Callable[[torch.Tensor], torch.Tensor]) -> float:
        def work() -> None:
            z.grad = None
            layer(z).sum().backward()

        return milliseconds(work, 2)

    pairs = {
        "2 × 2": (lambda z: F.max_pool2d(z, 2), lambda z: functional.gaussian_pool2d(z, 2)),
        "3 × 3, stride 2": (
            lambda z: F.max_pool2d(z, 3, 2, 1),
            lambda z: functional.gaussian_pool2d(z, 3, 2, 1),
        ),
        "2 × 2 with unpooling": (there_and_back, gaussian_there_and_back),
    }
    rows: dict[str, object] = {}
    for name, (largest, gaussian) in pairs.items():
        ours, theirs = passes(gaussian), passes(largest)
        rows[name] = {"Gaussian": ours, "max": theirs, "ratio": round(ours / theirs, 2)}
    return rows


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

    def training_step_of_the_reference() -> None:
        code.zero_grad()
        model = code.model
        v, _ = model.input_stage.forward(digits, None)
        code.run(code.problem(model, v)).features.square().sum().backward()

    rows = {
        "infer, engine cpu": lambda: ww.infer(model, digits, spec, engine="cpu"),
        "infer, engine reference": lambda: ww.infer(model, digits, spec, engine="reference"),
        "layer without gradients": without_gradients,
        "layer, training step": training_step,
        "training step of the reference": training_step_of_the_reference,
    }
    return {name: round(milliseconds(work, 1, 3) / len(digits), 3) for name, work in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("benchmarks/layers/results/layers_exported.json")
    )
    parser.add_argument("--only", help="measure this part again, and keep the others of the file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    parts = {
        "exported pooling": pooling,
        "layers, forward and backward, ms": layers,
        "sparse code, ms a digit": sparse_code,
    }
    found: dict[str, object] = json.loads(given.out.read_text()) if given.only else {}
    found["machine"] = machine()
    found |= {name: part() for name, part in parts.items() if given.only in (None, name)}
    print(json.dumps(found, indent=1))
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
