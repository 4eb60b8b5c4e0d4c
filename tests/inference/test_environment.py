"""What a result file says about the machine."""

import json
import platform

import torch

from whatwhere.inference import machine


def test_the_machine_is_this_one():
    here = machine()
    assert here["python"] == platform.python_version()
    assert here["versions"]["torch"] == torch.__version__
    assert here["cores"] >= 1
    assert here["processor"]
    assert json.loads(json.dumps(here)) == here


def test_the_commit_can_be_given(monkeypatch):
    monkeypatch.setenv("WHATWHERE_COMMIT", "abc123")
    assert machine()["commit"] == "abc123"


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.delenv("WHATWHERE_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert machine()["commit"] is None
