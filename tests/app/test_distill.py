"""`whatwhere distill`, run as a command, and the commands that take what it learned."""

import json
from pathlib import Path

import numpy as np
import pytest

import tiny_run as tiny
import whatwhere as ww
from raising import Containing, raises
from tiny_run import PLAIN, whatwhere
from whatwhere.errors import InvalidImages, InvalidSetting, SpecError
from whatwhere.inference.learned_steps import NoLearnedSteps

QUICK = ("--set", "batches=5", "--set", "batch_size=4", *PLAIN)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three learned steps."""
    folder = tiny.make(tmp_path_factory.mktemp("distill") / "run")
    images, labels = tiny.bars(60, seed=1)
    np.savez(folder / "bars.npz", images=images, labels=labels)
    whatwhere("distill", folder, "--images", folder / "bars.npz", "--steps", 3, *QUICK, "--quiet")
    return folder


def test_the_cost_after_the_learned_steps_is_reported_and_lower_than_before(run: Path) -> None:
    options = ("--steps", 2, "--set", "inference.lam=3", "--set", "imitation=0.1", *QUICK)
    result = json.loads(whatwhere("distill", run, "--images", run / "bars.npz", *options, "--json"))
    assert result["images"] == 6
    assert result["file"] == str(run / "inference-2.safetensors")
    model, held_out = ww.load(run), ww.data.load(run / "bars.npz")[slice(54, 60)]
    learned = ww.LearnedSteps.load(run, 2)
    assert learned.spec.lam == 3
    assert len(learned.upward) == model.spec.depth
    settings = {
        "2 learned steps": (learned.model_for(model), learned.spec),
        "2 plain steps": (model, ww.InferenceSpec(lam=3.0, steps=2)),
        "50 plain steps": (model, ww.InferenceSpec(lam=3.0)),
    }
    for name, (used, spec) in settings.items():
        cost = ww.infer(used, held_out, spec, engine="reference").stats.cost[-1].mean()
        assert result["cost"][name] == pytest.approx(float(cost), rel=1e-5)
    guess = ww.UnrolledInference(model, 2, ww.InferenceSpec(lam=3.0)).spec
    before = ww.infer(model, held_out, guess, engine="reference").stats.cost[-1].mean()
    assert result["cost"]["2 learned steps"] < 0.98 * before
    (run / "inference-2.safetensors").unlink()


def test_encode_writes_the_codes_of_the_learned_steps(run: Path, tmp_path: Path) -> None:
    whatwhere(
        "encode",
        run / "bars.npz",
        run,
        "--out",
        tmp_path / "codes.npz",
        "--preset",
        "learned",
        "--set",
        "exact=true",
        *PLAIN,
    )
    images = ww.data.load(run / "bars.npz")
    expected = ww.infer(ww.load(run), images, steps="learned", engine="reference").features
    assert (expected != 0).any()
    assert np.allclose(ww.load_codes(tmp_path / "codes.npz").features, expected.numpy(), atol=1e-6)
    with raises(InvalidSetting, given="--set inference.… with --preset learned"):
        whatwhere(
            "encode",
            "digits",
            run,
            "--out",
            "x.npz",
            "--preset",
            "learned",
            "--set",
            "inference.lam=2",
        )


def test_classify_describes_images_by_the_learned_steps(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whatwhere.classification import anywhere

    seen = []

    def describe_where(model, images, recipe, **options):  # type: ignore[no-untyped-def]
        seen.append(recipe.inference)
        return original(model, images, recipe, **options)

    original = anywhere.describe_where
    monkeypatch.setattr(anywhere, "describe_where", describe_where)
    arguments = ("svm", run / "bars.npz", run, "--set", "C=[1]", "--preset", "learned-3")
    assert json.loads(whatwhere(*arguments, "--json", *PLAIN))["error"] < 0.5
    assert seen == [ww.LearnedSteps.load(run).spec] * 2
    with pytest.raises(SpecError, match=r"descriptor of layers \(1,\) with learned steps"):
        whatwhere(*arguments, "--set", "descriptor.layers=[1]", *PLAIN)


def test_what_is_missing_is_named(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", tiny.bars(1)[0])
    with raises(InvalidImages, given="1 image"):
        whatwhere("distill", run, "--images", tmp_path / "one.npy", *QUICK)
    with raises(NoLearnedSteps, remedy=Containing("whatwhere distill", "--steps 7")):
        whatwhere("svm", run / "bars.npz", run, "--preset", "learned-7", *PLAIN)
