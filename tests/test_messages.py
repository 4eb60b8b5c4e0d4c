import subprocess

import pytest

from whatwhere.errors import command, printable


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "bell\a", "new\nline'\\", "ü", "\x1b[31mred", "-x"])
def test_a_command_can_be_pasted_and_cannot_change_the_terminal(name: str) -> None:
    line = command("printf", "%s", name)
    assert printable(line) == line
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode() == name
