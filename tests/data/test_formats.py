"""Formats of recordings, which the data and training load on first use."""

from pathlib import Path

import numpy as np
import pytest

import whatwhere as ww
from whatwhere.data.formats import is_recording_file, recordings, signals_class


@pytest.mark.parametrize(
    ("name", "is_recording"), [("a.WAV", True), ("a.csv", True), ("a.npy", False)]
)
def test_the_suffix_tells_a_recording(name: str, is_recording: bool) -> None:
    assert is_recording_file(name) == is_recording
    assert is_recording_file(Path(name)) == is_recording


def test_the_class_of_recordings_is_a_public_name() -> None:
    assert ww.data.Signals is signals_class()
    assert isinstance(recordings().of_values(np.zeros((1, 9)), "x"), ww.data.Signals)
    assert recordings().of_object(object()) is None
