"""Checkpoints: complete or not there; what was not written raises an error."""

from dataclasses import replace

import pytest
import torch
from safetensors import safe_open

from whatwhere.errors import RunError
from whatwhere.learning.checkpoint import Checkpoint

CHECKPOINT = Checkpoint(
    layer=2,
    epoch=3,
    batch=1,
    recipe="seed = 1",
    images="abc",
    notes={"source": "digits"},
    history=[{"layer": 1, "cost": 0.1 + 0.2}],
    tensors={"layer1.filters": torch.randn(2, 3), "tally.active": torch.tensor([True, False])},
)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    CHECKPOINT.save(tmp_path)
    read = Checkpoint.load(tmp_path)
    assert (read.layer, read.epoch, read.batch, read.history) == (2, 3, 1, CHECKPOINT.history)
    assert (read.recipe, read.images, read.notes) == ("seed = 1", "abc", {"source": "digits"})
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_checkpoint_cut_short_anywhere_or_with_any_byte_changed_raises(tmp_path):
    CHECKPOINT.save(tmp_path)
    path = tmp_path / "state.safetensors"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place])
        with pytest.raises(RunError, match=r"state\.safetensors"):
            Checkpoint.load(tmp_path)
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            read = Checkpoint.load(tmp_path)
        except RunError:
            continue
        # a byte of the header that says nothing, such as a blank, may change
        assert read.recipe == CHECKPOINT.recipe
        assert all(torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items())


VALUES = torch.arange(6.0, dtype=torch.float64).view(2, 3)


@pytest.mark.parametrize(
    "changed",
    [VALUES.view(3, 2), VALUES.view(torch.int64), VALUES.view(6)],
)
def test_the_checksum_covers_dtype_and_shape(changed, tmp_path, monkeypatch):
    """The same bytes as another type, or in another shape."""
    checkpoint = replace(CHECKPOINT, tensors={"f": VALUES})
    checkpoint.save(tmp_path)
    checksum = safe_open(tmp_path / "state.safetensors", framework="pt").metadata()["sha256"]
    monkeypatch.setattr("whatwhere.model.files.checksum", lambda *_: checksum)
    replace(checkpoint, tensors={"f": changed}).save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(RunError, match="its checksum does not match"):
        Checkpoint.load(tmp_path)


def test_a_missing_checkpoint_says_so(tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint here"):
        Checkpoint.load(tmp_path)


def test_a_checkpoint_of_another_version_raises(tmp_path, monkeypatch):
    monkeypatch.setattr("whatwhere.learning.checkpoint.FORMAT", "whatwhere checkpoint 9")
    CHECKPOINT.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(RunError, match="holds 'whatwhere checkpoint 9'; expected 'whatwhere checkpoint 3'"):
        Checkpoint.load(tmp_path)


@pytest.mark.parametrize("content", [{"layer": 0}, {"layer": "1"}, {"batch": None}, {"recipe": 3}, {"notes": []}])
def test_content_of_another_kind_raises(content, tmp_path):
    """With a checksum that is right: somebody wrote it so."""
    checkpoint = replace(CHECKPOINT)
    for name, value in content.items():
        object.__setattr__(checkpoint, name, value)
    checkpoint.save(tmp_path)
    with pytest.raises(RunError, match=f"is damaged: {next(iter(content))} = "):
        Checkpoint.load(tmp_path)
