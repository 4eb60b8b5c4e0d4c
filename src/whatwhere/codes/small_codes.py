"""Codes in few bits: the arrays of a block as `encode` writes them by default, and back.

    exact                           small
    features_values   float32       features_levels  uint8 or int8, in 31sts of the image's largest
                                    features_largest float32 [N]
    …_indptr          int64         …_counts         uint32 [N]
    …_indices         int32         …_gaps           uint8, uint16 or uint32: empty places before it
    mu1, gamma1       float32       angle1           int8, for regions of two elements along an axis
                                    mu1_levels, gamma1_levels   int8, for others
    low, scale        float32       float16

**Two elements** along an axis have the weights w₊ = cos φ, w₋ = sin φ, and φ is a function of γμ
alone. So only φ is stored, in 5 steps from the equal weights to either end: an error of at
most 4.5° in φ, 0.08 in a weight. Reading returns μ = ±½ and the γ that gives these weights.

**Regions without effect** are left out: those whose p̂ · |φ| is below the share 0.06 of the
image's largest p̂. Reading gives them equal weights.

Measured on digits: docs/explanation/millions.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from whatwhere.errors import InvalidImages
from whatwhere.latents import Latents, PoolingParams, SparseLatents, SparseMap

Array = np.ndarray


@dataclass(frozen=True)
class SmallFormat:
    """The numbers of the small format; a file with other numbers would be another format.

    Parameters
    ----------
    levels
        of features, from 0 to the image's largest
    angles
        steps from equal weights to all weight on one element
    effect
        share of the largest effect of an image's regions below which a region is left out
    saturated
        |γμ| at which all weight is on one element
    mu_levels
        from the centre of a region to its end
    gamma_octave
        levels of γ for a factor of two
    most_places
        the number of places of a code is less than this, so that indices are int32
    """

    levels: int = 31
    angles: int = 5
    effect: float = 0.06
    saturated: float = 25.0
    mu_levels: int = 127
    gamma_octave: int = 16
    most_places: int = 2**31


SMALL = SmallFormat()


@dataclass(frozen=True)
class _MapRows:
    """Values at some places of a map, of several images one after the other.

    Parameters
    ----------
    grid
        B, H and W of the map
    counts
        number of places of every image, [N]
    places
        offsets in the flattened grid, ascending within an image, [n]
    values
        [n, V]
    """

    grid: tuple[int, int, int]
    counts: Array
    places: Array
    values: Array

    @classmethod
    def of(cls, values: Tensor, chosen: Tensor) -> "_MapRows":
        """Return the chosen places [N, B, H, W] of values [N, V, B, H, W]."""
        N, V, B, H, W = values.shape
        _require_places((B, H, W))
        image, place = chosen.reshape(N, -1).nonzero(as_tuple=True)
        kept = values.reshape(N, V, -1)[image, :, place]
        counts = torch.bincount(image, minlength=N)
        return cls((B, H, W), counts.cpu().numpy(), place.cpu().numpy(), kept.cpu().float().numpy())

    @classmethod
    def of_sparse(cls, layer: SparseMap) -> "_MapRows":
        """Return the places of one image, which may be in any order."""
        _require_places(layer.grid)
        places = layer.indices.cpu().numpy()
        order = np.argsort(places)
        values = layer.values.cpu().float().numpy()
        return cls(layer.grid, np.array([len(places)]), places[order], values[order])

    def arrays(self, name: str) -> dict[str, Array]:
        """Return its places, exact."""
        N = len(self.counts)
        return {
            f"{name}_shape": np.tile(np.array(self.grid, np.int64), (N, 1)),
            f"{name}_indptr": np.concatenate([[0], np.cumsum(self.counts)]).astype(np.int64),
            f"{name}_indices": self.places.astype(np.int32),
        }


@dataclass(frozen=True)
class CodeRows:
    """What and where of several images of one size.

    Parameters
    ----------
    shape
        channels, height and width of the images
    where
        μ and γ of the regions of each layer; empty without `--where`
    background
        the arrays `low` and `scale`, where the input stage has them
    """

    shape: tuple[int, int, int]
    features: _MapRows
    where: tuple[_MapRows, ...]
    background: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.features.counts)

    @classmethod
    def of(
        cls, latents: Latents, used: Sequence[Tensor], shape: tuple[int, int, int]
    ) -> "CodeRows":
        """Return the codes in the latents of a batch.

        Parameters
        ----------
        used
            the regions of each layer whose pooling variables are kept, [N, B, H, W]; empty keeps
            none
        """
        p = latents.features
        where = []
        for chosen, theta in zip(used, latents.pooling_params, strict=False):
            where.append(_MapRows.of(torch.cat([theta.mu, theta.gamma], 1), chosen))
        return cls(
            shape, _MapRows.of(p[:, None], p != 0), tuple(where), _background(latents, where)
        )

    @classmethod
    def of_sparse(cls, code: SparseLatents, shape: tuple[int, int, int]) -> "CodeRows":
        """Return the code of one picture."""
        where = tuple(_MapRows.of_sparse(layer) for layer in code.where)
        return cls(shape, _MapRows.of_sparse(code.features), where, _background(code, where))

    def stored(self) -> dict[str, Array]:
        """Return its values as arrays, bit by bit; `of_stored` is the inverse."""
        arrays = {"shape": np.array(self.shape)}
        for number, layer in enumerate((self.features, *self.where)):
            arrays[f"{number}_grid"] = np.array(layer.grid)
            arrays[f"{number}_counts"] = layer.counts
            arrays[f"{number}_places"] = layer.places
            arrays[f"{number}_values"] = layer.values
        return {**arrays, **self.background}

    @classmethod
    def of_stored(cls, arrays: Mapping[str, Array]) -> "CodeRows":
        """Return the codes in arrays that `stored` returned."""
        C, H, W = arrays["shape"].tolist()
        layers: list[_MapRows] = []
        while (name := f"{len(layers)}_grid") in arrays:
            parts = [arrays[f"{len(layers)}_{part}"] for part in ("counts", "places", "values")]
            b, h, w = arrays[name].tolist()
            layers.append(_MapRows((b, h, w), *parts))
        background = {name: arrays[name] for name in ("low", "scale") if name in arrays}
        return cls((C, H, W), layers[0], tuple(layers[1:]), background)

    def exact(self) -> dict[str, Array]:
        """Return the arrays of a block in 32 bits."""
        arrays = self.features.arrays("features")
        arrays["features_values"] = self.features.values[:, 0]
        for k, layer in enumerate(self.where, start=1):
            arrays |= layer.arrays(f"where{k}")
            arrays[f"mu{k}"], arrays[f"gamma{k}"] = np.split(layer.values, 2, axis=1)
        arrays |= self.background
        arrays["image_shape"] = np.tile(np.array(self.shape, np.int64), (len(self), 1))
        return arrays


def _background(code: Latents | SparseLatents, where: Sequence[_MapRows]) -> dict[str, Array]:
    """Return what decoding adds back; nothing without pooling variables, because such codes cannot
    be decoded."""
    arrays = {}
    for name in ("low", "scale"):
        pixels = getattr(code.background, name)
        if where and pixels is not None:
            arrays[name] = pixels.cpu().float().numpy().ravel()
    return arrays


def _require_places(grid: tuple[int, int, int]) -> None:
    if math.prod(grid) >= SMALL.most_places:
        raise InvalidImages(f"a code of {grid}", f"fewer than {SMALL.most_places:,} places")


def join(rows: Sequence[CodeRows]) -> dict[str, Array]:
    """Return the exact arrays of several batches, which may be of several sizes, one after the
    other."""
    parts = [one.exact() for one in rows]
    joined = {}
    for name in parts[0]:
        if name.endswith("_indptr"):
            counts = np.concatenate([np.diff(part[name]) for part in parts])
            joined[name] = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        else:
            joined[name] = np.concatenate([part[name] for part in parts])
    return joined


# Regions without effect ---------------------------------------------------------------------------


def effective(stage: Tensor, theta: PoolingParams, two: bool) -> Tensor:
    """Return where the pooling variables of a layer change the reconstruction, [N, B, H, W].

    Parameters
    ----------
    stage
        p̂ of the layer, [N, B, H, W]
    two
        whether its regions have two elements along every axis
    """
    strength = stage.abs()
    largest = strength.flatten(1).amax(1)[:, None, None, None]
    if not two:
        return strength > SMALL.effect * largest
    turned = angle(theta.mu * theta.gamma).abs().amax(1)
    uneven = turned >= math.pi / 4 / SMALL.angles / 2  # what rounds to equal weights is left out
    return uneven & (strength * turned > SMALL.effect * largest)


def angle(product: Tensor) -> Tensor:
    """φ - 45° of γμ, in radians: tan φ = w₊ / w₋ = exp(γμ / 2)."""
    return torch.atan(torch.exp(product.clamp(-SMALL.saturated, SMALL.saturated) / 2)) - math.pi / 4


# In few bits, and back ----------------------------------------------------------------------------


def shrink(
    arrays: Mapping[str, Array], two: Sequence[bool], reach: Sequence[Array]
) -> dict[str, Array]:
    """Return the arrays of a block in few bits.

    Parameters
    ----------
    two
        whether the regions of each layer have two elements along every axis
    reach
        the largest |μ| of each layer along every axis
    """
    small = {name: arrays[name] for name in ("image_shape", "labels", "names") if name in arrays}
    for name in ("low", "scale"):
        if name in arrays:
            small[name] = arrays[name].astype(np.float16)
    # Features that round to 0 are left out, so places are found first.
    counts = np.diff(arrays["features_indptr"])
    values = arrays["features_values"]
    image = np.repeat(np.arange(len(counts)), counts)
    largest = np.zeros(len(counts), np.float32)
    np.maximum.at(largest, image, np.abs(values))
    levels = np.rint(values / np.where(largest > 0, largest, 1)[image] * SMALL.levels)
    kept = levels != 0
    small["features_largest"] = largest
    small["features_levels"] = levels[kept].astype(np.int8)
    counts = np.bincount(image[kept], minlength=len(counts))
    small |= _places("features", arrays, counts, arrays["features_indices"][kept])
    for k, (pair, most) in enumerate(zip(two, reach, strict=True), start=1):
        mu = arrays[f"mu{k}"]
        gamma = arrays[f"gamma{k}"]
        counts = np.diff(arrays[f"where{k}_indptr"])
        small |= _places(f"where{k}", arrays, counts, arrays[f"where{k}_indices"])
        if pair:
            turned = angle(torch.from_numpy(mu * gamma)).numpy()
            small[f"angle{k}"] = np.rint(turned * (4 * SMALL.angles / math.pi)).astype(np.int8).T
        else:
            levels = np.rint(mu / most * SMALL.mu_levels).clip(-127, 127)
            small[f"mu{k}_levels"] = levels.astype(np.int8).T
            small[f"mu{k}_reach"] = most.astype(np.float32)
            small[f"gamma{k}_levels"] = _gamma_levels(gamma).T
    return small


def expand(stored: Mapping[str, Array]) -> dict[str, Array]:
    """Return the exact arrays of a block, from what `shrink` returned; others come back as they
    are."""
    arrays = {name: np.asarray(stored[name]) for name in stored}
    for name in ("low", "scale"):
        if name in arrays and arrays[name].dtype == np.float16:
            arrays[name] = arrays[name].astype(np.float32)
    for name in [name.removesuffix("_gaps") for name in arrays if name.endswith("_gaps")]:
        _expand_places(name, arrays)
        if name == "features":
            _expand_values(arrays)
        else:
            _expand_gaussians(name.removeprefix("where"), arrays)
    return arrays


def _expand_places(name: str, arrays: dict[str, Array]) -> None:
    """Restore the places of every image, ascending, from the gaps between them."""
    counts = arrays.pop(f"{name}_counts").astype(np.int64)
    steps = arrays.pop(f"{name}_gaps").astype(np.int64) + 1
    indptr = np.concatenate([[0], np.cumsum(counts)])
    if counts.ndim != 1 or indptr[-1] != len(steps):
        raise ValueError(f"{name} has {len(steps)} places; expected {indptr[-1]} for its images")
    # The cumulative sums of all steps, minus their value before the first place of the image.
    total = np.concatenate([[0], np.cumsum(steps)])
    indices = total[1:] - np.repeat(total[indptr[:-1]], counts) - 1
    if indices.max(initial=0) >= SMALL.most_places:
        raise ValueError(f"{name} has places beyond its grid")
    arrays[f"{name}_indptr"] = indptr
    arrays[f"{name}_indices"] = indices.astype(np.int32)


def _expand_values(arrays: dict[str, Array]) -> None:
    """Restore the values of features from their levels, which count from 0 to the image's
    largest."""
    counts = np.diff(arrays["features_indptr"])
    levels = arrays.pop("features_levels").astype(np.float32)
    largest = arrays.pop("features_largest")
    if len(largest) != len(counts) or len(levels) != len(arrays["features_indices"]):
        raise ValueError("the values of features do not match their places")
    arrays["features_values"] = levels * np.repeat(largest, counts) / SMALL.levels


def _expand_gaussians(k: str, arrays: dict[str, Array]) -> None:
    """Restore μ and γ of layer k from their levels."""
    if f"angle{k}" in arrays:
        level = arrays.pop(f"angle{k}").T.astype(np.float64)
        # at the last level the tangent is infinite: all weight is on one element
        inside = np.minimum(np.abs(level), SMALL.angles - 1e-9) * (math.pi / 4 / SMALL.angles)
        product = np.minimum(2 * np.log(np.tan(inside + math.pi / 4)), SMALL.saturated)
        arrays[f"mu{k}"] = (0.5 * np.sign(level)).astype(np.float32)
        arrays[f"gamma{k}"] = (2 * product).astype(np.float32)
        return
    levels = arrays.pop(f"mu{k}_levels").T.astype(np.float32)
    arrays[f"mu{k}"] = levels * arrays.pop(f"mu{k}_reach") / SMALL.mu_levels
    octaves = arrays.pop(f"gamma{k}_levels").T.astype(np.float32)
    gamma = np.exp2(octaves / SMALL.gamma_octave)
    arrays[f"gamma{k}"] = np.where(octaves == -128, 0, gamma).astype(np.float32)


def _gamma_levels(gamma: Array) -> Array:
    """Write γ on a logarithmic scale; -128 for 0."""
    with np.errstate(divide="ignore"):
        levels = np.rint(SMALL.gamma_octave * np.log2(gamma)).clip(-127, 127)
    return np.where(gamma > 0, levels, -128).astype(np.int8)


def _places(
    name: str, arrays: Mapping[str, Array], counts: Array, indices: Array
) -> dict[str, Array]:
    """Write places as gaps within each image, in as few bytes as the largest needs."""
    first = np.zeros(len(indices), bool)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    first[begins[counts > 0]] = True
    before = np.concatenate([[-1], indices[:-1]]).astype(np.int64)
    gaps = indices - np.where(first, -1, before) - 1
    dtype = np.min_scalar_type(int(gaps.max(initial=0)))
    return {
        f"{name}_shape": arrays[f"{name}_shape"],
        f"{name}_counts": counts.astype(np.uint32),
        f"{name}_gaps": gaps.astype(dtype),
    }
