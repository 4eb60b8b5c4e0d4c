"""Remove noise and fill in gaps: in images with the denoiser or a dictionary, in signals with a
model of waveforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from os import PathLike
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from whatwhere.data import Images
from whatwhere.errors import (
    ImageError,
    InvalidImages,
    InvalidSetting,
    MissingExtra,
    SpecError,
    plural,
    warn,
)
from whatwhere.inference import infer
from whatwhere.inference.target import as_weights, check_mask
from whatwhere.model import DeconvNet
from whatwhere.model.solution import Solution
from whatwhere.restoration.camera import share_of_camera_noise
from whatwhere.restoration.correlation import white_sigma
from whatwhere.restoration.denoiser import Denoiser, load_denoiser, plane_restorer
from whatwhere.restoration.dictionary import denoise_plane, learn_dictionary, load_dictionary
from whatwhere.restoration.estimate import estimate_noise
from whatwhere.restoration.forms import is_pillow, open_form
from whatwhere.restoration.likeness import share_like_noise
from whatwhere.restoration.noise import (
    Noise,
    NoiseEstimate,
    counts_noise,
    is_level,
    read_noise,
)
from whatwhere.restoration.parts import restore_in_parts
from whatwhere.restoration.planes import (
    Progress,
    plane_deviations,
    restore_colour,
    restore_images,
    restore_planes,
)
from whatwhere.restoration.settings import RestorationSpec
from whatwhere.restoration.stacks import merge_frames, scale_to
from whatwhere.spec import AutoLam, InferenceSpec
from whatwhere.spec.checks import require

ImagesT = TypeVar("ImagesT", Tensor, np.ndarray)
PictureT = TypeVar("PictureT")
# for signals, 1/λ in standard deviations of the noise: chosen on simulated recordings
THRESHOLD = 2.0
# factor by which an estimated gain differs from the counted one, so that the counts are doubted
CONTRADICTION = 1.5
# factor of the noise, and share of the pixels, from which on they are restored as a single frame
UNEVEN = 1.25
FEW_SEEN_ONCE = 0.002
FRAMES_SEEN = 4  # frames of a film whose noise is estimated
LARGEST = 1e15  # value whose square, summed over a picture, is within the range of float32
FAITHFUL = 0.02  # 1/λ without noise, as a share of the smallest that leaves no event


def denoise(
    image: PictureT,
    model: Denoiser | Tensor | DeconvNet | None = None,
    noise: Noise = None,
    *,
    spec: RestorationSpec | None = None,
    progress: Progress | None = None,
) -> PictureT:
    """Remove noise from a picture or from several; the result has the same type, shape and units.

    Parameters
    ----------
    image
        a picture as an array or a tensor [H, W] or [H, W, 3] of any number type, a Pillow picture,
        or the path of a file, whose result is an array; several pictures [N, H, W], [N, C, H, W] or
        [N, H, W, 3]; a data set (`Images`), whose result is a tensor; a list of these, whose result
        is a list; or signals [N, C, T], in which NaN marks unknown samples, which stay unknown
    model
        None for the trained denoiser (`load_denoiser`), which is best for photographs and
        micrographs; or atoms [M, K, K] of a dictionary, of mean 0 and length 1 (`load_dictionary`);
        or a `DeconvNet` of signals
    noise
        standard deviation of white noise, in units of the images; None estimates the noise of each
        image, which may grow with the brightness or be correlated. 0 returns the images. "poisson":
        pixels count photons, one for each step of the values (1 for whole numbers). (gain, sigma)
        or (gain, sigma, offset): Poisson noise in which a photon adds `gain` units, plus white
        noise of standard deviation sigma, and a pixel without light has the value `offset`. Or a
        `NoiseEstimate`
    spec
        settings, a `RestorationSpec`
    progress
        called with the number of pixels just done

    Examples
    --------
    >>> truth = torch.linspace(0, 1, 48).expand(48, 48)
    >>> noisy = truth + 0.1 * torch.randn(48, 48)
    >>> clean = ww.restoration.denoise(noisy)
    >>> bool((clean - truth).square().mean() < 0.1 * (noisy - truth).square().mean())
    True
    >>> counts = torch.poisson(20 * truth)
    >>> clean = ww.restoration.denoise(counts, noise="poisson")
    >>> bool((clean - 20 * truth).square().mean() < 0.2 * (counts - 20 * truth).square().mean())
    True
    """
    given = read_noise(noise)
    if isinstance(model, DeconvNet):
        signals: Any = image
        return cast(PictureT, restore_signals(model, signals, _signal_noise(given), spec=spec))
    spec = spec or RestorationSpec()
    require_pictures(spec)
    model = load_denoiser() if model is None else model
    if isinstance(image, list | tuple):
        each = [denoise(one, model, noise, spec=spec, progress=progress) for one in image]
        return cast(PictureT, each)
    form = open_form(image)
    y = as_images(model, form.images)
    if spec.frames > 1 and len(y) > 1:
        film: PictureT = form.close(_denoise_film(model, y, given, form.step, spec, progress))
        return film
    noises = [noise_of_image(each, given, form.step) for each in y]
    if all(level.is_zero for level in noises) and not isinstance(image, str | PathLike | Images):
        return image  # to the bit
    result: PictureT = form.close(_remove_noise(model, y, noises, spec, progress))
    return result


def noise_of_image(
    image: Tensor, given: NoiseEstimate | str | None, step: float | None = None
) -> NoiseEstimate:
    """The noise of an image [C, H, W]: as it was given, or estimated.

    Parameters
    ----------
    step
        difference of neighbouring values, where the type of the pixels says it (`counts_noise`)
    """
    if isinstance(given, NoiseEstimate):
        return given
    if given is None:
        return estimate_noise([image])
    counts = counts_noise(image, step)
    seen = estimate_noise([image])
    if seen.gain > 0 and not 1 / CONTRADICTION < seen.gain / counts.gain < CONTRADICTION:
        warn(
            f"You said that pixels count photons, so that a photon adds {counts.gain:.3g}. The"
            f" picture looks different: {seen.summary()}. Leave the noise out to use this"
            " estimate.",
        )
    return counts


def _signal_noise(given: NoiseEstimate | str | None) -> float | None:
    """The standard deviation of a recording's noise; None: it is estimated."""
    if given is None:
        return None
    if isinstance(given, NoiseEstimate) and given.is_uniform:
        return given.sigma
    raise InvalidSetting("noise of counts for signals", "a standard deviation, or None")


