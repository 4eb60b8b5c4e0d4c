"""`whatwhere info`: what it says about the engines is true."""

import json

import pytest

from tiny_run import whatwhere
from whatwhere.cli.info import engine_states, installed_version, run_engine
from whatwhere.inference.engines import ENGINES
from whatwhere.inference.engines.reference import ReferenceEngine


def test_versions_devices_and_engines() -> None:
    facts = json.loads(whatwhere("info", "--json"))
    assert facts["versions"]["whatwhere"] == whatwhere("--version").split()[1]
    assert list(facts["engines"]) == list(ENGINES)
    assert facts["engines"]["reference"] == "supported"
    assert "cpu" in facts["devices"]
    assert installed_version("no-such-package") == "not installed"
    assert "reference      supported" in whatwhere("info")


def test_a_check_runs_the_engines_and_reports_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "whatwhere.cli.info.run_engine", lambda name, *_: run_engine(name, *_) if name == "reference" else ""
    )
    assert engine_states(check=True)["reference"].startswith("runs (two steps")

    def broken(*_: object) -> None:
        raise RuntimeError("no compiler here")

    monkeypatch.setattr(ReferenceEngine, "solve", broken)
    assert engine_states(check=True)["reference"] == "fails: RuntimeError: no compiler here"
    assert engine_states(check=False)["reference"] == "supported"
