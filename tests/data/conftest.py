"""What the tests of the data share: images in all kinds of file, and full MNIST if it is
available."""

import gzip
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from whatwhere.data import catalogue


@pytest.fixture
def grey() -> np.ndarray:
    """uint8 [5, 6, 4], every value different."""
    return np.arange(120, dtype=np.uint8).reshape(5, 6, 4)


@pytest.fixture(scope="session")
def save_gzip() -> Callable[[Path, bytes], Path]:
    def save(path: Path, content: bytes) -> Path:
        path.write_bytes(gzip.compress(content, mtime=0))
        return path

    return save


@pytest.fixture
def little_memory() -> Callable[[int], object]:
    """`with little_memory(bytes):` fails where more than that is allocated at any one time."""

    @contextmanager
    def limit(peak: int) -> Iterator[None]:
        tracemalloc.start()
        try:
            yield
            assert tracemalloc.get_traced_memory()[1] < peak
        finally:
            tracemalloc.stop()

    return limit


@pytest.fixture
def mnist() -> Path:
    """The folder of the full MNIST files; without them the test is skipped by name."""
    entry = catalogue.find("mnist")
    if catalogue.missing_files(entry):
        pytest.skip(f"full MNIST is not in {catalogue.folder_of(entry)}")
    return catalogue.folder_of(entry)
