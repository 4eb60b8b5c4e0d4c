"""The latent store: the same bits from every tier, two generations, and errors for damaged files."""

import numpy as np
import pytest
import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.latents import Latents, PoolingParams
from whatwhere.learning.storage import LatentFiles, LatentStore, choose_tier, latent_dtype, tiers

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


def make(tier: str, folder, dtype: torch.dtype = torch.float32) -> LatentStore:
    files = LatentFiles(folder, BATCHES, dtype)
    return LatentStore(tier, len(BATCHES), device=CPU, stored_dtype=dtype, files=files)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("tier", ["device", "ram", "file"])
def test_what_is_written_is_read_rounded_to_the_latent_dtype(tier, dtype, tmp_path):
    store = make(tier, tmp_path, dtype)
    assert store.read(1) == Latents()
    for batch in range(3):
        store.write(batch, latents(batch))
    for batch in range(3):
        read = store.read(batch)
        assert same(read, latents(batch).to(dtype=dtype).to(dtype=torch.float32))
        assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in read.tensors())


@pytest.mark.parametrize("tier", ["ram", "file"])
def test_a_checkpoint_outlives_the_writes_after_it(tier, tmp_path):
    store = make(tier, tmp_path)
    for batch in range(3):
        store.write(batch, latents(batch, seed=1), save=batch == 0)
    places = store.flush()
    store.retain(places)
    for epoch in (2, 3):  # the second time, a batch is written over its own spare generation
        for batch in range(2):
            store.write(batch, latents(batch, seed=epoch), save=True)
    store.flush()
    assert same(store.read(0), latents(0, seed=3))
    again = make(tier, tmp_path)
    again.restore(places, range(3))
    assert all(same(again.read(batch), latents(batch, seed=1)) for batch in range(3))


def test_the_files_of_a_finished_layer_are_removed_once_a_checkpoint_needs_them_no_more(tmp_path):
    store = make("file", tmp_path)
    for layer in (1, 2):
        for batch in range(3):
            store.write(batch, latents(batch, layer=layer))
        places = store.flush()
        assert (tmp_path / "layer1-0").exists(), "removed before the new checkpoint was there"
        store.retain(places)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["layer2-0"]


def test_files_are_plain_npy_that_anyone_can_map(tmp_path):
    store = make("file", tmp_path)
    for batch in range(3):
        store.write(batch, latents(batch))
    store.flush()
    p = np.load(tmp_path / "layer2-0" / "p.npy", mmap_mode="r")
    assert np.array_equal(p, torch.cat([latents(batch).p for batch in range(3)]).numpy())
    assert np.load(tmp_path / "layer2-0" / "gamma2.npy", mmap_mode="r").shape == (7, 2, 2, 3, 4)


def damage_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.unlink(), "mu1.npy cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "mu1.npy was cut short"),
        (lambda path: path.write_bytes(path.read_bytes()[:50]), "mu1.npy cannot be read"),
        (damage_a_byte, "batch 3 are damaged"),
    ],
)
@pytest.mark.parametrize("tier", ["ram", "file"])
def test_damaged_latents_raise_before_they_are_used(tier, harm, message, tmp_path):
    store = make("file", tmp_path)
    for batch in range(3):
        store.write(batch, latents(batch))
    places = store.flush()
    harm(tmp_path / "layer2-0" / "mu1.npy")
    with pytest.raises(RunError, match=message):
        make(tier, tmp_path).restore(places, range(3))


def test_an_error_of_the_writing_thread_is_raised_where_it_matters(tmp_path, monkeypatch):
    store = make("ram", tmp_path)
    monkeypatch.setattr(LatentFiles, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    store.write(0, latents(0), save=True)
    with pytest.raises(OSError, match="No space left"):
        store.flush()


def test_auto_takes_the_fastest_tier_that_fits_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(tiers, "free_ram", lambda: 1000)
    assert choose_tier("auto", 500, CPU, tmp_path) == ("ram", "500 B of latents, 1 KB of RAM free")
    tier, reason = choose_tier("auto", 501, CPU, tmp_path)
    assert tier == "file"
    assert "too much for the 1 KB" in reason
    assert choose_tier("device", 10**18, CPU, tmp_path) == ("device", "asked for")
    with pytest.raises(RunError, match="make room"):
        choose_tier("auto", 10**18, CPU, tmp_path)
    with pytest.raises(SpecError, match="expected 'auto', 'device', 'ram' or 'file'"):
        choose_tier("disk", 1, CPU, tmp_path)


def test_free_ram_is_known_here():
    assert tiers.free_ram() > 0


def test_the_stored_dtype_is_the_models_unless_asked_for():
    assert latent_dtype(None, torch.float64) == torch.float64
    assert latent_dtype("bfloat16", torch.float32) == torch.bfloat16
    assert latent_dtype(torch.float16, torch.float32) == torch.float16
    with pytest.raises(SpecError, match="latent_dtype = 'int8'"):
        latent_dtype("int8", torch.float32)
