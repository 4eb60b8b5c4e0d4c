"""Models of the Hugging Face Hub: addresses and checksums. The download itself is replaced."""

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import whatwhere as ww
from whatwhere.data.models.hub import parse
from whatwhere.errors import MissingExtra, RunError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str | None]]:
    """What is asked of a Hub whose every file is the model `mnist`."""
    calls: list[tuple[str, str, str | None]] = []

    def hf_hub_download(repository: str, file: str, revision: str | None = None) -> str:
        calls.append((repository, file, revision))
        return str(ww.models.path("mnist"))

    module = ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    return calls


def test_a_model_is_loaded_by_its_address(asked: list[tuple[str, str, str | None]]) -> None:
    model = ww.load("hf://ada/strokes/models/a.safetensors@v1")
    assert asked == [("ada/strokes", "models/a.safetensors", "v1")]
    assert torch.equal(model.filters[0], ww.load("mnist").filters[0])
    assert ww.read_run("hf://ada/strokes").model.spec.depth == 2
    assert asked[1] == ("ada/strokes", "model.safetensors", None)


@pytest.mark.usefixtures("asked")
def test_the_checksum_of_an_address_is_verified() -> None:
    right = hashlib.sha256(Path(ww.models.path("mnist")).read_bytes()).hexdigest()
    ww.load(f"hf://ada/strokes#sha256={right}")
    with pytest.raises(RunError, match="has the checksum"):
        ww.load(f"hf://ada/strokes#sha256={'0' * 64}")


@pytest.mark.parametrize("address", ["hf://", "hf://ada", "hf://ada/strokes#sha256=12"])
def test_a_wrong_address_says_what_was_expected(address: str) -> None:
    with pytest.raises(RunError, match="expected hf://owner/repository"):
        parse(address)


def test_without_the_package_an_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingExtra, match="pip install huggingface_hub"):
        ww.load("hf://ada/strokes")
