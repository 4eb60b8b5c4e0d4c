import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import whatwhere as ww
from examples import SPECS, random_images, random_latents
from raising import raises
from whatwhere.engines.reference.pooling_update import start_pooling
from whatwhere.errors import (
    EngineError,
    ImageError,
    InvalidImages,
    InvalidSetting,
    NotFinite,
    WrongShape,
)
from whatwhere.model import DeconvNet, Problem
from whatwhere.model.deconvnet import NegativeImages
from whatwhere.ops.convolution import convolve_down
from whatwhere.ops.pooling import gaussian_weights
from whatwhere.spec import InferenceSpec, LayerSpec, ModelSpec, Phase, Power


def test_sizes_of_the_paper() -> None:
    first, second = DeconvNet(ModelSpec.paper()).at(28, 28).regions
    assert first.shape == (16, 32, 32)
    assert first.grid == (16, 16, 16)
    assert second.shape == (48, 20, 20)
    assert second.grid == (48, 10, 10)


def test_a_top_feature_sees_14_by_14_pixels() -> None:
    """One element of z₂ reaches 14×14 pixels, as the paper says."""
    model, v = (
        DeconvNet(ModelSpec.paper(), dtype=torch.float64),
        torch.rand(1, 1, 28, 28, dtype=torch.float64),
    )
    theta = start_pooling(Problem(model, v, Phase(layer=2)))
    model = model.at(28, 28)
    weights = model.weights(theta)
    z = torch.zeros(1, 48, 20, 20, dtype=torch.float64)
    z[0, :, 9, 9] = 1
    image = model.reconstruct(convolve_down(z, model.filters[1]), weights[:1])[0, 0]
    rows, columns = (np.flatnonzero(image.abs().sum(d).numpy()) for d in (1, 0))
    assert rows[-1] - rows[0] + 1 == 14
    assert columns[-1] - columns[0] + 1 == 14


@pytest.mark.parametrize("name", SPECS)
def test_filters_are_masked_projected_and_of_unit_length(name: str) -> None:
    spec = SPECS[name]
    model = DeconvNet(spec, seed=3, dtype=torch.float64)
    for k, (f, connected) in enumerate(
        zip(model.filters, model.connectivity, strict=True), start=1
    ):
        assert (f[~connected] == 0).all()
        assert bool((f >= 0).all()) == spec.nonnegative
        # a filter's colour is its own
        per_filter = spec.normalise == "filter" or (k == 1 and spec.channels > 1)
        lengths = f.square().sum((0, 2, 3) if per_filter else (2, 3))
        # a plane without a positive element has vanished: the smaller, the likelier
        if not per_filter:
            assert (lengths > 0)[connected].double().mean() > 0.8
            lengths = lengths[lengths > 0]
        torch.testing.assert_close(lengths, torch.ones_like(lengths))
        fan_in = spec.layers[k - 1].fan_in or spec.maps_below(k)
        assert (connected.sum(0) == fan_in).all()


def test_same_seed_same_model_in_every_dtype() -> None:
    one, two, wide = (
        DeconvNet(ModelSpec.paper(), seed=5, dtype=d)
        for d in (torch.float32,) * 2 + (torch.float64,)
    )
    other = DeconvNet(ModelSpec.paper(), seed=6)
    for k in range(2):
        assert torch.equal(one.filters[k], two.filters[k])
        assert torch.equal(one.filters[k], wide.filters[k].float())
        assert not torch.equal(one.filters[k], other.filters[k])


@pytest.mark.parametrize("name", SPECS)
def test_reconstruction_passes_through_every_layer(name: str) -> None:
    spec = SPECS[name]
    model, images = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    latents = random_latents(model, images)
    model = model.at(*images.shape[2:])
    weights = model.weights(latents.pooling_params)
    signal = latents.p
    for k in range(spec.depth, 0, -1):
        torch.testing.assert_close(model.reconstruct(latents.p, weights, to=k), signal)
        signal = convolve_down(weights[k - 1].unpool(signal), model.filters[k - 1])
    torch.testing.assert_close(model.reconstruct(latents.p, weights), signal)
    assert signal.shape == images.shape


@pytest.mark.parametrize("zero_features", [False, True])
@pytest.mark.parametrize("scale", [1e-9, 1.0, 50.0])
def test_pooling_gradients_are_autograds_at_every_layer(scale: float, zero_features: bool) -> None:
    """∂/∂θ_k of ½‖Rp - v‖² in a model of three layers, for γ near 0 and large, and for p = 0."""
    spec = SPECS["3 layers, colour"]
    model, images = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    latents = random_latents(model, images)
    p = torch.zeros_like(latents.p) if zero_features else latents.p
    thetas = [
        type(theta)(theta.mu.clone().requires_grad_(), (scale * theta.gamma).requires_grad_())
        for theta in latents.pooling_params
    ]
    model = model.at(*images.shape[2:])
    weights = model.weights(thetas)
    cost = 0.5 * (model.reconstruct(p, weights) - images).square().sum()
    variables = [t for theta in thetas for t in (theta.mu, theta.gamma)]
    expected = torch.autograd.grad(cost, variables, materialize_grads=True)
    p_hat = model.descend(p, weights)
    _, errors = model.ascend(p_hat[0] - images, weights)
    for k in range(1, 4):
        found = weights[k - 1].gradient(errors[k - 1], p_hat[k], thetas[k - 1])
        for value, truth in ((found.mu, expected[2 * k - 2]), (found.gamma, expected[2 * k - 1])):
            torch.testing.assert_close(value, truth, rtol=1e-10, atol=1e-10)
            assert bool((truth == 0).all()) == zero_features


