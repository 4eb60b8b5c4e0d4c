"""What a result file says about the machine."""

import json
import platform

import torch

from whatwhere.inference.machine import Machine, machine, this_machine
from whatwhere.spec.toml import build


def test_the_machine_is_this_one():
    here = this_machine()
    assert here.python == platform.python_version()
    assert here.versions["torch"] == torch.__version__
    assert here.cores >= 1
    assert here.processor


def test_it_is_read_again_from_json():
    assert build(Machine, json.loads(json.dumps(machine()))).versions == this_machine().versions


def test_the_commit_can_be_given(monkeypatch):
    monkeypatch.setenv("WHATWHERE_COMMIT", "abc123")
    assert this_machine().commit == "abc123"


def test_without_git_there_is_no_commit(monkeypatch):
    monkeypatch.delenv("WHATWHERE_COMMIT", raising=False)
    monkeypatch.setenv("PATH", "")
    assert this_machine().commit is None
