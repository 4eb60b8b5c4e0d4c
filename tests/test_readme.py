"""What the README shows runs as it stands, and what it points at is there."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn")
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(code, "README.md", "exec"), names)
    assert re.fullmatch(r"\w+: \d+ features an image\n", capsys.readouterr().out)
    assert names["X"].shape == (100, 4800)
    assert names["z"].shape == (8, 16, 32, 32)


def test_every_link_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)(?:#([^)]*))?\)", README.read_text(encoding="utf-8"))
    here = [(README.parent / path, place) for path, place in links if "://" not in path]
    assert here
    assert [path for path, _ in here if not path.exists()] == []
    assert [place for path, place in here if place and place not in places(path)] == []


def places(page: Path) -> list[str]:
    """What a link can name on a page: its headings, in small letters with hyphens."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
