"""`whatwhere info`: versions, devices, engines, and why an engine is not supported here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from whatwhere.cli.options import Json

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.model import DeconvNet

PACKAGES = ("whatwhere", "torch", "numpy", "numba", "triton", "scikit-learn", "matplotlib", "safetensors")
Check = Annotated[
    bool, typer.Option("--check", help="Also run every engine on one image; the first time this compiles for a while.")
]


def info(check: Check = False, as_json: Json = False) -> None:
    """Show versions, devices, and which engines support the paper's model here."""
    facts = gather(check)
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for title, rows in facts.items():
        typer.secho(title, bold=True)
        for name, value in rows.items():
            typer.echo(f"  {name:<14} {value}")


def gather(check: bool = False) -> dict[str, dict[str, str]]:
    """The installed versions, the devices, and the state of each engine."""
    import platform

    import torch

    devices = {"cpu": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"}
    for i in range(torch.cuda.device_count()):
        devices[f"cuda:{i}"] = torch.cuda.get_device_name(i)
    return {
        "versions": {"python": platform.python_version(), **{name: installed_version(name) for name in PACKAGES}},
        "devices": devices,
        "engines": engine_states(check),
        "machine code": {"cpu": machine_code_cache()},
    }


def installed_version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def engine_states(check: bool) -> dict[str, str]:
    """For every engine: 'supported', or why not; with `check`, also whether it runs."""
    import torch

    from whatwhere.inference.engines import unsupported_reasons
    from whatwhere.inference.plan import ONE_PHASE
    from whatwhere.model import DeconvNet
    from whatwhere.model.problem import Problem
    from whatwhere.spec import ModelSpec

    home = "cuda" if torch.cuda.is_available() else "cpu"
    model = DeconvNet(ModelSpec.paper()).to(home)
    image = torch.full((1, 1, 28, 28), 0.5, device=home)
    reasons = unsupported_reasons(Problem(model, image, ONE_PHASE[0]))
    return {
        name: reason or (run_engine(name, model, image) if check else "supported") for name, reason in reasons.items()
    }


def run_engine(name: str, model: DeconvNet, image: Tensor) -> str:
    """Run an engine for two steps: how long it took, or how it failed."""
    import time

    from whatwhere.inference import infer
    from whatwhere.spec import InferenceSpec

    start = time.monotonic()
    try:
        infer(model, image, InferenceSpec(steps=2), engine=name)
    except Exception as error:  # whatever a compiler may raise: to report it is the purpose of this command
        return f"fails: {type(error).__name__}: {error}"
    return f"runs (two steps on one image took {time.monotonic() - start:.1f} s, compiling included)"


def machine_code_cache() -> str:
    """Where the CPU engine caches its machine code, or why it does not."""
    from importlib.util import find_spec

    if find_spec("numba") is None:
        return "numba is not installed"
    from whatwhere.inference.engines.cpu.loop import advance
    from whatwhere.inference.engines.jit.cache import describe_cache

    return describe_cache(advance)
