import subprocess

import pytest

from whatwhere.errors import command, printable


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "back\\slash", "ü", "-x"])
def test_a_command_can_be_pasted(name: str) -> None:
    line = command("printf", "%s", name)
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode() == name


@pytest.mark.parametrize("name", ["bell\a", "new\nline'\\", "\x1b[31mred"])
def test_a_command_cannot_change_the_terminal(name: str) -> None:
    line = command("printf", "%s", name)
    assert printable(line) == line
