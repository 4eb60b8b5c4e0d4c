"""The commands of Start run as they are written.

The code and the links of all pages are tested in tests/docs/test_pages.py.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from whatwhere import data, load_codes
from whatwhere.app import app
from whatwhere.figures import RunFigures

START = Path(__file__).parents[1] / "docs/start.md"


@pytest.mark.slow
def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands as they are written, one after the other in an empty folder, on the first
    digits of each split."""
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    (block,) = re.findall(
        r"```sh\n(whatwhere train .*?)```", START.read_text(encoding="utf-8"), re.DOTALL
    )
    commands = [shlex.split(line) for line in block.replace("\\\n", " ").splitlines()]
    assert [command[1] for command in commands] == ["train", "encode", "figures", "svm"]
    monkeypatch.chdir(tmp_path)
    # the others take their time
    monkeypatch.setattr(RunFigures, "names", ["reconstructions", "cost-2"])
    named = data._load_named
    monkeypatch.setattr(data, "_load_named", lambda *given: named(*given).subset(np.arange(20)))
    for program, *arguments in commands:
        assert program == "whatwhere"
        result = CliRunner().invoke(app, arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
    assert "tested on digits/test (20 images)" in result.output
    assert load_codes("codes.npz").features.shape == (20, 48, 10, 10)
    assert (tmp_path / "runs/digits/figures/report.html").is_file()
