"""The latent store: the same bits from memory and from files, two generations, and errors for damaged files."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_training as tiny
from whatwhere.errors import RunError
from whatwhere.latents import Latents, PoolingParams
from whatwhere.learning.latent_store import LatentFiles, LatentStore

BATCHES = [slice(0, 3), slice(3, 6), slice(6, 7)]
CPU = torch.device("cpu")


def latents(batch: int, seed: int = 0, layer: int = 2) -> Latents:
    generator = torch.Generator().manual_seed(100 * seed + batch)
    count = BATCHES[batch].stop - BATCHES[batch].start

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator)

    return Latents(draw(2, 3, 4), tuple(PoolingParams(draw(2, 2, 3, 4), draw(2, 2, 3, 4)) for _ in range(layer)))


def same(a: Latents, b: Latents) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


def make(store: str, folder) -> LatentStore:
    return LatentStore(len(BATCHES), CPU, LatentFiles(folder, len(BATCHES)), in_memory=store == "memory")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("store", ["memory", "file"])
def test_what_is_written_is_read(store, dtype, tmp_path):
    store = make(store, tmp_path)
    assert store.read(1) == Latents()
    for batch in range(3):
        store.write(batch, latents(batch).to(dtype=dtype))
    for batch in range(3):
        assert same(store.read(batch), latents(batch).to(dtype=dtype))


@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_checkpoint_outlives_the_writes_after_it(store, tmp_path):
    kind, store = store, make(store, tmp_path)
    for batch in range(3):
        store.write(batch, latents(batch, seed=1), save=batch == 0)
    places = store.flush()
    store.retain(places)
    for epoch in (2, 3):  # the second time, a batch is written over its own spare generation
        for batch in range(2):
            store.write(batch, latents(batch, seed=epoch), save=True)
    store.flush()
    assert same(store.read(0), latents(0, seed=3))
    again = make(kind, tmp_path)
    again.restore(places)
    assert all(same(again.read(batch), latents(batch, seed=1)) for batch in range(3))


def test_a_batch_has_two_files_that_numpy_reads(tmp_path):
    store = make("file", tmp_path)
    for epoch in range(3):
        for batch in range(3):
            store.write(batch, latents(batch, seed=epoch, layer=min(2, epoch + 1)))
        store.retain(store.flush())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"batch{b}-{g}.npz" for b in (1, 2, 3) for g in (0, 1)]
    with np.load(tmp_path / "batch2-0.npz") as file:
        assert list(file) == ["p", "mu1", "gamma1", "mu2", "gamma2"]
        assert np.array_equal(file["mu2"], latents(1, seed=2).pooling_params[1].mu)


def damage_a_byte(path):
    content = bytearray(path.read_bytes())
    content[content.index(latents(2).p.numpy().tobytes()) + 5] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "batch 3 cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "batch 3 cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "batch 3 cannot be read"),
        (lambda path: np.savez(path, p=np.zeros((1, 2, 3, 4), np.float32)), "batch 3 are damaged"),
        (lambda path: np.savez(path, p=np.zeros((1, 2, 3, 4), object)), "never unpickled"),
        (damage_a_byte, "batch 3 (are damaged|cannot be read)"),
    ],
)
@pytest.mark.parametrize("store", ["memory", "file"])
def test_damaged_latents_raise_before_they_are_used(store, harm, message, tmp_path):
    written = make("file", tmp_path)
    for batch in range(3):
        written.write(batch, latents(batch))
    table = written.flush()
    harm(tmp_path / "batch3-0.npz")
    with pytest.raises(RunError, match=message):
        make(store, tmp_path).restore(table)


def test_an_error_of_the_writing_thread_is_raised_where_it_matters(tmp_path, monkeypatch):
    store = make("memory", tmp_path)
    monkeypatch.setattr(LatentFiles, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    store.write(0, latents(0), save=True)
    with pytest.raises(OSError, match="No space left"):
        store.flush()


def write_and_note_memory(batches: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = LatentStore(batches, CPU, LatentFiles(folder / "latents", batches), in_memory=False)
    for batch in range(batches):
        theta = PoolingParams(torch.rand(50, 2, 16, 16, 16), torch.rand(50, 2, 16, 16, 16))
        store.write(batch, Latents(torch.rand(50, 16, 16, 16), (theta,)))
    store.flush()
    store.close()
    (folder / "peak").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def test_in_files_memory_does_not_grow_with_the_number_of_batches(tmp_path):
    """4 MB a batch: memory that the writing thread frees would not be used again."""
    for batches in (4, 24):
        (tmp_path / str(batches)).mkdir()
        tiny.process(write_and_note_memory, batches, tmp_path / str(batches)).join()
    few, many = (int((tmp_path / str(batches) / "peak").read_text()) for batches in (4, 24))
    assert many - few < 25e6, "20 batches more have 82 MB"
