"""How slow work shows its progress: a `Stage` is given to whatever takes long, and whoever calls
it decides what is shown."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def no_op(*_: Any) -> None:
    """Ignore every argument."""


Stage = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]
"""Shows the progress of a slow part: called with its title and the number of its pieces; the
function that it yields is called with the number of pieces just done."""


def no_stage(title: str, total: int) -> AbstractContextManager[Callable[[int], None]]:
    """A `Stage` that shows nothing."""
    return nullcontext(no_op)
