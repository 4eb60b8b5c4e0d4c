"""`whatwhere info`: versions, devices, engines, and why one cannot serve."""

from __future__ import annotations

import json
from typing import Any

import typer

from whatwhere.cli.options import Json


def info(as_json: Json = False) -> None:
    """Show versions, devices, and which engines can serve the paper's model here."""
    facts = gather()
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    for title, rows in facts.items():
        typer.secho(title, bold=True)
        for name, value in rows.items():
            typer.echo(f"  {name:<14} {value}")


def gather() -> dict[str, dict[str, Any]]:
    """What is installed, what there is to compute on, and what each engine says of the paper's model."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    from whatwhere.inference.engines import unsupported_reasons
    from whatwhere.inference.plan import ONE_PHASE
    from whatwhere.model import DeconvNet
    from whatwhere.spec import InferenceSpec, ModelSpec

    def installed(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    packages = ("whatwhere", "torch", "numpy", "numba", "triton", "scikit-learn", "matplotlib", "safetensors")
    devices = {"cpu": f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"}
    for i in range(torch.cuda.device_count()):
        devices[f"cuda:{i}"] = torch.cuda.get_device_name(i)
    home = "cuda" if torch.cuda.is_available() else "cpu"
    model = DeconvNet(ModelSpec.paper()).to(home)
    images = torch.zeros(1, 1, 28, 28, device=home)
    served = {
        name: reason or "can serve"
        for name, reason in unsupported_reasons(model, images, ONE_PHASE[0], InferenceSpec()).items()
    }
    return {
        "versions": {"python": platform.python_version(), **{name: installed(name) for name in packages}},
        "devices": devices,
        "engines": served,
        "machine code": {"cpu": machine_code_cache()},
    }


def machine_code_cache() -> str:
    """Where the CPU engine caches its machine code, or why it does not."""
    from importlib.util import find_spec

    if find_spec("numba") is None:
        return "numba is not installed"
    from whatwhere.inference.engines.cpu.loop import advance
    from whatwhere.jit.cache import describe_cache

    return describe_cache(advance)