def _remove_noise(
    model: Denoiser | Tensor,
    y: Tensor,
    noises: list[NoiseEstimate],
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """Images [N, C, H, W] without their noise, large ones in parts."""
    return restore_in_parts(
        lambda part, advance: _remove_noise_of_part(model, part, noises, spec, advance), y, progress
    )


def _remove_noise_of_part(
    model: Denoiser | Tensor,
    y: Tensor,
    noises: list[NoiseEstimate],
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """Images [N, C, H, W] without their noise: those with white noise together, others one by
    one."""
    if all(noise.is_uniform and not noise.correlation for noise in noises):
        sigmas = [0.0 if noise.is_zero else noise.sigma for noise in noises]
        clean = remove_white_noise(model, y, sigmas, spec, progress)
        shares = torch.tensor([noise.removed for noise in noises]).to(y)
        return y.lerp(clean.to(y), shares[:, None, None, None])
    return torch.cat(
        [
            _remove_noise_of_one(model, y[i : i + 1], noise, spec, progress)
            for i, noise in enumerate(noises)
        ]
    )


def _remove_noise_of_one(
    model: Denoiser | Tensor,
    image: Tensor,
    noise: NoiseEstimate,
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """An image [1, C, H, W] without its noise, which is made white and of standard deviation 1
    before."""
    if noise.is_zero:
        return image
    if noise.is_uniform and not noise.correlation:
        clean = remove_white_noise(model, image, [noise.sigma], spec, progress).to(image)
    else:
        clean = _remove_stable_noise(model, image.double(), noise, spec, progress).to(image)
    # of a camera's noise, no more than this share was removed
    return clean if noise.covariance else image.lerp(clean, noise.removed)


def _remove_stable_noise(
    model: Denoiser | Tensor,
    image: Tensor,
    noise: NoiseEstimate,
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """An image [1, C, H, W] in float64 without its noise, which is made even and of standard
    deviation 1 before."""
    stable = noise.stabilise(image)
    middle = stable.mean()
    given = (stable - middle).to(model.dtype)
    del stable
    if noise.covariance:
        levels = [sigma / noise.sigma for sigma in plane_deviations(noise.covariance)]
        clean = _remove_camera_noise(model, given, levels, noise.removed, spec, progress)
        return noise.restore_units(clean.double() + middle)
    level = white_sigma(noise.correlation) if noise.correlation else 1.0
    clean = remove_white_noise(model, given, [level], spec, progress)
    share = share_like_noise((given - clean)[0], noise.correlation > 0)
    restored = noise.restore_units(clean.double() + middle) + noise.too_dark(image)
    return image.lerp(restored, share)


def denoise_frame(
    model: Denoiser | Tensor,
    frames: Tensor,
    index: int,
    noise: NoiseEstimate,
    spec: RestorationSpec,
    progress: Progress | None = None,
) -> Tensor:
    """Frame `index` of frames [F, C, H, W] without its noise, with the mean brightness of all: the
    mean with its neighbours, where they show the same, is restored."""
    if noise.is_zero:
        return frames[index : index + 1]
    scaled, factors = scale_to(frames.double(), index, noise)
    merged = merge_frames(scaled, index, noise, factors)
    low = float(merged.deviation.median())
    mean = merged.mean[None]
    clean = _remove_stable_noise(model, mean, noise.averaged(low), spec, progress)
    if float((merged.deviation > UNEVEN * low).double().mean()) > FEW_SEEN_ONCE:
        # what was seen in one frame alone has all of its noise
        alone = _remove_stable_noise(model, mean, noise, spec, None)
        clean = clean.lerp(alone, (merged.deviation.log() / math.log(low)).neg().add(1).clamp(0, 1))
    # lamps flicker: the brightness is that of all frames
    brightness = sum(1 / factor for factor in factors) / len(factors)
    return (noise.offset + brightness * (clean - noise.offset)).to(frames)


def spread_over(count: int, most: int) -> list[int]:
    """The numbers of at most so many pictures, spread evenly over all."""
    places: list[int] = np.linspace(0, count - 1, min(count, most)).round().astype(int).tolist()
    return places


def _denoise_film(
    model: Denoiser | Tensor,
    y: Tensor,
    given: NoiseEstimate | str | None,
    step: float | None,
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """Frames [N, C, H, W] without their noise."""
    if given is None:
        noise = estimate_noise([y[place] for place in spread_over(len(y), FRAMES_SEEN)])
    else:
        noise = noise_of_image(y[0], given, step)
    results = []
    for number in range(len(y)):
        first, last = frame_window(number, len(y), spec.frames)
        results.append(denoise_frame(model, y[first:last], number - first, noise, spec, progress))
    return torch.cat(results)


def frame_window(number: int, count: int, frames: int) -> tuple[int, int]:
    """The first and the last but one of the frames that a frame is averaged with."""
    first = max(0, min(number - frames // 2, count - frames))
    return first, min(count, first + frames)


def _remove_camera_noise(
    model: Denoiser | Tensor,
    image: Tensor,
    levels: list[float],
    most: float,
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """A colour image [1, 3, H, W] without correlated noise, whose standard deviations in brightness
    and differences of colour are given.

    It counts as stronger white noise: blurred noise is weaker in fine detail and stronger in coarse
    detail than white noise of the same standard deviation. What looks like texture, and not like
    noise, stays.
    """
    stronger = [spec.blurred * level for level in levels]
    if isinstance(model, Denoiser):
        restore = plane_restorer(model, spec, progress)
    else:
        atoms = model.cpu()

        def restore(plane: Tensor, level: float, mask: Tensor | None) -> Tensor:
            return denoise_plane(atoms, plane, level, progress)

    with torch.no_grad():
        clean = restore_colour(restore, image[0], stronger)[None]
    share = share_of_camera_noise((image - clean)[0], clean[0], levels[0], most)
    return image.lerp(clean, share)


def remove_white_noise(
    model: Denoiser | Tensor,
    y: Tensor,
    sigmas: list[float],
    spec: RestorationSpec,
    progress: Progress | None,
) -> Tensor:
    """Images [N, C, H, W] without white noise, whose standard deviation is known for each."""
    with torch.no_grad():
        if isinstance(model, Denoiser) and not spec.learn:
            return restore_images(plane_restorer(model, spec, progress), y, sigmas)
        atoms = load_dictionary() if isinstance(model, Denoiser) else model.cpu()
        each = zip(y.cpu(), sigmas, strict=True)
        return torch.stack(
            [by_dictionary(atoms, image, sigma, spec.learn, progress) for image, sigma in each]
        )


def by_dictionary(
    atoms: Tensor, image: Tensor, noise: float, learn: bool, progress: Progress | None
) -> Tensor:
    """An image [C, H, W] denoised with atoms [M, K, K], or with those that are learned from it,
    beginning with them."""
    if atoms.ndim != 3 or atoms.shape[1] != atoms.shape[2]:
        raise InvalidSetting(f"a tensor {list(atoms.shape)} as the model", "atoms [M, K, K]")
    if find_spec("numba") is None:
        raise MissingExtra("numba", "denoising by a dictionary")
    if noise == 0:
        return image
    if learn:
        atoms = learn_dictionary(atoms, image, noise)
    return restore_planes(
        lambda plane, level, mask: denoise_plane(atoms, plane, level, progress), image, noise
    )


def inpaint(
    image: PictureT,
    mask: object,
    model: Denoiser | DeconvNet | None = None,
    noise: float = 0.0,
    *,
    spec: RestorationSpec | None = None,
    progress: Progress | None = None,
) -> PictureT:
    """Fill in the pixels of a picture, or of several, where the mask is 0; the result has the same
    type, shape and units.

    Parameters
    ----------
    image
        a picture or several, in any form that `denoise` takes; or signals [N, C, T]
    mask
        0 where a pixel is unknown, whose value has no influence: a picture in any form, [H, W] for
        all channels and all pictures, or [N, H, W] or [N, C, H, W], or a list for a list; for
        signals [N, 1 or C, T]
    model
        None for the trained denoiser (`load_denoiser`), or a `DeconvNet` of signals
    noise
        standard deviation of the noise of the known pixels, in units of the picture. With 0 they
        stay as they are; otherwise they are denoised as well
    spec
        settings, a `RestorationSpec`
    progress
        called with the number of pixels just done

    Examples
    --------
    >>> truth = torch.linspace(0, 1, 48).expand(48, 48)
    >>> known = torch.rand(48, 48) > 0.3
    >>> filled = ww.restoration.inpaint(truth * known, known)
    >>> bool((filled[known] == truth[known]).all()), bool((filled - truth).abs().max() < 0.2)
    (True, True)
    """
    if not is_level(noise):
        raise InvalidSetting({"noise": noise}, "a standard deviation ≥ 0 in units of the images")
    spec = spec or RestorationSpec()
    if isinstance(model, DeconvNet):
        signals: Any = image
        return cast(PictureT, restore_signals(model, signals, noise, as_weights(mask), spec))
    require_pictures(spec)
    if spec.learn or isinstance(model, Tensor):
        raise SpecError("A dictionary cannot inpaint. Use the trained denoiser (load_denoiser).")
    model = load_denoiser() if model is None else model
    if isinstance(image, list | tuple):
        each = [
            inpaint(one, known, model, noise, spec=spec, progress=progress)
            for one, known in zip(image, _masks_of_list(image, mask), strict=True)
        ]
        return cast(PictureT, each)
    form = open_form(image)
    known = _open_mask(mask, len(form.images))
    y = as_images(model, form.images / form.white, known)
    known = (known > 0).to(y)
    levels = [noise / form.white] * len(y)
    with torch.no_grad():
        filled = restore_images(plane_restorer(model, spec, progress), y, levels, list(known))
    filled = (form.white * filled).to(form.images)
    if noise == 0:
        filled = torch.where(known.to(filled) > 0, form.images, filled)
    result: PictureT = form.close(filled)
    return result


def _masks_of_list(images: Sequence[object], mask: object) -> Sequence[object]:
    """The mask of each picture of a list: one of a list, or the same for all."""
    if not isinstance(mask, list | tuple):
        return [mask] * len(images)
    if len(mask) != len(images):
        raise InvalidImages(
            f"{plural(len(mask), 'mask')} for {plural(len(images), 'picture')}",
            "one for each, or one mask for all",
        )
    return mask


def _open_mask(mask: object, count: int) -> Tensor:
    """A mask in any form as weights [N, 1 or C, H, W] of this number of pictures."""
    is_named = isinstance(mask, str | PathLike | Images) or is_pillow(mask)
    given = mask if is_named else as_weights(mask)
    known = open_form(given).images
    if len(known) == 1 < count:
        # three masks [3, H, W] look like the channels of one
        several = known.shape[1] == count and getattr(given, "ndim", 0) == 3
        known = known.transpose(0, 1) if several else known.expand(count, -1, -1, -1)
    return known


def restore_signals(
    model: DeconvNet,
    signals: ImagesT,
    noise: float | None,
    mask: Tensor | None = None,
    spec: RestorationSpec | None = None,
) -> ImagesT:
    """Signals [N, C, T] as their waveforms explain them; known samples without noise stay as they
    are.

    Parameters
    ----------
    noise
        standard deviation; None estimates it
    mask
        [N, 1 or C, T], 0 where a sample is missing; None: samples that are NaN are unknown, and
        stay so
    spec
        settings that say whether the result has the baseline
    """
    spec = spec or RestorationSpec()
    if not model.spec.for_signals:
        raise SpecError(
            "Got a model of pictures; expected one of signals, or a denoiser (load_denoiser)."
        )
    given = checked(signals, f"[N, {model.spec.channels}, T]")
    if noise == 0 and mask is None and spec.baseline:
        return signals
    known = ~given.isnan()
    if mask is not None:
        check_mask(given.unsqueeze(2), mask.unsqueeze(-2))
        known = (mask > 0).to(given.device)
        warn_of_long_gaps(model, known)
    v = torch.where(known, given, 0)
    how = InferenceSpec.coding(lam=lam_of_noise(noise))
    solution = infer(model, v, how, mask=None if known.all() else known.float())
    clean = solution.reconstruction.to(given)
    if noise == 0:
        clean = torch.where(known, given, clean)
    if not spec.baseline:
        clean = clean - baseline_of(solution).to(given)
    if mask is None:
        clean = torch.where(known, clean, torch.nan)
    return like(clean, signals)


def baseline_of(solution: Solution) -> Tensor:
    """What the model's input stage subtracted from signals, [N, C, T]."""
    low = solution.latents.background.low
    if low is None:
        raise SpecError(
            "The model subtracts no baseline, so there is none to remove. Train one with"
            " model.input.kind = 'baseline', or keep the default baseline = true."
        )
    return low.squeeze(2)


def require_pictures(spec: RestorationSpec) -> None:
    """Raise an error for a setting that only recordings have."""
    require(spec.baseline, "baseline = false for pictures", "true: only recordings have a baseline")


def lam_of_noise(noise: float | None) -> float | AutoLam:
    """λ for signals with noise of this standard deviation; None: it is estimated."""
    if noise is None:
        return AutoLam(deviations=THRESHOLD)
    if noise == 0:
        return AutoLam(share=FAITHFUL)
    return 1 / (THRESHOLD * noise)


def warn_of_long_gaps(model: DeconvNet, known: Tensor) -> None:
    """Warn about gaps in which no waveform can be inferred from known samples, [N, 1 or C, T]."""
    reach = 1
    step = 1
    for layer in model.spec.layers:
        reach += step * (layer.filter_shape[1] - 1 + layer.pool_shape[1] - 1)
        step *= layer.strides[1]
    unknown = ~known.any(1)
    if unknown.shape[1] <= reach:
        return
    windows = unknown.unfold(1, reach + 1, 1).all(2)
    long_gaps = windows & ~torch.nn.functional.pad(windows, (1, 0))[:, :-1]
    if count := int(long_gaps.sum()):
        longest = int(torch.diff(known_places(unknown)).max()) - 1
        warn(LongGapsWarning(count, longest, reach))


class LongGapsWarning(UserWarning):
    """Gaps of a recording in which no waveform can be inferred from known samples.

    Attributes
    ----------
    count
        number of gaps
    longest
        samples of the longest one
    reach
        samples that the model's waveforms span
    """

    def __init__(self, count: int, longest: int, reach: int) -> None:
        self.count = count
        self.longest = longest
        self.reach = reach
        super().__init__(
            f"The recording has {plural(count, 'gap')} longer than the model's waveforms"
            f" ({reach:,} samples); the longest has {longest:,} samples. The model cannot fill"
            f" {'this gap' if count == 1 else 'these gaps'}: the result is 0 where no known sample"
            " is near. Treat such samples as unknown, as `whatwhere inpaint` does."
        )


def known_places(unknown: Tensor) -> Tensor:
    """The places of known samples of all signals [N, T] in a row, with one before and one after
    each signal."""
    return (~torch.nn.functional.pad(unknown, (1, 1))).flatten().nonzero()[:, 0]


def as_images(
    model: Denoiser | Tensor, images: Tensor | np.ndarray, mask: Tensor | None = None
) -> Tensor:
    """Images [N, C, H, W] in the model's dtype and on its device, after a check that they can be
    restored; 0 where a mask is 0."""
    tensor = checked(images, "[N, C, H, W]")
    if mask is not None:
        check_mask(tensor, mask)
        tensor = torch.where(mask.to(tensor.device) > 0, tensor, 0)
    if not tensor.isfinite().all():
        raise ImageError(
            "The images have NaN or infinite values. To fill them in, use `inpaint` with a mask"
            " that is 0 there."
        )
    if (largest := float(tensor.abs().max())) > LARGEST:
        raise ImageError(
            f"The images have values up to {largest:.4g}; expected at most {LARGEST:g}. Scale them."
        )
    return tensor.detach().to(model.device, model.dtype)


def checked(values: object, shape: str) -> Tensor:
    """Floats as a tensor; an ImageError for other values, or another number of axes than `shape`
    has."""
    tensor = as_tensor(values)
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(values).__name__
        raise ImageError(
            f"Got {kind}; expected a float tensor or array {shape}, such as"
            " `whatwhere.data.load(…)[:]`."
        )
    if tensor.ndim != shape.count(",") + 1 or 0 in tensor.shape:
        raise ImageError(f"Got values of shape {list(tensor.shape)}; expected {shape}.")
    return tensor


def as_tensor(values: object) -> object:
    """An array as a tensor; anything else as it is."""
    return (
        torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values
    )


def like(result: Tensor, images: ImagesT) -> ImagesT:
    """The result as the images were given: array or tensor, dtype and device."""
    if isinstance(images, np.ndarray):
        return result.cpu().numpy().astype(images.dtype)
    return result.to(images.device, images.dtype)
