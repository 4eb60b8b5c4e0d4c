"""The package from outside: what importing it costs, and how the program starts."""

import re
import resource
import subprocess
import sys

import pytest

import whatwhere as ww


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_needs_torch_and_numpy_alone() -> None:
    """With every other package hidden, the model and inference import and run."""
    hidden = "safetensors typer rich numba triton sklearn scipy matplotlib PIL"
    code = f"""
import sys
for name in {hidden.split()!r}: sys.modules[name] = None
import whatwhere as ww, torch
model = ww.DeconvNet(ww.ModelSpec.paper())
print(ww.infer(model, torch.rand(1, 1, 8, 8), ww.InferenceSpec(steps=1)).engine)
"""
    assert run(code).strip() == "reference"


def test_help_answers_quickly_and_without_torch() -> None:
    code = "import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.cli import main\ntry: main()\n"
    code += "except SystemExit: pass\nprint('TORCH' if 'torch' in sys.modules else 'LIGHT')"
    assert run(code).strip().endswith("LIGHT")
    seconds = []
    for _ in range(5):  # processor time: the clock on the wall depends on what else the machine does
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("import sys; sys.argv = ['whatwhere', '--help']\nfrom whatwhere.cli import main\nmain()")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.8


def test_every_public_name_is_there() -> None:
    for name in ww.__all__:
        getattr(ww, name)
    assert re.fullmatch(r"\d+\.\d+\.\d+", ww.__version__)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        ww.nothing  # noqa: B018
