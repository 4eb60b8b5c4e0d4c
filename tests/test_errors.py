"""Messages: what is quoted in them can neither forge lines nor drive a terminal."""

import subprocess

import pytest

from whatwhere.errors import ImageError, MissingExtra, WhatwhereError, command, did_you_mean, listed, one_or, printable


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


def test_lists_and_suggestions_in_words() -> None:
    assert [listed(range(n)) for n in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]
    assert (one_or(1), one_or(3)) == ("1", "1 or 3")
    assert did_you_mean("minst", ["digits", "mnist"]) == "; did you mean 'mnist'?"
    assert did_you_mean("photographs", ["digits", "mnist"]) == ""


# Messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "back\\slash", "ü", "-x"])
def test_a_command_can_be_pasted(name: str) -> None:
    line = command("printf", "%s", name)
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode() == name


@pytest.mark.parametrize("name", ["bell\a", "new\nline'\\", "\x1b[31mred"])
def test_a_command_cannot_change_the_terminal(name: str) -> None:
    line = command("printf", "%s", name)
    assert printable(line) == line
