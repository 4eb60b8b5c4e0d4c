"""The plugin without a window: what its functions do with arrays, what its manifest names, and,
where napari is installed, what the widgets return."""

import importlib
from pathlib import Path

import napari_whatwhere
import numpy as np
import pytest
from napari_whatwhere import anomalies_of, filled_in, without_noise

RANDOM = np.random.default_rng(0)


def squares(height: int = 64, width: int = 72) -> np.ndarray:
    picture = np.full((height, width), 40.0)
    picture[10:30, 12:40] = 160
    picture[35:60, 30:66] = 100
    return picture


def error(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean((np.asarray(a, float) - np.asarray(b, float)) ** 2))


def test_a_stack_loses_its_noise_and_keeps_shape_and_type() -> None:
    truth = np.broadcast_to(squares(), (2, 3, 64, 72))
    noisy = (truth + 15 * RANDOM.normal(size=truth.shape)).clip(0, 255).astype(np.uint8)
    done: list[tuple[int, int]] = []
    clean = without_noise(noisy, quality=8, report=lambda *numbers: done.append(numbers))
    assert (clean.shape, clean.dtype) == (noisy.shape, noisy.dtype)
    assert error(clean, truth) < 0.15 * error(noisy, truth)
    assert done == [(number, 6) for number in range(1, 7)]


def test_colours_stay_colours() -> None:
    truth = np.stack([squares(), 200 - squares(), squares() / 2], 2)
    noisy = truth + 15 * RANDOM.normal(size=truth.shape)
    clean = without_noise(noisy, 15.0, in_colour=True, quality=8)
    assert clean.shape == noisy.shape
    assert error(clean, truth) < 0.15 * error(noisy, truth)


def test_frames_of_a_film_are_averaged() -> None:
    truth = np.broadcast_to(squares(), (4, 64, 72))
    noisy = truth + 25 * RANDOM.normal(size=truth.shape)
    alone, together = (without_noise(noisy, 25.0, frames=n, quality=8) for n in (1, 4))
    assert error(together, truth) < error(alone, truth)
    with pytest.raises(ValueError, match="to average frames"):
        without_noise(noisy[0], frames=4)


def test_labelled_pixels_are_filled_in_and_others_stay() -> None:
    image = np.stack([squares(), squares()[::-1]]).astype(np.float32)
    unknown = np.zeros((64, 72), int)
    unknown[20, 5:60] = 3
    damaged = np.where(unknown > 0, 255, image).astype(np.float32)
    filled = filled_in(damaged, unknown)
    assert (filled[:, unknown == 0] == image[:, unknown == 0]).all()
    assert error(filled, image) < 0.1 * error(damaged, image)
    assert (filled_in(image, np.zeros((64, 72), int)) == image).all()


def test_anomalies_are_outlined() -> None:
    normal = 100 + 20 * RANDOM.normal(size=(12, 48, 48)).cumsum(2) / 5
    image = 100 + 20 * RANDOM.normal(size=(48, 48)).cumsum(1) / 5
    image[20:28, 20:28] = 250
    rarity, outline = anomalies_of(image.astype(np.uint8), normal.clip(0, 255).astype(np.uint8))
    assert rarity.shape == outline.shape == (48, 48)
    assert rarity[18:30, 18:30].max() == rarity.max()
    assert outline[18:30, 18:30].any()


@pytest.mark.parametrize("shape", [(5,), (8, 8, 2)])
def test_shapes_that_do_not_fit_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="Got an image of shape"):
        without_noise(np.zeros(shape), in_colour=len(shape) == 3)


def test_the_manifest_names_functions_that_exist() -> None:
    npe2 = pytest.importorskip("npe2", reason="needs npe2, which napari brings")
    file = Path(napari_whatwhere.__file__).with_name("napari.yaml")
    manifest = npe2.PluginManifest.from_file(file)
    manifest.validate_imports()
    commands = {command.id: command.python_name for command in manifest.contributions.commands}
    assert len(commands) == 3
    for widget in manifest.contributions.widgets:
        module, name = commands[widget.command].split(":")
        assert callable(getattr(importlib.import_module(module), name))


def test_widgets_return_layers() -> None:
    layers = pytest.importorskip("napari.layers", reason="needs napari")
    pytest.importorskip("qtpy", reason="needs napari with Qt")
    try:
        import napari.qt.threading  # noqa: F401
    except Exception as problem:
        pytest.skip(f"needs Qt: {problem}")
    from napari_whatwhere.widgets import fill_in, layer_like, remove_noise

    image = layers.Image(squares().astype(np.float32), name="cells", scale=(0.1, 0.1))
    worker = remove_noise(image, estimate=False, sigma=10.0)
    data, looks, kind = worker.work()
    assert (data.shape, kind) == (image.data.shape, "image")
    assert looks["name"] == "cells, without noise"
    assert looks["scale"] == [0.1, 0.1]
    layers.Layer.create(*layer_like(image, data, "filled in"))
    unknown = layers.Labels(np.pad(np.ones((1, 3), int), ((30, 33), (20, 49))))
    assert fill_in(image, unknown).work()[0].shape == image.data.shape