@pytest.mark.parametrize("alpha", [0.5, 0.7, 1.0])
def test_objective_is_its_formula(alpha: float) -> None:
    spec = SPECS["2 layers"]
    model, images = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    latents = random_latents(model, images)
    found = Problem(
        model, images, Phase(layer=2), InferenceSpec(lam=3.0, penalty=Power(alpha=alpha))
    ).objective(latents)
    model = model.at(*images.shape[2:])
    weights = model.weights(latents.pooling_params)
    for n in range(len(images)):
        error = model.reconstruct(latents.p, weights)[n] - images[n]
        penalty = sum(abs(float(p)) ** alpha for p in latents.p[n].flatten())
        assert float(found.reconstruction[n]) == pytest.approx(1.5 * float((error**2).sum()))
        assert float(found.penalty[n]) == pytest.approx(penalty)
        assert float(found.cost[n]) == pytest.approx(1.5 * float((error**2).sum()) + penalty)
        assert int(found.nonzeros[n]) == sum(float(p) != 0 for p in latents.p[n].flatten())


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(1, 4),
            st.integers(1, 3),
            st.integers(1, 3),
            st.integers(1, 2),
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 3),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_any_architecture_fits_together(
    layers: list, channels: int, height: int, width: int
) -> None:
    spec = ModelSpec(
        layers=tuple(
            LayerSpec(maps=b * m, filter_size=k, pool_size=s, pool_stride=min(s, t), pool_maps=m)
            for b, k, s, t, m in layers
        ),
        channels=channels,
    )
    model, images = DeconvNet(spec, dtype=torch.float64), random_images(spec, 2, height, width)
    latents = random_latents(model, images)
    model = model.at(height, width)
    weights = model.weights(latents.pooling_params)
    down = model.reconstruct(latents.p, weights)
    up = model.propagate(images, weights)
    assert down.shape == images.shape
    assert up.shape == latents.p.shape
    torch.testing.assert_close(torch.sum(down * images), torch.sum(latents.p * up))


EXPECTED = "a float tensor [N, 1, H, W]"
BAD_IMAGES: dict[str, tuple[Any, type[ImageError], dict[str, Any]]] = {
    "a list": ([[0.0]], InvalidImages, {"given": "list", "expected": EXPECTED}),
    "wrong rank": (torch.zeros(28, 28), WrongShape, {"given": (28, 28), "expected": EXPECTED}),
    "wrong channels": (torch.zeros(1, 3, 8, 8), WrongShape, {"given": (1, 3, 8, 8)}),
    "integers": (
        torch.zeros(1, 1, 8, 8, dtype=torch.uint8),
        InvalidImages,
        {"given": "images of torch.uint8", "remedy": "Divide bytes by 255."},
    ),
    "NaN": (torch.full((1, 1, 8, 8), torch.nan), NotFinite, {"name": "the images"}),
    "Inf": (torch.full((1, 1, 8, 8), torch.inf), NotFinite, {"name": "the images"}),
    "negative": (torch.full((1, 1, 8, 8), -0.5), NegativeImages, {"lowest": -0.5}),
    "no pixels": (torch.zeros(1, 1, 0, 8), WrongShape, {"given": (1, 1, 0, 8)}),
}


@pytest.mark.parametrize("name", BAD_IMAGES)
def test_bad_images_are_refused(name: str) -> None:
    images, error, fields = BAD_IMAGES[name]
    with raises(error, **fields):
        DeconvNet(SPECS["1 layer"]).check_images(images)


def test_a_signed_model_takes_negative_images() -> None:
    DeconvNet(SPECS["2 layers, signed"]).check_images(-torch.ones(1, 1, 8, 8))


def test_weights_are_those_of_each_layers_regions() -> None:
    spec = SPECS["2 layers, 3×3 regions"]
    model, images = DeconvNet(spec, dtype=torch.float64), random_images(spec)
    latents = random_latents(model, images)
    for weights, theta, regions in zip(
        model.at(9, 8).weights(latents.pooling_params),
        latents.pooling_params,
        model.at(9, 8).regions,
        strict=True,
    ):
        for found, expected in zip(
            weights.factors, gaussian_weights(theta, regions).factors, strict=True
        ):
            assert torch.equal(found, expected)


