"""Settings of fine-tuning are checked when they are made."""

import pytest

from whatwhere.errors import SpecError
from whatwhere.finetuning import FinetuneSpec


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("epochs", 0),
        ("learning_rate", 0.0),
        ("dropout", 1.0),
        ("head_rate", -1.0),
        ("reconstruction", -1.0),
        ("seed", -1),
    ],
)
def test_a_value_that_is_not_possible_is_an_error(name: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"{name} = {value}"):
        FinetuneSpec(**{name: value})
