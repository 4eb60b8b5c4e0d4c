"""The catalogue: complete entries, and the included digits as they were taken from MNIST."""

import re
import subprocess
import sys

import numpy as np
import pytest

from whatwhere.data import cache, load
from whatwhere.data.catalogue import CATALOGUE, Entry, find
from whatwhere.errors import ImageError

DIGITS, MNIST = CATALOGUE["digits"], CATALOGUE["mnist"]


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE.keys())
def test_every_entry_is_complete(entry: Entry) -> None:
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 for file in entry.files)
    assert len({file.sha256 for file in entry.files}) == len({file.name for file in entry.files}) == 4
    assert entry.facts["licence"]
    assert entry.facts["citation"]
    assert entry.embedded or all(re.fullmatch("https?://.*/", mirror) for mirror in entry.mirrors)
    assert bool(entry.mirrors) != bool(entry.embedded)


def test_no_two_data_sets_share_a_file() -> None:
    assert len({file.sha256 for entry in CATALOGUE.values() for file in entry.files}) == 16


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ImageError, match="digits, mnist, fashion-mnist, kmnist"):
        find("mnist2")


def test_the_embedded_digits() -> None:
    assert all(cache.verify(DIGITS, file) is cache.FileStatus.VERIFIED for file in DIGITS.files)
    assert sum(file.size for file in DIGITS.files) < 1_300_000
    for split, count in (("train", 5000), ("test", 2000)):
        digits = load("digits", split=split)
        assert (len(digits), digits.shape, digits.name) == (count, (1, 28, 28), f"digits/{split}")
        assert digits.labels is not None
        assert digits.labels.dtype == np.int64
        assert set(digits.labels) == set(range(10))
        images = digits[:]
        assert (images.min(), images.max()) == (0, 1)
    assert DIGITS.embedded is not None
    licence = (DIGITS.embedded / "LICENSE").read_text()
    assert all(words in licence for words in ("LeCun", "Cortes", "Burges", "Attribution-ShareAlike 3.0", "changed"))


def test_the_digits_need_no_network_and_no_other_package() -> None:
    program = (
        "import sys, socket\n"
        "for name in ('PIL', 'sklearn', 'matplotlib', 'scipy'): sys.modules[name] = None\n"
        "socket.socket.connect = None\n"
        "from whatwhere.data import load\n"
        "print(load('digits')[:3].shape)"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "torch.Size([3, 1, 28, 28])"


@pytest.mark.mnist
def test_the_digits_are_the_first_of_mnist(mnist: object) -> None:
    for split in ("train", "test"):
        digits, full = load("digits", split=split), load("mnist", split=split)
        first = full.subset(np.arange(len(digits)))
        assert digits.fingerprint == first.fingerprint
        np.testing.assert_array_equal(digits.labels, first.labels)


@pytest.mark.mnist
def test_mnist_is_verified_and_complete(mnist: object) -> None:
    assert all(cache.verify(MNIST, file) is cache.FileStatus.VERIFIED for file in MNIST.files)
    for split, count in (("train", 60_000), ("test", 10_000)):
        images = load("mnist", split=split)
        assert (len(images), images.shape) == (count, (1, 28, 28))
        assert images.labels is not None
        assert np.bincount(images.labels).min() > count // 12
