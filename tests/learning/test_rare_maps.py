"""Rare maps take over images of others: no cost changes, and every map is used."""

from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
from examples import SPECS, random_images, random_latents
from raising import raises
from whatwhere.errors import InvalidSetting
from whatwhere.latents import Latents
from whatwhere.learning import TrainingStopped
from whatwhere.learning.latent_store import LatentStore
from whatwhere.learning.rare_maps import (
    copy_maps,
    pairs_to_split,
    share_images,
    split_rare,
    without,
)
from whatwhere.learning.training_data import TrainingData
from whatwhere.model import DeconvNet
from whatwhere.spec import EveryEpoch, Recipe


@pytest.fixture
def trained() -> tuple[DeconvNet, torch.Tensor, Latents]:
    """Two layers with latents of eight images, none of which uses map 0 of layer 2."""
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec, dtype=torch.float64), random_images(spec, 8)
    latents = random_latents(model, v)
    p = latents.features.clone()
    p[:, 0] = 0
    return model, v, replace(latents, p=p)


def test_no_reconstruction_changes_and_the_worse_half_moves(
    trained: tuple[DeconvNet, torch.Tensor, Latents],
) -> None:
    model, v, latents = trained
    missed = torch.rand(8, generator=torch.Generator().manual_seed(0), dtype=v.dtype)
    new = share_images(latents, [(0, 1)], missed)
    split = copy_maps(model, 2, [(0, 1)])
    height, width = v.shape[2:]
    torch.testing.assert_close(
        split.at(height, width).decode(new), model.at(height, width).decode(latents)
    )
    assert torch.equal(split.filters[1][:, 0], model.filters[1][:, 1])
    assert torch.equal(split.connectivity[1][:, 0], model.connectivity[1][:, 1])
    before = (latents.features[:, 1] != 0).flatten(1).any(1)
    moved, left = ((new.features[:, k] != 0).flatten(1).any(1) for k in (0, 1))
    assert torch.equal(moved ^ left, before)
    assert not (moved & left).any()
    assert missed[moved].min() >= missed[left].max()
    assert abs(int(moved.sum()) - int(left.sum())) <= 1


def test_a_map_that_nobody_has_in_this_batch_moves_nothing(
    trained: tuple[DeconvNet, torch.Tensor, Latents],
) -> None:
    _, v, latents = trained
    none = replace(latents, p=torch.zeros_like(latents.features))
    assert not share_images(none, [(0, 1)], torch.ones(8, dtype=v.dtype)).features.any()


def test_every_rare_map_splits_another_of_the_busiest_maps() -> None:
    assert pairs_to_split([0, 5, 1, 5, 9], few=0) == [(0, 4)]
    assert pairs_to_split([0, 5, 1, 5, 9], few=1) == [(0, 4), (2, 1)]
    assert pairs_to_split([0, 0, 3], few=0) == [(0, 2)]
    assert pairs_to_split([0, 1], few=0) == []


def test_rare_maps_lose_their_features(
    trained: tuple[DeconvNet, torch.Tensor, Latents],
) -> None:
    _, _, latents = trained
    p = without(latents, [1]).features
    assert not p[:, 1].any()
    assert torch.equal(p[:, 2:], latents.features[:, 2:])


def split_recipe(until: int) -> Recipe:
    """Four epochs with a λ so small that maps die."""
    recipe = tiny.recipe(4, lam=0.3)
    update = EveryEpoch(reset_at=(), split_until=until)
    return replace(recipe, learning=tuple(replace(each, update=update) for each in recipe.learning))


def test_a_training_that_splits_ends_with_other_filters_and_resumes_to_the_same_bits(
    tmp_path,
) -> None:
    images = tiny.images(6)
    plain = tiny.train(split_recipe(0), images)
    split = tiny.train(split_recipe(3), images)
    assert any(epoch.dead_maps for epoch in plain.history[:3] + plain.history[4:7]), "maps die"
    assert not tiny.same_filters(plain.model, split.model)
    stop = tiny.StopAfter(10)
    with pytest.raises(TrainingStopped):
        tiny.train(split_recipe(3), images, tmp_path / "run", stop=stop)
    resumed = tiny.train(split_recipe(3), images, tmp_path / "run", resume=True)
    assert tiny.same_filters(split.model, resumed.model)


def test_maps_that_are_pooled_together_cannot_split() -> None:
    spec = SPECS["2 layers, 3-D pooling"]
    learning = tuple(
        replace(each, update=EveryEpoch(split_until=3)) for each in Recipe.paper(spec).learning
    )
    with raises(InvalidSetting, expected="split_until = 0 there"):
        replace(Recipe.paper(spec), learning=learning)


def test_the_stored_latents_change_with_the_filters() -> None:
    spec = SPECS["2 layers"]
    model, v = DeconvNet(spec), random_images(spec, 6).float()
    latents = random_latents(DeconvNet(spec, dtype=torch.float64), v.double()).to(torch.float32)
    latents = without(latents, [0])
    batches = [slice(0, 4), slice(4, 6)]
    store = LatentStore(2, model.device, None, in_memory=True, local=range(2))
    for number, batch in enumerate(batches):
        store.write(number, latents[batch])
    data = TrainingData(model, v, batches, store, None)
    learning = replace(
        Recipe.paper(spec).learning[1], update=EveryEpoch(split_until=1, split_below=0)
    )
    split = split_rare(model, 2, data, learning, lambda total: total)
    sized, before = split.at(*v.shape[2:]), model.at(*v.shape[2:])
    assert not torch.equal(split.filters[1][:, 0], model.filters[1][:, 0])
    for number, batch in enumerate(batches):
        new = store.read(number)
        assert new.features[:, 0].any(), "the rare map has features in every batch"
        torch.testing.assert_close(sized.decode(new), before.decode(latents[batch]))
    assert split_rare(split, 2, data, learning, lambda total: total) is split, "no map is rare now"
