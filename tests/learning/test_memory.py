"""A model that does not fit in memory raises an error before anything is allocated."""

from dataclasses import replace

import pytest
import torch

import tiny_training as tiny
import whatwhere.learning.memory
from whatwhere.errors import RunError, SpecError
from whatwhere.inference import infer
from whatwhere.learning.memory import free_memory, latents_fit, latents_per_image, memory_errors
from whatwhere.model import DeconvNet
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec, Recipe


@pytest.mark.parametrize(
    ("layer", "what"),
    [
        (LayerSpec(maps=10**9), "the filters"),
        (LayerSpec(maps=2**62), "the filters"),
        (LayerSpec(maps=2, filter_size=10**6), "the filters"),
        (LayerSpec(maps=10**7, filter_size=1, pool_size=1), "the latents of a batch"),
    ],
)
def test_a_model_that_does_not_fit_in_memory_is_rejected(layer, what, tmp_path, monkeypatch):
    monkeypatch.setattr(whatwhere.learning.memory, "free_memory", lambda _: 10**9)
    recipe = replace(Recipe.paper(ModelSpec(layers=(layer,))), batch_size=5)
    with pytest.raises(SpecError, match=f"{what} of this model would take .* of memory, and 1 GB are free"):
        tiny.train(recipe, tiny.images(), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_size_of_latents_is_what_inference_returns():
    layers = (LayerSpec(maps=4, pool_size=3, pool_stride=2, pool_maps=2), LayerSpec(maps=3, filter_size=2))
    model = DeconvNet(ModelSpec(layers=layers))
    latents = infer(model, torch.rand(1, 1, 9, 7), InferenceSpec(steps=1), engine="reference").latents
    assert latents_per_image(model.spec, 9, 7) == sum(tensor.numel() for tensor in latents.tensors())


def test_a_failed_allocation_says_what_to_do():
    with pytest.raises(RunError, match=r"ran out of memory; take fewer .* or a smaller batch_size"), memory_errors():
        torch.empty(2**60)
    with pytest.raises(RuntimeError, match="something else"), memory_errors():
        raise RuntimeError("something else")


def test_latents_are_kept_in_memory_if_they_fit(tmp_path, monkeypatch):
    cpu = torch.device("cpu")
    assert free_memory(cpu) > 0
    monkeypatch.setattr(whatwhere.learning.memory, "free_memory", lambda _: 1000)
    assert latents_fit(500, cpu, tmp_path)
    assert not latents_fit(501, cpu, tmp_path)
    with pytest.raises(RunError, match="make room"):
        latents_fit(10**18, cpu, tmp_path)
