"""The fused kernels: right in Triton's interpreter, compiled for a GPU without one, and right on a
GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton", minversion="3.6", reason="no triton that compiles the kernels")

HERE = Path(__file__).parent


def run(script: str, *arguments: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_right_in_the_interpreter() -> None:
    run("triton_operators.py", "interpret", TRITON_INTERPRET="1")


def test_every_kernel_compiles_for_hopper_and_torch_compile_can_copy_those_of_pairs() -> None:
    run("triton_operators.py", "compile", "inline")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_right_on_the_gpu() -> None:
    run("../../benchmarks/layers/pooling_layers.py", "--check")
