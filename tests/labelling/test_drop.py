"""Dropped pictures: kept in a folder of their own, then labelled."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from whatwhere.html.server import Content
from whatwhere.labelling.drop import DropZone, UnsafeName, place_in


class Page:
    """Stands for the page of a session."""

    def answer(self, path: str) -> Content:
        return Content(f"answer {path}".encode())

    def act(self, path: str, sent: Any) -> Content:
        return Content(f"act {path}".encode())


def picture(shade: int) -> str:
    file = io.BytesIO()
    Image.new("L", (8, 8), shade).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def test_dropped_pictures_are_kept_and_the_session_begins_on_them(tmp_path: Path) -> None:
    folder = tmp_path / "dropped"
    opened: list[Path] = []

    def open_page(given: Path) -> Any:
        opened.append(given)
        return Page()

    zone = DropZone(folder, open_page)
    assert json.loads(zone.answer("state").body) == {"drop": str(folder), "count": 0}
    assert zone.act("label", {}) is None
    failed = json.loads(zone.act("begin", {}).body)["failed"]
    assert "Got 0 files; expected at least two pictures" in failed
    assert not folder.exists(), "nothing is made before it is needed"
    for number, name in enumerate(("a.png", "flowers/b.png")):
        zone.act("drop", {"name": name, "content": picture(number)})
    assert sorted(one.name for one in folder.rglob("*.png")) == ["a.png", "b.png"]
    assert Image.open(folder / "flowers" / "b.png").getpixel((0, 0)) == 1
    assert json.loads(zone.act("begin", {}).body) == {"count": 2}
    assert opened == [folder]
    assert zone.answer("state/1").body == b"answer state/1"
    assert zone.act("label", {}).body == b"act label"


def test_pictures_of_one_name_are_all_kept(tmp_path: Path) -> None:
    """They were in several folders. One that is dropped again is not another one."""
    zone = DropZone(tmp_path / "dropped", lambda _: pytest.fail("no session"))
    for shade in (0, 1, 2, 1):
        zone.act("drop", {"name": "a.png", "content": picture(shade)})
    shades = {path.name: Image.open(path).getpixel((0, 0)) for path in zone.folder.iterdir()}
    assert shades == {"a.png": 0, "a (2).png": 1, "a (3).png": 2}
    assert json.loads(zone.answer("state").body)["count"] == 3


@pytest.mark.parametrize(
    "name", ["../a.png", "/etc/a.png", "a/../../b.png", "", "c:\\a.png", "a\0.png", ".."]
)
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(UnsafeName) as caught:
        place_in(tmp_path, name)
    assert caught.value.name == name
    zone = DropZone(tmp_path / "dropped", lambda _: pytest.fail("no session"))
    answer = zone.act("drop", {"name": name, "content": picture(0)})
    assert "Rename it" in json.loads(answer.body)["failed"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "sent",
    [None, [], {}, {"name": "a.png"}, {"name": 3, "content": ""}, {"name": "a", "content": "é"}],
)
def test_damaged_requests_are_answered(sent: Any, tmp_path: Path) -> None:
    zone = DropZone(tmp_path / "dropped", lambda _: pytest.fail("no session"))
    assert "Expected the name of a picture" in json.loads(zone.act("drop", sent).body)["failed"]
