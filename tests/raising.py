"""Errors and warnings by their class and their fields, so that their words may change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Containing:
    """Equals a field, such as a reason or a path, that contains all of these texts."""

    def __init__(self, *texts: object) -> None:
        self.texts = tuple(map(str, texts))

    def __eq__(self, other: object) -> bool:
        return all(text in str(other) for text in self.texts)

    def __repr__(self) -> str:
        return f"… {' … '.join(self.texts)} …"


@contextmanager
def raises(error: type[BaseException], /, **fields: Any) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Hold that the block raises an error of this class whose fields have these values."""
    with pytest.raises(error) as caught:
        yield caught
    assert fields_of(caught.value, fields) == fields, f"{error.__name__}: {caught.value}"


@contextmanager
def warns(category: type[Warning], /, **fields: Any) -> Iterator[pytest.WarningsRecorder]:
    """Hold that the block gives a warning of this class whose fields have these values."""
    with pytest.warns(category) as caught:
        yield caught
    said = [one.message for one in caught if isinstance(one.message, category)]
    assert any(fields_of(one, fields) == fields for one in said), said


def fields_of(raised: object, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(raised, name) for name in names}
