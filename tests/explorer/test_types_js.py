"""The page's modules under TypeScript's checker, where it is installed."""

import shutil
import subprocess

import pytest

from explorer.node import PAGE

CHECK = "--noEmit --allowJs --checkJs --strict --target es2022 --lib es2022,dom,dom.iterable --module es2022"


@pytest.mark.skipif(shutil.which("tsc") is None, reason="needs TypeScript (tsc), which is not installed")
def test_the_modules_are_well_typed() -> None:
    files = sorted(map(str, PAGE.glob("*.js")))
    assert len(files) > 10
    command = ["tsc", *CHECK.split(), "--moduleResolution", "bundler", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout
