"""Explain why a picture has its class: the labelled pictures that are most like it, the part of
the picture that is like them, and the learned features that they share."""

import base64
import colorsys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.classification.joined_describer import JoinedDescriber
from whatwhere.classification.picture_classifier import Describer
from whatwhere.errors import listed
from whatwhere.html import png
from whatwhere.inference import infer
from whatwhere.labelling.descriptions import Description, own_features
from whatwhere.model.solution import Solution
from whatwhere.views.view import filled


@dataclass(frozen=True)
class WhySettings:
    """How much an explanation shows, and in which words.

    nearest    labelled pictures that are most like the picture
    others     labelled pictures of other classes that it is compared with: the nearest, because a
               far one differs everywhere
    features   learned features that they share
    side       longest side of the heat map in pixels
    hot        share of the largest evidence from which on a place counts as meant
    everywhere share of a picture from which on "the whole picture" is said
    contrast   difference of brightness, from 0 to 1, from which on a part is called dark or bright
    coloured   saturation from which on a part is called by its colour
    """

    nearest: int = 3
    others: int = 3
    features: int = 5
    side: int = 288
    hot: float = 0.5
    everywhere: float = 0.5
    contrast: float = 0.1
    coloured: float = 0.35


class Near(NamedTuple):
    """A labelled picture, the cosine of its description and the picture's, and its class."""

    row: int
    cosine: float
    name: str


class SharedFeature(NamedTuple):
    """A learned feature that the first of some pictures shares with the others: its number, and
    what it draws in each of them, bytes in base64."""

    map: int
    drawn: list[str]


def choose_others(near: Sequence[Near], settings: WhySettings) -> tuple[list[Near], list[Near]]:
    """Split labelled pictures, the nearest first: those that are shown, and the nearest of other
    classes than theirs, with which they are compared."""
    shown = list(near[: settings.nearest])
    names = {one.name for one in shown}
    others = [one for one in near if one.name not in names][: settings.others]
    return shown, others


def place_maps(description: Description, images: Tensor, solution: Solution | None) -> list[Tensor]:
    """Describe each place of images [n, C, H, W] by all that describes whole pictures: maps
    [n, D, h, w].

    Parameters
    ----------
    solution
        the learned features of the images, if there are any
    """
    describe = description.describe
    maps = []
    if isinstance(describe, JoinedDescriber):
        for view in describe.views:
            maps += view(filled(images.float()))
    if solution is not None:
        maps.append(solution.features.abs().float().cpu())
    return maps


def heat_map(
    maps: Sequence[Tensor], like: int, size: tuple[int, int], tiny: float = 1e-12
) -> Tensor:
    """Find where the first picture is like the next `like` ones, more than like the rest; values
    [H, W] from 0 to 1.

    A place counts by the product of its description with the difference of the mean descriptions
    of both groups; the maps count equally.

    Parameters
    ----------
    tiny
        smallest divisor
    """
    total = torch.zeros(size)
    for one in maps:
        means = F.normalize(one.flatten(2).mean(2), dim=1)
        direction = means[1 : 1 + like].mean(0)
        if len(means) > 1 + like:
            direction = direction - means[1 + like :].mean(0)
        evidence = (one[0] * direction[:, None, None]).sum(0).clamp(min=0)
        whole = F.interpolate(evidence[None, None], size, mode="bilinear", align_corners=False)
        total += whole[0, 0] / whole.max().clamp(min=tiny)
    return total / total.max().clamp(min=tiny)


def part_words(heat: Tensor, picture: Tensor, settings: WhySettings | None = None) -> str:
    """Describe the hot part of a picture [C, H, W] from 0 to 1, such as 'the dark centre'."""
    settings = settings or WhySettings()
    hot = heat >= settings.hot * heat.max()
    share = float(hot.float().mean())
    if share >= settings.everywhere or float(heat.max()) == 0:
        return "the whole picture"
    return f"the {_look_words(hot, picture, settings)}{_place_words(hot)}"


