"""Gaps: stretches of a signal whose samples are unknown."""

import numpy as np


def long_gaps(known: np.ndarray, longest: int) -> list[slice]:
    """Return the gaps of more than `longest` samples in a signal, given which samples [T] are
    known."""
    edges = np.diff(np.concatenate([[1], known.astype(np.int8), [1]]))
    starts = np.flatnonzero(edges == -1)
    stops = np.flatnonzero(edges == 1)
    pairs = zip(starts.tolist(), stops.tolist(), strict=True)
    return [slice(first, last) for first, last in pairs if last - first > longest]
