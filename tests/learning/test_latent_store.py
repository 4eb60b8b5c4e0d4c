"""The latent store: the same bits from memory and from files, two generations, and errors for
damaged files."""

import resource
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_training as tiny
from examples import SPECS, random_images, random_latents
from whatwhere.errors import RunError
from whatwhere.inference.target import Target
from whatwhere.inference.tiled import InferredTile, TileGrid, TilePlace, finish_tile
from whatwhere.latents import Latents, PoolingParams, SparseLatents, SparseMap
from whatwhere.learning.latent_store import LatentStore
from whatwhere.model import DeconvNet

BATCHES = [slice(0, 3), slice(3, 6), slice(6, 7)]
CPU = torch.device("cpu")


def latents(batch: int, seed: int = 0, layer: int = 2) -> Latents:
    generator = torch.Generator().manual_seed(100 * seed + batch)
    count = BATCHES[batch].stop - BATCHES[batch].start

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(count, *shape, generator=generator)

    return Latents(
        draw(2, 3, 4),
        tuple(PoolingParams(draw(2, 2, 3, 4), draw(2, 2, 3, 4)) for _ in range(layer)),
    )


def same(a: Latents, b: Latents) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


def make(store: str, folder) -> LatentStore:
    return LatentStore(len(BATCHES), CPU, folder, in_memory=store == "memory")


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
        store.write(batch, latents(batch, seed=1))
    places = store.flush()
    store.retain(places)
    for epoch in (2, 3):  # the second time, a batch is written over its own spare generation
        for batch in range(2):
            store.write(batch, latents(batch, seed=epoch))
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
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"batch{b}-{g}.npz" for b in (1, 2, 3) for g in (0, 1)
    ]
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
        (lambda path: path.unlink(), "Cannot read the latents of batch 3"),
        (
            lambda path: path.write_bytes(path.read_bytes()[:-5]),
            "Cannot read the latents of batch 3",
        ),
        (
            lambda path: path.write_bytes(path.read_bytes()[:50]),
            "Cannot read the latents of batch 3",
        ),
        (
            lambda path: np.savez(path, p=np.zeros((1, 2, 3, 4), np.float32)),
            "annot read the latents of batch 3",
        ),
        (
            lambda path: np.savez(path, p=np.zeros((1, 2, 3, 4), object)),
            "it holds Python objects; expected numbers",
        ),
        (damage_a_byte, "Cannot read the latents of batch 3"),
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


def write_and_note_memory(batches: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = LatentStore(batches, CPU, folder / "latents", in_memory=False)
    for batch in range(batches):
        theta = PoolingParams(torch.rand(50, 2, 16, 16, 16), torch.rand(50, 2, 16, 16, 16))
        store.write(batch, Latents(torch.rand(50, 16, 16, 16), (theta,)))
    store.flush()
    (folder / "peak").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def test_in_files_memory_does_not_grow_with_the_number_of_batches(tmp_path):
    """4 MB a batch."""
    for batches in (4, 24):
        (tmp_path / str(batches)).mkdir()
        tiny.process(write_and_note_memory, batches, tmp_path / str(batches)).join()
    few, many = (int((tmp_path / str(batches) / "peak").read_text()) for batches in (4, 24))
    assert many - few < 25e6, "20 batches more have 82 MB"


# Latents of one picture without what does not count: nothing that reconstructs is lost ------------


def sparsified(name: str) -> tuple[DeconvNet, Latents, SparseLatents]:
    """A picture with few features, as one tile."""
    model = DeconvNet(SPECS[name], dtype=torch.float64)
    images = random_images(model.spec, n=1, height=40, width=36)
    latents = random_latents(model, images)
    assert latents.p is not None
    rare = torch.rand(latents.p.shape, generator=torch.Generator().manual_seed(4)) > 0.98
    latents = Latents(latents.p * rare, latents.pooling_params)
    grid = TileGrid.of(model.spec, 40, 36, tile=40, overlap=0)
    place = TilePlace(0, 0)
    tile = InferredTile(
        place=place,
        window=grid.window(place),
        core=grid.core(place, 0, 40, 36),
        latents=latents,
        engine="reference",
        target=Target(images),
    )
    return model, latents, finish_tile(model, grid, tile).latents


def test_the_reconstruction_is_the_same_and_most_regions_are_left_out() -> None:
    model, latents, sparse = sparsified("2 layers, 3×3 regions")  # in 2×2 regions only γ μ counts
    dense = sparse.dense()
    torch.testing.assert_close(dense.p, latents.p, rtol=0, atol=0)
    torch.testing.assert_close(
        model.at(40, 36).decode(dense), model.at(40, 36).decode(latents), rtol=0, atol=1e-14
    )
    assert sparse.nonzeros == int((latents.p != 0).sum())
    for layer, theta in zip(sparse.where, latents.pooling_params, strict=True):
        assert 0 < len(layer.indices) < theta.mu[:, 0].numel()


def test_places_of_a_tile_are_places_of_the_picture() -> None:
    values = torch.arange(24.0).view(1, 2, 3, 4)
    part = SparseMap.of(values, values[0] % 5 == 0, (2, 10, 20), corner=(4, 7))
    expected = torch.zeros(2, 10, 20)
    expected[:, 4:7, 7:11] = torch.where(values[0] % 5 == 0, values[0], 0)
    torch.testing.assert_close(part.dense()[0], expected)


def test_parts_are_joined() -> None:
    _, latents, sparse = sparsified("2 layers, 3-D pooling")
    grids = [layer.grid for layer in (sparse.features, *sparse.where)]

    def half(layer: SparseMap, upper: bool) -> SparseMap:
        keep = (layer.indices < 7) == upper
        return SparseMap(layer.grid, layer.indices[keep], layer.values[keep])

    parts = [
        SparseLatents(
            half(sparse.features, upper), tuple(half(layer, upper) for layer in sparse.where)
        )
        for upper in (True, False)
    ]
    joined = SparseLatents.cat(parts)
    assert [layer.grid for layer in (joined.features, *joined.where)] == grids
    for ours, theirs in zip(joined.dense().tensors(), sparse.dense().tensors(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    torch.testing.assert_close(joined.dense().p, latents.p)
