"""Every picture of the pages has a command, and none is older than what it is drawn from."""

import sys
from pathlib import Path

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS))
from pictures import drawings, stale  # noqa: E402


def test_every_picture_has_a_command() -> None:
    known = {picture for each in drawings() for picture in each.pictures}
    here = {
        str(path.relative_to(DOCS))
        for folder in ("images", "howto", "results")
        for suffix in ("png", "webp", "gif")
        for path in (DOCS / folder).glob(f"*.{suffix}")
    }
    assert here == known


def test_no_picture_is_older_than_its_source() -> None:
    assert {each.name: each.command for each in stale()} == {}
