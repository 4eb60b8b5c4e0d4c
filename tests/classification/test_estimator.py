"""The scikit-learn interface: scikit-learn's checks, shapes, types, batches, round trips,
errors."""

import pickle
from dataclasses import replace

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import whatwhere as ww
from whatwhere.classification.metric import learn_metric
from whatwhere.errors import ImageError, SpecError
from whatwhere.learning import TrainingOptions
from whatwhere.spec import EveryBatch, LineSearch

SMALL = {
    "maps": (3, 4),
    "filter_size": 3,
    "epochs": 1,
    "training_steps": 2,
    "steps": 3,
    "engine": "reference",
}


def features(**changes):  # type: ignore[no-untyped-def]
    return ww.DeconvNetFeatures(**{**SMALL, **changes})


# "auto": the same digits in every batch, and faster; one layer, as the checks of the other have two
INVARIANT = features(
    maps=(3,), invariant_to=ww.Distortions(copies=2), engine="auto", nonnegative=False
)


@parametrize_with_checks([features(engine="auto"), INVARIANT])
def test_scikit_learn_estimator_checks(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return ww.data.load("digits")[:40].numpy()


def test_every_shape_of_the_same_images_gives_the_same(images: np.ndarray) -> None:
    images = images[:6]
    square = images[:, :, :20, :20]
    wanted = features().fit_transform(square)
    assert wanted.shape == (6, features().fit(square)._n_features_out)
    assert wanted.dtype == np.float32
    np.testing.assert_array_equal(features().fit_transform(square[:, 0]), wanted)
    np.testing.assert_array_equal(features().fit_transform(square.reshape(6, -1)), wanted)
    oblong = images[:, :, :20, :16]
    rows = features(shape=(20, 16)).fit_transform(oblong.reshape(6, -1))
    np.testing.assert_array_equal(rows, features().fit_transform(oblong))
    colour = np.concatenate([square, square, square], 1)
    found = features(shape=(3, 20, 20)).fit(colour.reshape(6, -1))
    assert found.image_shape_ == (3, 20, 20)
    np.testing.assert_array_equal(found.transform(colour), features().fit_transform(colour))


def test_rows_of_a_non_square_number_are_one_line_of_pixels() -> None:
    assert features().fit(np.random.default_rng(0).random((9, 7))).image_shape_ == (1, 1, 7)


def test_nan_marks_unknown_pixels(images: np.ndarray) -> None:
    v = images[:, :, 6:20, 6:20]
    known = np.random.default_rng(0).random(v.shape) > 0.3
    holes = np.where(known, v, np.nan).astype(np.float32)
    fitted = features().fit(holes)
    assert fitted.scale_ == v[known].max()
    mask = torch.from_numpy(known).float()
    scaled = torch.from_numpy(v / fitted.scale_)
    expected = ww.infer(
        fitted.model_, scaled, fitted._recipe().inference, mask=mask, engine="reference"
    ).latents
    encoded = fitted.encode(holes)
    np.testing.assert_array_equal(encoded.p, expected.p)
    assert np.isfinite(fitted.decode(encoded)).all()
    assert np.isfinite(fitted.transform(holes)).all()
    with pytest.raises(ValueError, match="Negative values"):
        fitted.transform(holes - 2)
    with pytest.raises(ImageError, match="no known pixel"):
        fitted.transform(np.full_like(v, np.nan))


def test_tensors_give_tensors(images: np.ndarray) -> None:
    images = images[:10]
    tensors = torch.from_numpy(images)
    fitted = features().fit(tensors)
    found = fitted.transform(tensors)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_array_equal(found, fitted.transform(images))
    latents = fitted.encode(tensors)
    assert isinstance(latents.p, torch.Tensor)
    assert isinstance(fitted.decode(latents), torch.Tensor)


@pytest.mark.parametrize("engine", ["reference", "auto"])
def test_the_result_for_an_image_does_not_depend_on_its_batch(
    images: np.ndarray, engine: str
) -> None:
    fitted = features(maps=(16, 48), filter_size=5, steps=5, lam=20.0, engine=engine).fit(
        images[:3]
    )
    together = fitted.transform(images[:5])
    alone = np.concatenate([fitted.transform(images[i : i + 1]) for i in range(5)])
    np.testing.assert_array_equal(together, alone)
    fitted.batch_size = 3
    np.testing.assert_array_equal(fitted.transform(images[4::-1])[::-1], together)


def test_the_reconstruction_is_near_the_images_and_scaled_like_them(images: np.ndarray) -> None:
    given = 255 * images[:8]
    fitted = features(
        maps=(8,), filter_size=5, epochs=3, training_steps=10, lam=20.0, steps=30
    ).fit(given)
    assert fitted.scale_ == 255
    latents = fitted.encode(given)
    assert latents.p.shape == (8, 8, 16, 16)
    assert latents.pooling_params[0].mu.shape == (8, 2, 8, 16, 16)
    made = fitted.decode(latents)
    assert isinstance(made, np.ndarray)
    assert made.shape == given.shape
    assert np.square(made - given).sum() < 0.1 * np.square(given).sum()


def test_codes_are_converged_unless_steps_are_given(images: np.ndarray) -> None:
    fitted = features(maps=(3,), engine="auto", steps=None).fit(images[:4])
    v = torch.from_numpy(images[:4]).view(4, 1, *images.shape[-2:]) / fitted.scale_
    for steps, spec in ((None, ww.InferenceSpec.coding()), (7, ww.InferenceSpec(steps=7))):
        fitted.steps = steps
        np.testing.assert_array_equal(
            fitted.encode(images[:4]).p, ww.infer(fitted.model_, v, spec).features
        )
    fitted.steps = None
    descriptors = fitted.transform(images[:4])
    fitted.steps = 30
    np.testing.assert_array_equal(fitted.transform(images[:4]), descriptors)


def test_a_raw_descriptor_is_the_features_of_unit_length(images: np.ndarray) -> None:
    images = images[:10]
    raw = features(descriptor=ww.DescriptorSpec(raw=True)).fit(images)
    p = raw.encode(images).p.reshape(10, -1)
    length = np.linalg.norm(p, axis=1, keepdims=True)
    np.testing.assert_allclose(
        raw.transform(images), p / np.where(length > 0, length, 1), atol=1e-6
    )


def test_it_works_where_transformers_work(images: np.ndarray, tmp_path) -> None:  # type: ignore[no-untyped-def]
    x, y = images[:20, 0, 4:24, 4:24], ww.data.load("digits").labels[:20] % 2
    pipeline = make_pipeline(features(), LinearSVC())
    small = x[:, 4:14, 4:14]
    assert len(cross_val_score(pipeline, small, y, cv=2)) == 2
    search = GridSearchCV(
        pipeline, {"deconvnetfeatures__lam": [2.0, 20.0], "linearsvc__C": [1.0]}, cv=2
    ).fit(small, y)
    assert search.best_params_["deconvnetfeatures__lam"] in (2.0, 20.0)
    fitted = features(descriptor=ww.DescriptorSpec(cell=2), size=100, maps=[3, 4]).fit(x)
    assert fitted.transform(x).shape[1] <= 100, "144 by default"
    assert clone(fitted).get_params() == fitted.get_params()
    joblib.dump(fitted, tmp_path / "features.joblib")
    for copy in (joblib.load(tmp_path / "features.joblib"), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(copy.transform(x), fitted.transform(x))


def test_partial_fit_is_one_pass_in_which_the_filters_move_after_every_batch(
    images: np.ndarray,
) -> None:
    parts = np.array_split(images, 4)
    first = features(batch_size=5).partial_fit(parts[0])
    scale, recipe = first.scale_, first._recipe()
    drawn = ww.DeconvNet(recipe.model, seed=int(np.random.RandomState(0).randint(2**31)))
    inference = replace(recipe.learning[0].inference, step=LineSearch())
    learning = replace(
        recipe.learning[0], update=EveryBatch(), epochs=1, cg_steps=1, inference=inference
    )
    stream = replace(recipe, batch_size=5, learning=(learning, learning))
    v = torch.from_numpy(parts[0]) / scale
    expected = ww.train(
        v, stream, start=drawn, options=TrainingOptions(engine="reference", device="cpu")
    )
    assert all(
        torch.equal(f, g) for f, g in zip(first.model_.filters, expected.model.filters, strict=True)
    )
    assert [(report.layer, report.epoch, report.images) for report in first.history_] == [
        (1, 1, 10),
        (2, 1, 10),
    ]
    before = first.model_.filters[1]
    first.partial_fit(parts[1])
    assert not torch.equal(first.model_.filters[1], before)
    assert first.scale_ == scale
    with pytest.raises(ValueError, match="expect"):
        first.partial_fit(parts[2][:, :, :20, :])


def test_the_seed_determines_the_filters(images: np.ndarray) -> None:
    one, same, other = (
        features(random_state=seed).fit(images[:8]).model_.filters[0] for seed in (1, 1, 2)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_no_images_raise_the_error_of_scikit_learn() -> None:
    with pytest.raises(ValueError, match="Found array with 0 sample"):
        features().fit(np.zeros((0, 28, 28)))


def test_colours_may_come_last() -> None:
    colour = np.random.default_rng(0).random((6, 12, 12, 3), dtype=np.float32)
    rows = features().fit_transform(np.moveaxis(colour, -1, 1))
    np.testing.assert_array_equal(features().fit_transform(colour), rows)
    assert features(shape=(12, 12, 3)).fit(colour).image_shape_ == (12, 12, 3)
    assert features().fit(colour[:, :3]).image_shape_ == (3, 12, 3)
    grey = colour[..., :1]
    np.testing.assert_array_equal(
        features().fit_transform(grey), features().fit_transform(grey[..., 0])
    )


def test_invalid_input_raises_an_error(images: np.ndarray) -> None:
    fitted = features().fit(images)
    with pytest.raises(ValueError, match="Negative values"):
        features().fit(-images)
    with pytest.raises(ValueError, match="784"):
        fitted.transform(images[:, :, :20])
    with pytest.raises(SpecError, match=r"shape = \(5, 5\) for rows of 784 pixels"):
        features(shape=(5, 5)).fit(images.reshape(40, -1))
    with pytest.raises(SpecError, match="maps = None; expected a number for each layer"):
        features(maps=None).fit(images)
    with pytest.raises(SpecError, match="evice 'gpu'"):
        features(device="gpu").fit(images)
    with pytest.raises(ImageError, match="latents have no features"):
        fitted.decode(ww.Latents())


def test_one_number_of_maps_is_one_layer(images: np.ndarray) -> None:
    model = features(maps=3, epochs=1).fit(images[:5]).model_
    assert [layer.maps for layer in model.spec.layers] == [3]


def test_rows_are_invariant_to_distortions(images: np.ndarray) -> None:
    how = ww.Distortions(rotation=20, copies=2)
    plain, fitted = features().fit(images), features(invariant_to=how).fit(images)
    rows = fitted.transform(images)
    wanted = learn_metric(
        plain.model_, torch.as_tensor(images) / plain.scale_, plain._recipe(), how
    )
    # few images: columns without variance
    np.testing.assert_allclose(rows, wanted(plain.transform(images)), atol=2e-3)
    assert rows.shape == (40, fitted.get_feature_names_out().size)
