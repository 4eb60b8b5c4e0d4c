"""Probabilities of an error, corrected by the errors that were seen on held-out labels."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def shifted(doubt: np.ndarray, offset: float) -> np.ndarray:
    """Probabilities of an error with their log odds moved by an offset."""
    doubt = np.clip(doubt, 1e-4, 1 - 1e-4)
    return np.asarray(1 / (1 + (1 / doubt - 1) * np.exp(-offset)))


def offset_for(doubt: Iterable[float], share: float) -> float:
    """The offset with which the probabilities of an error have this mean, by bisection."""
    low, high, values = -20.0, 20.0, np.array(doubt)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if shifted(values, middle).mean() < share else (low, middle)
    return (low + high) / 2
