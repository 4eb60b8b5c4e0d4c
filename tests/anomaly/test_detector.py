"""The anomaly detector: scikit-learn's checks, and defects that are known because the test makes them."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import tiny_run as tiny
import whatwhere as ww
from whatwhere.anomaly.detector import streaming_recipe
from whatwhere.errors import ImageError, SpecError
from whatwhere.spec import DescriptorSpec, EveryBatch, InferenceSpec, LayerSpec, ModelSpec


def small_recipe(steps: int = 3, **model: object) -> ww.Recipe:
    spec = ModelSpec(layers=(LayerSpec(maps=4, filter_size=3),), **model)  # type: ignore[arg-type]
    recipe = streaming_recipe(spec)
    learning = ww.LearningSpec(inference=InferenceSpec(lam=2.0, alpha=0.5, steps=3), update=EveryBatch(), epochs=1)
    inference, descriptor = InferenceSpec(steps=steps), DescriptorSpec(patch=(3,), cell=3)
    return ww.Recipe(
        model=recipe.model, learning=(learning,), inference=inference, descriptor=descriptor, batch_size=20
    )


def detector(**changes: object) -> ww.AnomalyDetector:
    return ww.AnomalyDetector(**{"recipe": small_recipe(), "engine": "reference", **changes})  # type: ignore[arg-type]


def double_model() -> ww.DeconvNet:
    """For scikit-learn's checks: negative values, and subsets that agree to more than float32 gives."""
    return ww.DeconvNet(small_recipe(nonnegative=False).model, dtype=torch.float64)


@pytest.mark.filterwarnings("ignore:images with values up to")  # the checks' own data
@parametrize_with_checks(
    [detector(model=double_model(), recipe=small_recipe(nonnegative=False))],
    expected_failed_checks=lambda _: {"check_estimators_overwrite_params": "joblib does not hash tensors by value"},
)
def test_scikit_learn_estimator_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.fixture(scope="module")
def upright() -> torch.Tensor:
    """Normal images: upright bars."""
    images, labels = tiny.bars(200)
    return torch.from_numpy(images[labels == 0])


@pytest.fixture(scope="module")
def fitted(upright: torch.Tensor) -> ww.AnomalyDetector:
    return detector(recipe=small_recipe(20)).fit(upright)


def others(count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    return tiny.bars(count, seed=7)


def test_images_of_another_kind_score_lower(fitted: ww.AnomalyDetector) -> None:
    images, labels = others()
    scores = fitted.score_samples(images)
    assert roc_auc_score(labels == 0, scores) > 0.95
    predicted = fitted.predict(images)
    assert set(predicted) == {-1, 1}
    assert (predicted[labels == 0] == 1).mean() > 0.8
    assert (predicted[labels == 1] == -1).mean() > 0.8


def stripes(count: int, seed: int) -> torch.Tensor:
    """Upright stripes with some noise, [N, 24, 24]."""
    generator = torch.Generator().manual_seed(seed)
    phase = torch.randint(4, (count, 1, 1), generator=generator)
    return ((torch.arange(24) + phase) % 4 < 2) * 0.8 + 0.2 * torch.rand(count, 24, 24, generator=generator)


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_the_map_is_high_where_a_defect_was_made(weight: float) -> None:
    found = detector(recipe=small_recipe(10), residual_weight=weight, aligned=False).fit(stripes(15, 0))
    clean = stripes(8, 1)
    images, truth = clean.clone(), torch.zeros(8, 24, 24, dtype=torch.bool)
    for n in range(8):
        place = (n, slice(4 + n, 12 + n), slice(12 - n, 20 - n))
        images[place], truth[place] = clean[n].T[place[1:]], True
    maps = found.anomaly_map(images)
    assert isinstance(maps, torch.Tensor)
    assert maps.shape == (8, 24, 24)
    assert roc_auc_score(truth.flatten(), maps.flatten()) > 0.85
    assert (found.score_samples(images) < found.score_samples(clean)).all()


def test_a_blurred_place_of_a_texture_is_found() -> None:
    """It is explained better than a normal one, so the residual is too small there."""
    generator = torch.Generator().manual_seed(2)
    images = torch.rand(20, 24, 24, generator=generator)
    images[12:, 6:18, 6:18] = 0.5 + 0.05 * torch.rand(8, 12, 12, generator=generator)
    truth = torch.zeros(8, 24, 24, dtype=torch.bool)
    truth[:, 6:18, 6:18] = True
    maps = detector(aligned=False, residual_weight=1.0).fit(images[:12]).anomaly_map(images[12:])
    assert isinstance(maps, torch.Tensor)
    assert roc_auc_score(truth.flatten(), maps.flatten()) > 0.85


def test_patches_of_a_texture_are_one_cell() -> None:
    model = ww.DeconvNet(ModelSpec.paper())
    digits, texture = (ww.AnomalyDetector(model, aligned=aligned)._recipe() for aligned in (True, False))
    assert digits.descriptor.cell < max(digits.descriptor.patch) == texture.descriptor.cell
    assert digits.inference.lam < texture.inference.lam


def test_scores_and_maps_do_not_depend_on_the_other_images(fitted: ww.AnomalyDetector) -> None:
    images, _ = others(12)
    together, map_of_all = fitted.decision_and_map(images)
    np.testing.assert_allclose(together, fitted.score_samples(images) - fitted.offset_)
    np.testing.assert_allclose(together[3:5], fitted.decision_function(images[3:5]), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(map_of_all[3:5], fitted.anomaly_map(images[3:5]), rtol=1e-3, atol=1e-3)


def test_evidence_is_in_standard_deviations_of_the_normal_images(upright: torch.Tensor) -> None:
    """With one kind of evidence alone, normal images have scores of mean 0 and deviation 1, as their pixels have."""
    for weight in (0.0, 1.0):
        found = detector(residual_weight=weight).fit(upright)
        for values in (found.score_samples(upright), found.anomaly_map(upright).numpy()):  # type: ignore[union-attr]
            assert values.mean() == pytest.approx(0, abs=1e-3)
            assert values.std() == pytest.approx(1, abs=1e-3)


def test_a_model_that_is_given_is_used_as_it_is(upright: torch.Tensor) -> None:
    model = ww.DeconvNet(small_recipe().model, seed=3)
    given = detector(model=model).fit(upright * 0.5)
    assert given.model_ is model
    assert given.scale_ == 1.0
    trained = detector().fit(upright * 0.5)
    assert trained.scale_ == 0.5
    assert trained.model_ != model


def test_the_default_recipe_learns_in_a_stream_and_follows_the_channels() -> None:
    found = ww.AnomalyDetector()
    found.image_shape_ = (3, 8, 8)
    recipe = found._recipe()
    assert recipe.model.channels == 3
    assert all(layer.streams for layer in recipe.learning)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"residual_weight": 1.5}, "residual_weight = 1.5"),
        ({"contamination": 0.0}, "contamination = 0.0"),
        ({"neighbours": 0}, "neighbours = 0"),
        ({"bank_size": 0}, "bank_size = 0"),
    ],
)
def test_wrong_settings_raise(changes: dict[str, object], message: str, upright: torch.Tensor) -> None:
    with pytest.raises(SpecError, match=message):
        detector(**changes).fit(upright)


def test_images_of_another_size_raise(fitted: ww.AnomalyDetector) -> None:
    with pytest.raises(ImageError, match="expected"):
        fitted.score_samples(np.zeros((2, 5, 20), np.float32))
