import subprocess

import pytest

from whatwhere.messages import command, printable


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "bell\a", "new\nline'\\", "ü", "\x1b[31mred", "-x"])
def test_a_command_can_be_pasted_and_a_name_cannot_change_the_terminal(name: str) -> None:
    assert printable(name).isprintable()
    line = command("printf", "%s", name)
    assert line.isprintable()
    assert subprocess.run(["bash", "-c", line], capture_output=True, check=True).stdout.decode() == name
