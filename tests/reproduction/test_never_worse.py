"""Pictures that a denoiser of photographs takes for noise are not worse afterwards.

`python -m benchmarks.restoration.never_worse` measures 500 of them.
"""

import pytest

from benchmarks.restoration.never_worse import KINDS, TOLERANCE, measure

FORMERLY_WORSE = [44, 54, 65, 68]  # lattices and halftones


@pytest.mark.parametrize("number", [*range(42, 42 + len(KINDS)), *FORMERLY_WORSE])
def test_pictures_of_every_kind_are_not_worse(number: int) -> None:
    for line in measure(number):
        assert line["after"] - line["before"] >= -TOLERANCE, line
