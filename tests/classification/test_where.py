"""Whether places matter: the share that they explain, the choice, and the file that keeps it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import whatwhere as ww
from whatwhere.classification.where import (
    WhereChoice,
    choose_where,
    place_share,
    read_choice,
    with_choice,
)
from whatwhere.errors import SpecError, UnknownFormat, UnusableRunFile


def small_model() -> ww.DeconvNet:
    layer = ww.LayerSpec(maps=4, filter_size=3, pool_size=2)
    return ww.DeconvNet(ww.ModelSpec(layers=(layer,)), seed=0)


def recipe_of(model: ww.DeconvNet) -> ww.Recipe:
    recipe = ww.Recipe.paper(model.spec)
    return replace(
        recipe,
        inference=ww.InferenceSpec(steps=5),
        batch_size=50,
        descriptor=ww.DescriptorSpec(where="auto"),
    )


def centred(count: int = 40, side: int = 16) -> torch.Tensor:
    """A square in the middle, of different brightness."""
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(count, 1, side, side)
    images[:, :, 5:11, 5:11] = 0.5 + 0.5 * torch.rand(count, 1, 1, 1, generator=generator)
    return images


def textures(count: int = 40, side: int = 32) -> torch.Tensor:
    """Bright dots anywhere."""
    noise = torch.rand(count, 1, side, side, generator=torch.Generator().manual_seed(0))
    return (noise > 0.95).float()


def test_the_share_is_one_for_the_same_maps_and_none_for_noise() -> None:
    generator = torch.Generator().manual_seed(0)
    one = torch.rand(1, 3, 8, 8, generator=generator).double()
    assert place_share(one.expand(20, 3, 8, 8)) == pytest.approx(1)
    # chance explains 1 / 10 of ten maps of noise
    noise = torch.rand(10, 8, 30, 30, generator=generator)
    assert place_share(noise) == pytest.approx(0, abs=0.01)
    assert place_share(torch.zeros(5, 3, 8, 8)) == 0


def test_places_are_kept_for_objects_in_the_middle_and_forgotten_for_textures() -> None:
    model = small_model()
    recipe = recipe_of(model)
    kept = choose_where(model, centred(), recipe, "reference")
    assert kept.where == "keep"
    assert kept.line == (
        "The rows describe which features lie at which place. For features without places: --set"
        " descriptor.where=forget."
    )
    forgotten = choose_where(model, textures(), recipe, "reference")
    assert forgotten.where == "forget"
    assert "but not where they lie. For both: --set descriptor.where=both." in forgotten.line


def test_what_the_recipe_says_is_not_changed() -> None:
    model = small_model()
    recipe = ww.override(recipe_of(model), {"descriptor": {"where": "both"}})
    assert choose_where(model, textures(), recipe).where == "both"
    with pytest.raises(SpecError, match="where"):
        ww.DescriptorSpec(where="somewhere")


def test_two_runs_of_the_papers_recipe_are_described_alike() -> None:
    """Whatever their pooling finds; the numbers of the reproduction are those of `keep`."""
    model = small_model()
    recipe = replace(ww.Recipe.paper(model.spec), inference=ww.InferenceSpec(steps=5))
    for images in (centred(), textures()):
        assert choose_where(model, images, recipe, "reference").where == "keep"


def test_the_included_recipes_and_model_files_choose_by_the_images(tmp_path: Path) -> None:
    for name in ("demo", "pictures", "photographs", "signals"):
        assert ww.read_recipe(name).descriptor.where == "auto", name
    ww.save(small_model(), tmp_path / "model.safetensors")
    assert ww.read_run(tmp_path / "model.safetensors").recipe.descriptor.where == "auto"


def test_a_choice_is_kept_and_taken_again(tmp_path: Path) -> None:
    model = small_model()
    recipe = recipe_of(model)
    file = tmp_path / "where.json"
    first = choose_where(model, centred(), recipe, "reference", kept_in=file)
    assert read_choice(file) == first
    assert choose_where(model, textures(), recipe, "reference", kept_in=file) == first
    assert with_choice(recipe, first).descriptor.where == "keep"
    known = file.read_text()
    file.write_text(known.replace('"keep"', '"auto"'))
    with pytest.raises(UnusableRunFile, match="expected keep, forget or both"):
        read_choice(file)
    file.write_text(known.replace("whatwhere where 1", "whatwhere where 2"))
    with pytest.raises(UnusableRunFile) as caught:
        read_choice(file)
    assert isinstance(caught.value.__cause__, UnknownFormat)
    assert read_choice(None) is None
    assert WhereChoice("keep", "a").line == "a"
