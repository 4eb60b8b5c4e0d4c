"""Colours of classes for people who see fewer colours, and their second cue."""

import re

import numpy as np
import pytest

from pages.opened import PAGE

# Machado, Oliveira and Fernandes 2009, severity 1, for linear RGB.
SIMULATIONS = {
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
FIRST = 6  # classes whose colours alone are enough; every class has a number as well
APART = 0.07  # in OKLab, where 0.02 is just seen


def colours() -> np.ndarray:
    text = (PAGE / "label_colours.js").read_text(encoding="utf-8")
    listed = text[text.index("CLASS_COLOURS") :]
    found = re.findall(r'"#([0-9a-f]{6})"', listed[: listed.index("];")])
    assert len(set(found)) == len(found) == 10
    values = [[int(one[i : i + 2], 16) / 255 for i in (0, 2, 4)] for one in found]
    return np.array(values)


def to_linear(rgb: np.ndarray) -> np.ndarray:
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def to_oklab(linear: np.ndarray) -> np.ndarray:
    lms = linear.clip(0, 1) @ np.array(
        [
            [0.4122214708, 0.2119034982, 0.0883024619],
            [0.5363325363, 0.6806995451, 0.2817188376],
            [0.0514459929, 0.1073969566, 0.6299787005],
        ]
    )
    return np.cbrt(lms) @ np.array(
        [
            [0.2104542553, 1.9779984951, 0.0259040371],
            [0.7936177850, -2.4285922050, 0.7827717662],
            [-0.0040720468, 0.4505937099, -0.8086757660],
        ]
    )


@pytest.mark.parametrize("kind", SIMULATIONS)
def test_people_who_see_fewer_colours_tell_the_first_classes_apart(kind: str) -> None:
    seen = to_oklab(to_linear(colours()) @ np.array(SIMULATIONS[kind]).T)[:FIRST]
    distances = np.linalg.norm(seen[:, None] - seen[None], axis=2)
    distances[np.eye(FIRST, dtype=bool)] = np.inf
    assert distances.min() > APART