def test_a_model_is_an_immutable_value() -> None:
    model = DeconvNet(SPECS["2 layers"], seed=1)
    same, other = DeconvNet(SPECS["2 layers"], seed=1), DeconvNet(SPECS["2 layers"], seed=2)
    assert model == same
    assert hash(model) == hash(same)
    assert model != other
    assert model != model.to(torch.float64)
    assert model != "a model"
    with pytest.raises(AttributeError):
        model.filters = other.filters
    with pytest.raises(AttributeError):
        del model.spec
    with pytest.raises(TypeError):
        model.filters[0] = other.filters[0]
    for k in (1, 2):
        assert model.with_filters(k, other.filters[k - 1]) != model
    assert model == same, "the original did not change"


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))]
)
def test_a_copy_and_a_pickle_are_equal(duplicate: Callable[[DeconvNet], DeconvNet]) -> None:
    model = DeconvNet(SPECS["3 layers, colour"], seed=1, dtype=torch.float64)
    again = duplicate(model)
    assert again is not model
    assert again == model
    assert torch.equal(again.connectivity[1], model.connectivity[1])


def test_a_model_may_have_other_filters_on_the_pass_up() -> None:
    model, upward = DeconvNet(SPECS["2 layers"]), DeconvNet(SPECS["2 layers"], seed=1).filters
    untied = model.with_upward(upward)
    assert model.tied
    assert not untied.tied
    assert untied != model
    assert untied.with_upward(None) == model
    for copied in (untied.to(torch.float64).to(torch.float32), pickle.loads(pickle.dumps(untied))):
        assert copied == untied
    with raises(InvalidSetting, given={"layers of filters": 1, "of connectivity": 2}):
        model.with_upward(upward[:1])


def test_the_repr_names_every_layer() -> None:
    assert (
        repr(DeconvNet(ModelSpec.paper()))
        == "DeconvNet(1 → 16 maps 5×5, gaussian 2×2 → 48 maps 5×5, fan-in 8, gaussian 2×2; float32,"
        " cpu)"
    )


MALFORMED = {
    "a layer is missing": (
        lambda f, c: (f[:1], c),
        {"layers of filters": 1, "of connectivity": 2},
    ),
    "wrong filter size": (
        lambda f, c: ([f[0][..., :2], f[1]], c),
        {"layers.1.filters": [1, 3, 3, 2]},
    ),
    "wrong rank": (lambda f, c: ([f[0], f[1][0]], c), {"layers.2.filters": [4, 3, 3]}),
    "integers": (
        lambda f, c: ([f[0].int(), f[1].int()], c),
        {"layers.1.filters.dtype": torch.int32},
    ),
    "two dtypes": (
        lambda f, c: ([f[0], f[1].double()], c),
        {"layers.2.filters.dtype": torch.float64},
    ),
    "connectivity of floats": (
        lambda f, c: (f, [c[0].float(), c[1]]),
        {"layers.1.connectivity.dtype": torch.float32},
    ),
    "connectivity turned": (lambda f, c: (f, [c[0].T, c[1]]), {"layers.1.connectivity": [3, 1]}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_parts_that_are_not_those_of_the_spec_raise_an_error(name: str) -> None:
    model = DeconvNet(SPECS["2 layers"])
    change, wrong = MALFORMED[name]
    with raises(InvalidSetting) as caught:
        DeconvNet.from_parts(model.spec, *change(model.filters, model.connectivity))
    assert wrong.items() <= caught.value.given.items()


@pytest.mark.parametrize(
    "device",
    ["nonsense", pytest.param("cuda", marks=pytest.mark.skipif("torch.cuda.is_available()"))],
)
def test_a_device_that_is_not_there_raises(device: str) -> None:
    with pytest.raises(EngineError):
        DeconvNet(SPECS["1 layer"]).to(device)


@pytest.mark.parametrize("use", [lambda m: m(torch.zeros(1, 1, 8, 8)), lambda m: m.parameters()])
def test_what_people_expect_of_a_module_says_what_to_write(use: Any) -> None:
    with raises(TypeError) as caught:
        use(ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=2),))))
    assert "ww.nn.SparseCode2d" in str(caught.value)


def test_a_model_is_no_network_and_says_what_to_write() -> None:
    model = ww.load("mnist")
    for wrong, words in [
        (lambda: model(1), "model.infer(images).features"),
        (lambda: model.parameters(), "ww.train(images, recipe)"),
    ]:
        with pytest.raises(TypeError) as error:
            wrong()
        assert words in str(error.value)


def test_a_model_infers_as_the_function_does() -> None:
    model = ww.load("mnist")
    digit = ww.data.load("digits")[:1]
    own = model.infer(digit, steps=2, engine="reference")
    expected = ww.infer(model, digit, steps=2, engine="reference")
    assert torch.equal(own.features, expected.features)
