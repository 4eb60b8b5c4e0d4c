"""Checkpoints: whole or not there, and refused when they are not what was written."""

import errno
import os

import pytest
import torch

from whatwhere.errors import RunError
from whatwhere.storage import Checkpoint, disk_errors, load_checkpoint, save_checkpoint, write_atomic

CHECKPOINT = Checkpoint(
    layer=2,
    epoch=3,
    batch=1,
    recipe="seed = 1",
    images="abc",
    latent_dtype="float32",
    notes={"source": "digits"},
    history=({"layer": 1, "cost": 0.1 + 0.2},),
    tensors={"layer1.filters": torch.randn(2, 3), "tally.active": torch.tensor([True, False])},
)


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    save_checkpoint(CHECKPOINT, tmp_path)
    read = load_checkpoint(tmp_path)
    assert (read.layer, read.epoch, read.batch, read.history) == (2, 3, 1, CHECKPOINT.history)
    assert (read.recipe, read.images, read.notes) == ("seed = 1", "abc", {"source": "digits"})
    assert all(torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items())
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]


def test_a_checkpoint_cut_short_anywhere_or_with_any_byte_changed_is_refused(tmp_path):
    save_checkpoint(CHECKPOINT, tmp_path)
    path = tmp_path / "state.safetensors"
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place])
        with pytest.raises(RunError, match=r"state\.safetensors"):
            load_checkpoint(tmp_path)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            read = load_checkpoint(tmp_path)
        except RunError:
            continue
        # a byte of the header that says nothing, such as a blank, may change
        assert read.recipe == CHECKPOINT.recipe
        assert all(torch.equal(read.tensors[name], tensor) for name, tensor in CHECKPOINT.tensors.items())


def test_a_missing_checkpoint_says_so(tmp_path):
    with pytest.raises(RunError, match="there is no checkpoint here"):
        load_checkpoint(tmp_path)


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("whatwhere.storage.checkpoints.FORMAT", "whatwhere checkpoint 9")
    save_checkpoint(CHECKPOINT, tmp_path)
    monkeypatch.undo()
    with pytest.raises(RunError, match="holds 'whatwhere checkpoint 9'; expected 'whatwhere checkpoint 1'"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file(step, tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(os, step, lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"


def test_the_file_is_on_the_disk_before_it_gets_its_name(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *paths: (calls.append("rename"), replace(*paths)))
    write_atomic(tmp_path / "file", b"content")
    assert calls == ["fsync", "rename", "fsync"]  # the content, the name, the folder


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_reported_in_words(tmp_path):
    (tmp_path / "state.safetensors.part").symlink_to("/dev/full")
    with (
        pytest.raises(RunError, match=r"saving failed: No space left on device; make room"),
        disk_errors("saving", "make room"),
    ):
        save_checkpoint(CHECKPOINT, tmp_path)
