"""Messages: what is quoted in them can neither forge lines nor drive a terminal."""

import pytest

from whatwhere.errors import ImageError, MissingExtra, WhatwhereError, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("é [/b] 図", "é [/b] 図"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        (b"\xff.png".decode("utf-8", "surrogateescape"), "\\udcff.png"),
        ("\u2028", "\\u2028"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_errors_escape_what_they_quote_and_keep_their_own_lines() -> None:
    error = ImageError("a\x07.png: damaged\n  copy it again")
    assert str(error) == "a\\x07.png: damaged\n  copy it again"
    assert isinstance(error, WhatwhereError)
    assert "pip install 'whatwhere[data]'" in str(MissingExtra("Pillow", "data", "reading pictures"))
