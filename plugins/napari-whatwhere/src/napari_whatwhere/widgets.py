"""The tools as napari shows them: each takes layers and returns a worker whose result is a layer.

The work is done in a thread, so the viewer stays usable; progress is shown by napari.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from napari_whatwhere.layers import anomalies_of, filled_in, without_noise

if TYPE_CHECKING:
    import napari
    import napari.qt.threading
    import napari.types


def remove_noise(
    image: napari.layers.Image,
    estimate: bool = True,
    sigma: float = 0.0,
    taken_alike: bool = True,
    frames: int = 1,
) -> napari.qt.threading.FunctionWorker[napari.types.LayerDataTuple]:
    """Remove the noise of an image or a stack.

    estimate     estimate the noise; otherwise it is white noise of standard deviation `sigma`
    taken_alike  all planes have the same noise, which is estimated once
    frames       average so many successive planes of a film where they show the same
    """

    def work() -> tuple[Any, dict[str, Any], str]:
        noise = None if estimate else sigma
        clean = without_noise(
            image.data, noise, in_colour=image.rgb, alike=taken_alike, frames=frames
        )
        return layer_like(image, clean, "without noise")

    return _worker(work, "Remove noise")


def fill_in(
    image: napari.layers.Image, unknown: napari.layers.Labels
) -> napari.qt.threading.FunctionWorker[napari.types.LayerDataTuple]:
    """Fill in the pixels of an image that are labelled."""

    def work() -> tuple[Any, dict[str, Any], str]:
        filled = filled_in(image.data, unknown.data, in_colour=image.rgb)
        return layer_like(image, filled, "filled in")

    return _worker(work, "Fill in missing pixels")


def find_anomalies(
    image: napari.layers.Image, normal: napari.layers.Image, same_position: bool = False
) -> napari.qt.threading.FunctionWorker[list[napari.types.LayerDataTuple]]:
    """Find what an image has that normal images do not have.

    normal         a stack of normal images
    same_position  objects lie at the same place in all images
    """

    def work() -> list[tuple[Any, dict[str, Any], str]]:
        rarity, outline = anomalies_of(
            image.data, normal.data, in_colour=image.rgb, aligned=same_position
        )
        place = _place_of(image, rarity.ndim)
        name = f"{image.name}: anomalies"
        return [
            (
                rarity,
                {"name": name, "colormap": "inferno", "blending": "additive", **place},
                "image",
            ),
            (outline, {"name": f"{name}, outline", **place}, "labels"),
        ]

    return _worker(work, "Find anomalies")


def layer_like(image: Any, data: Any, word: str) -> tuple[Any, dict[str, Any], str]:
    """Return a layer that lies where an image lies, and looks like it."""
    looks = {"rgb": image.rgb, "name": f"{image.name}, {word}", **_place_of(image, image.ndim)}
    if not image.rgb:
        looks |= {"colormap": image.colormap.name, "contrast_limits": list(image.contrast_limits)}
    return data, looks, "image"


def _place_of(image: Any, axes: int) -> dict[str, Any]:
    """Return the size of a pixel and the position of a layer, of its last axes."""
    return {"scale": list(image.scale[-axes:]), "translate": list(image.translate[-axes:])}


def _worker(work: Any, title: str) -> Any:
    from napari.qt.threading import create_worker

    return create_worker(work, _start_thread=False, _progress={"desc": title})