def _place_words(hot: Tensor) -> str:
    """Name the place of a part: a ninth of the picture, or its edge."""
    height, width = hot.shape
    rows, columns = hot.nonzero(as_tuple=True)
    down = (rows.float().mean() + 0.5) / height
    across = (columns.float().mean() + 0.5) / width
    line = ("top", "", "bottom")[min(int(3 * down), 2)]
    side = ("left", "", "right")[min(int(3 * across), 2)]
    if line or side:
        return " ".join(word for word in (line, side) if word)
    inner = hot[height // 4 : height - height // 4, width // 4 : width - width // 4]
    return "centre" if 2 * int(inner.sum()) >= int(hot.sum()) else "edge"


def _look_words(hot: Tensor, picture: Tensor, settings: WhySettings) -> str:
    """Say how a part differs from the rest: 'dark ', 'bright ', a colour, or ''."""
    grey = picture.mean(0)
    difference = float(grey[hot].mean() - grey[~hot].mean())
    words = ""
    if abs(difference) >= settings.contrast:
        words = "bright " if difference > 0 else "dark "
    if len(picture) != 3:
        return words
    red, green, blue = (float(channel[hot].mean()) for channel in picture)
    hue, saturation, _ = colorsys.rgb_to_hsv(red, green, blue)
    if saturation < settings.coloured:
        return words
    names = ("red", "orange", "yellow", "green", "green", "blue-green", "blue-green", "blue",
             "blue", "violet", "violet", "red")  # fmt: skip
    return f"{words}{names[int(12 * hue + 0.5) % 12]} "


def sentence(shown: Sequence[Near], part: str) -> str:
    """Say in one sentence what the picture is most like, and where."""
    counts = Counter(one.name for one in shown)
    groups = [name if count == 1 else f"{count} × {name}" for name, count in counts.items()]
    what = "this labelled picture" if len(shown) == 1 else f"these {len(shown)} labelled pictures"
    return f"Most like {what} ({listed(groups)}): {part}."


def lit_picture(picture: Tensor, heat: Tensor, side: int) -> bytes:
    """Draw a picture [C, H, W] from 0 to 1 whose hot part keeps its light, as a PNG file."""
    scale = side / max(picture.shape[1:])
    size = [max(1, round(scale * one)) for one in picture.shape[1:]]
    pixels = F.interpolate(picture[None].float(), size, mode="nearest")[0].clamp(0, 1)
    if len(pixels) != 3:
        pixels = pixels.mean(0, keepdim=True).expand(3, -1, -1)
    warm = F.interpolate(heat[None, None], size, mode="bilinear", align_corners=False)[0]
    grey = pixels.mean(0, keepdim=True)
    orange = torch.tensor([1.0, 0.62, 0.1])[:, None, None]
    cold = 0.35 * grey.expand(3, -1, -1)
    hot = 0.8 * pixels + 0.2 * orange
    drawn = cold + warm * (hot - cold)
    return png((255 * drawn).to(torch.uint8).permute(1, 2, 0))


class Why(NamedTuple):
    """An explanation.

    Parameters
    ----------
    near
        the labelled pictures that are most like the picture
    words
        one sentence
    drawn
        the picture with its hot part, as a PNG file
    features
        the learned features that they share, the strongest first
    maps
        number of features of the model; 0 without one
    """

    near: list[Near]
    words: str
    drawn: bytes
    features: list[SharedFeature]
    maps: int


def explain(
    description: Description,
    images: Tensor,
    shown: list[Near],
    settings: WhySettings | None = None,
) -> Why:
    """Explain the first of some images [n, C, H, W] from 0 to 1 by the next ones, `shown`, and by
    the rest, which have other classes."""
    settings = settings or WhySettings()
    own = own_features(description)
    solution = None
    features: list[SharedFeature] = []
    maps = 0
    if isinstance(own, Describer):
        model = own.model
        given = images.to(model.device, model.dtype)
        solution = infer(model, given, own.recipe.inference, engine=own.engine)
        features = _shared_features(own, solution, 1 + len(shown), settings.features)
        maps = solution.features.shape[1]
    places = place_maps(description, images, solution)
    size = (int(images.shape[2]), int(images.shape[3]))
    heat = heat_map(places, len(shown), size)
    picture = filled(images[:1].float())[0]
    words = sentence(shown, part_words(heat, picture, settings))
    return Why(shown, words, lit_picture(picture, heat, settings.side), features, maps)


def _shared_features(
    own: Describer, solution: Solution, count: int, most: int
) -> list[SharedFeature]:
    """Return the features that the first of `count` pictures shares most with the others, and what
    each feature draws in all of them."""
    p = solution.features[:count]
    everything = solution.features
    height, width = own.shape[1:]
    sized = own.model.at(height, width)
    weights = sized.weights(solution.latents.pooling_params)
    strength = p.abs().sum((2, 3))
    shared = torch.minimum(strength[:1], strength[1:].mean(0)).flatten()
    features = []
    for map_ in shared.argsort(descending=True)[:most].tolist():
        if shared[map_] <= 0:
            break
        alone = torch.zeros_like(everything)
        alone[:, map_] = everything[:, map_]
        drawn = sized.reconstruct(alone, weights).abs().mean(1)[:count]
        shades = (255 * drawn / drawn.amax().clamp(min=1e-12)).to(torch.uint8).cpu().numpy()
        pictures = [base64.b64encode(each.tobytes()).decode() for each in shades]
        features.append(SharedFeature(map_, pictures))
    return features
