"""Learned steps as files: what was learned comes back, belongs to one model, and is what `infer`
takes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import whatwhere as ww
from examples import SPECS, random_images
from raising import raises
from whatwhere.errors import InvalidSetting, UnusableRunFile, command
from whatwhere.inference.learned_steps import (
    FORMAT,
    LearnedSteps,
    NoLearnedSteps,
    StepsOfAnotherModel,
    read_steps,
    saved_steps,
)
from whatwhere.model import DeconvNet
from whatwhere.model.checksums import checksum
from whatwhere.spec import InferenceSpec, Phase, Schedule, StepSpec

SCHEDULE = Schedule(
    steps=(
        StepSpec(size=0.001 + 0.002, threshold=0.004, extrapolation=0.2, pooling_step=(0.1, 1 / 3)),
        StepSpec(size=0.004, threshold=0.002, pooling_step=(0.3,)),
    )
)
SPEC = InferenceSpec(step=SCHEDULE, lam=4.0)
MODEL = DeconvNet(SPECS["2 layers"], seed=3)
IMAGES = random_images(SPECS["2 layers"], 3, 6, 5).float()


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, LearnedSteps]:
    """A model file, and its learned steps next to it."""
    path = tmp_path / "model.safetensors"
    ww.save(MODEL, path)
    learned = LearnedSteps(SPEC, MODEL.checksum)
    learned.save(path)
    return path, learned


def test_steps_come_back_as_they_were(saved: tuple[Path, LearnedSteps]) -> None:
    path, learned = saved
    for found in (LearnedSteps.load(path), LearnedSteps.load(path.parent)):
        assert (found.spec, found.model_checksum, found.upward) == (
            SPEC,
            learned.model_checksum,
            (),
        )
    assert [file.name for file in sorted(path.parent.iterdir())] == [
        "inference-2.safetensors",
        "model.safetensors",
    ]


def test_filters_of_the_pass_up_come_back_and_are_used(saved: tuple[Path, LearnedSteps]) -> None:
    path, tied = saved
    learned = replace(tied, upward=DeconvNet(SPECS["2 layers"], seed=4).filters)
    learned.save(path)
    model = ww.load(path)
    used = LearnedSteps.load(path).model_for(model)
    assert not used.tied
    assert all(torch.equal(a, b) for a, b in zip(used.upward, learned.upward, strict=True))
    features = ww.infer(model, IMAGES, steps="learned", engine="reference").features
    assert torch.equal(features, ww.infer(used, IMAGES, SPEC, engine="reference").features)
    assert not torch.equal(features, ww.infer(model, IMAGES, SPEC, engine="reference").features)


def test_several_models_in_a_folder_have_their_own_steps(tmp_path: Path) -> None:
    for name in ("one", "two"):
        ww.save(MODEL, tmp_path / f"{name}.safetensors")
    learned = LearnedSteps(SPEC, MODEL.checksum)
    assert learned.save(tmp_path / "one.safetensors").name == "one.inference-2.safetensors"
    assert list(saved_steps(tmp_path / "one.safetensors")) == [2]
    assert saved_steps(tmp_path / "two.safetensors") == {}
    with raises(NoLearnedSteps, known=()) as caught:
        LearnedSteps.load(tmp_path / "two.safetensors")
    assert command("whatwhere", "distill", tmp_path / "two.safetensors") in caught.value.remedy


def test_the_most_steps_are_taken_unless_a_number_is_given(
    saved: tuple[Path, LearnedSteps],
) -> None:
    path, learned = saved
    one = replace(learned, spec=InferenceSpec(step=Schedule(steps=SCHEDULE.steps[:1]), lam=4.0))
    one.save(path)
    model = ww.load(path)
    assert len(LearnedSteps.load(path)) == 2
    assert LearnedSteps.load(path, 1).spec == one.spec
    for name, steps in {"learned": 2, "learned-1": 1, "learned-2": 2}.items():
        assert len(ww.infer(model, IMAGES, steps=name, engine="reference").stats.step) == steps
    with raises(NoLearnedSteps, known=(1, 2)):
        ww.infer(model, IMAGES, steps="learned-3")


def test_infer_takes_the_steps_next_to_the_models_file(saved: tuple[Path, LearnedSteps]) -> None:
    path, learned = saved
    model = ww.load(path)
    expected = ww.infer(MODEL, IMAGES, SPEC, engine="reference")
    assert expected.stats.nonzeros[-1].sum() > 0
    for steps in ("learned", learned):
        found = ww.infer(model.to("cpu"), IMAGES, steps=steps, engine="reference")
        assert torch.equal(found.features, expected.features)
        assert found.lam == 4.0
    double = ww.infer(model.to(torch.float64), IMAGES.double(), steps="learned", engine="reference")
    assert torch.allclose(double.features.float(), expected.features, atol=1e-5)


def test_steps_of_another_model_are_an_error_that_names_the_file(
    saved: tuple[Path, LearnedSteps],
) -> None:
    path, learned = saved
    other = DeconvNet(SPECS["2 layers"], seed=4)
    ww.save(other, path)
    with raises(StepsOfAnotherModel) as caught:
        ww.infer(ww.load(path), IMAGES, steps="learned")
    assert caught.value.name.endswith("inference-2.safetensors")
    assert "--steps 2" in caught.value.remedy
    with raises(StepsOfAnotherModel, name="the learned steps"):
        ww.infer(other, IMAGES, steps=learned)


def test_what_contradicts_learned_steps_is_an_error(saved: tuple[Path, LearnedSteps]) -> None:
    path, learned = saved
    with raises(NoLearnedSteps, known=()):
        ww.infer(MODEL, IMAGES, steps="learned")
    for other in (
        {"spec": InferenceSpec(lam=7.0)},
        {"plan": [Phase(layer=1, update_pooling=(1,))]},
    ):
        with raises(InvalidSetting) as caught:
            ww.infer(MODEL, IMAGES, steps=learned, **other)  # type: ignore[arg-type]
        assert other.items() <= caught.value.given.items()
    for steps in ("learnt", "learned-0", "learned-x", 5.0):
        with raises(InvalidSetting, given={"steps": steps}):
            ww.infer(ww.load(path), IMAGES, steps=steps)  # type: ignore[arg-type]
    with raises(InvalidSetting, expected="a schedule of at least 1 step"):
        LearnedSteps(InferenceSpec(), "")


def test_a_damaged_file_is_an_error_that_names_it(saved: tuple[Path, LearnedSteps]) -> None:
    path, _ = saved
    file = path.parent / "inference-2.safetensors"
    whole = file.read_bytes()
    for damaged in (whole[:40], whole.replace(b"0.002", b"0.003")):
        assert damaged != whole
        file.write_bytes(damaged)
        with raises(UnusableRunFile, path=file, kind="file of learned steps"):
            read_steps(file)
    settings = json.dumps({"spec": {"lam": 1.0}})
    for metadata, reason in (
        (
            {"format": "whatwhere model 2"},
            "its format is 'whatwhere model 2'; expected 'whatwhere learned steps 3'",
        ),
        (
            {"format": FORMAT, "settings": settings, "sha256": checksum(settings, {})},
            "'model' is missing",
        ),
    ):
        save_file({}, file, metadata=metadata)
        with raises(UnusableRunFile, path=file) as caught:
            read_steps(file)
        assert caught.value.reason.startswith(reason)


def test_the_steps_that_ship_belong_to_their_model_and_reach_the_cost_of_30_plain_ones() -> None:
    model, digits = ww.load(ww.models.path("mnist")), ww.data.load("digits", split="test")[:4]
    assert "mnist.inference-5" not in ww.models.names()
    learned = ww.infer(model, digits, steps="learned", engine="reference").stats
    plain = ww.infer(model, digits, ww.InferenceSpec(steps=30), engine="reference").stats
    assert len(learned.step) == 5
    assert learned.cost[-1].mean() < 1.03 * plain.cost[-1].mean()
    assert learned.cost[-1].mean() < 0.75 * plain.cost[5].mean()


def test_a_model_remembers_its_file_until_its_filters_change(
    saved: tuple[Path, LearnedSteps],
) -> None:
    path, _ = saved
    model = ww.load(path.parent)
    assert model.source == path
    assert model.to(torch.float64).source == path
    assert model.with_filters(1, model.filters[0]).source is None
    assert model == MODEL
