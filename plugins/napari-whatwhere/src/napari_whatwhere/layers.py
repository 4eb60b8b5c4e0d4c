"""What the tools do with the data of layers: arrays in, arrays out, without napari.

An image is [..., H, W], or [..., H, W, 3] if it has colours. The leading axes, such as time and
depth, count planes.
"""

from collections.abc import Callable, Iterator

import numpy as np

import whatwhere as ww

Report = Callable[[int, int], None]
"""Called with the number of planes that are done, and of all."""


def without_noise(
    image: np.ndarray,
    noise: float | None = None,
    *,
    in_colour: bool = False,
    alike: bool = True,
    frames: int = 1,
    quality: int = 16,
    report: Report | None = None,
) -> np.ndarray:
    """Return an image without its noise, with the shape and the type of the image.

    noise      standard deviation of white noise in the units of the image; None: the noise is
               estimated
    in_colour  whether the last axis is red, green and blue
    alike      estimate the noise of all planes together, from 16 of them
    frames     average so many successive planes where they show the same; needs [T, H, W]
    """
    image = np.asarray(image)
    spec = ww.restoration.RestorationSpec(frames=frames, quality=quality)
    if frames > 1:
        if in_colour or image.ndim != 3:
            raise ValueError(
                f"Got an image of shape {image.shape}; expected [T, H, W] to average frames."
            )
        return ww.restoration.denoise(image, noise=noise, spec=spec)
    planes = list(_planes(image, in_colour))
    given = noise
    if given is None and alike and len(planes) > 1:
        places = np.linspace(0, len(planes) - 1, min(len(planes), 16)).round().astype(int)
        given = ww.restoration.estimate_noise([_as_tensor(planes[i], in_colour) for i in places])
    return _each(
        planes,
        image,
        report,
        lambda _, plane: ww.restoration.denoise(plane, noise=given, spec=spec),
    )


def filled_in(
    image: np.ndarray,
    unknown: np.ndarray,
    *,
    in_colour: bool = False,
    report: Report | None = None,
) -> np.ndarray:
    """Return an image whose unknown pixels are filled in; all others stay as they are.

    unknown  labels of the shape of the image, or of one of its planes; pixels other than 0 are
             unknown
    """
    image = np.asarray(image)
    shape = image.shape[:-1] if in_colour else image.shape
    known = np.broadcast_to(np.asarray(unknown) == 0, shape)
    masks = known.reshape(-1, *shape[-2:])

    def fill(number: int, plane: np.ndarray) -> np.ndarray:
        if masks[number].all():
            return plane
        return ww.restoration.inpaint(plane, masks[number])

    return _each(list(_planes(image, in_colour)), image, report, fill)


def anomalies_of(
    image: np.ndarray, normal: np.ndarray, *, in_colour: bool = False, aligned: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return a map of how rare each place of an image is among normal images, and the outlines of
    what is rarer than 1 % of their area: floats and labels [..., H, W].

    image    [..., H, W] or [..., H, W, 3]
    normal   images of normal things, [N, H, W] or [N, H, W, 3]
    aligned  compare each place with the same place of the normal images
    """
    image, normal = np.asarray(image), np.asarray(normal)
    detector = ww.AnomalyDetector(aligned=aligned)
    detector.fit([_as_picture(plane, in_colour) for plane in _planes(normal, in_colour)])
    planes = [_as_picture(plane, in_colour) for plane in _planes(image, in_colour)]
    maps = np.stack(detector.anomaly_map(planes))
    shape = image.shape[:-1] if in_colour else image.shape
    rarity = maps.reshape(shape).astype(np.float32)
    return rarity, (rarity > detector.outline_).astype(np.uint8)


def _planes(image: np.ndarray, in_colour: bool) -> Iterator[np.ndarray]:
    """Yield the planes [H, W] or [H, W, 3] of an image."""
    axes = 3 if in_colour else 2
    if image.ndim < axes or (in_colour and image.shape[-1] not in (3, 4)):
        kind = "[..., H, W, 3]" if in_colour else "[..., H, W]"
        raise ValueError(f"Got an image of shape {image.shape}; expected {kind}.")
    yield from image.reshape(-1, *image.shape[-axes:])


def _each(
    planes: list[np.ndarray],
    image: np.ndarray,
    report: Report | None,
    restore: Callable[[int, np.ndarray], np.ndarray],
) -> np.ndarray:
    """Restore all planes of an image."""
    results = []
    for number, plane in enumerate(planes):
        results.append(restore(number, plane))
        if report is not None:
            report(number + 1, len(planes))
    return np.stack(results).reshape(image.shape).astype(image.dtype, copy=False)


def _as_tensor(plane: np.ndarray, in_colour: bool):
    """Return a plane as floats [C, H, W]."""
    import torch

    values = plane[..., :3].transpose(2, 0, 1) if in_colour else plane[None]
    return torch.from_numpy(np.ascontiguousarray(values, np.float64))


def _as_picture(plane: np.ndarray, in_colour: bool) -> np.ndarray:
    """Return a plane as floats [C, H, W] from 0 to 1 where its type says what white is."""
    values = plane[..., :3].transpose(2, 0, 1) if in_colour else plane[None]
    white = np.iinfo(plane.dtype).max if plane.dtype.kind in "iu" else 1
    return np.ascontiguousarray(values, np.float32) / np.float32(white)
