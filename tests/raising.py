"""Errors by their class and their fields, so that their words may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def raises(error: type[BaseException], /, **fields: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Hold that the block raises an error of this class whose fields have these values."""
    with pytest.raises(error) as caught:
        yield caught
    found = {name: getattr(caught.value, name) for name in fields}
    assert found == fields, f"{error.__name__}: {caught.value}"
