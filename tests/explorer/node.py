"""Node, where there is one: it runs the page's modules outside a browser."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import whatwhere.explorer

PAGE = Path(whatwhere.explorer.__file__).parent / "page"
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="needs Node, which is not installed")


def run_node(script: Path, *arguments: object) -> Any:
    """What a script prints, read as JSON."""
    command = ["node", str(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
