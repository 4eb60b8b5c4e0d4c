"""What a result file says about the machine."""

import json
import platform

import pytest
import torch

from whatwhere.errors import SpecError
from whatwhere.inference import machine
from whatwhere.inference.environment import choose_device


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


def test_a_device_is_chosen_or_raises(monkeypatch):
    assert choose_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda:0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto") == torch.device("cpu")
    with pytest.raises(SpecError, match="there is no GPU that torch can use here"):
        choose_device("cuda:1")
    with pytest.raises(SpecError, match="expected auto, cpu, cuda"):
        choose_device("gpu")
