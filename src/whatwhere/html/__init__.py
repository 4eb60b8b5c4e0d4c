"""The building blocks of HTML pages: modules as one script, a policy that forbids requests
elsewhere, pictures as PNG.

In a script imports are dropped, since everything they name stands above. The modules stay plain ES
modules, which Node and a type checker read as they are. For this to work a module imports names as
they are (`import { a } from "./b.js"`), exports declarations, and no two modules declare the same
name at their top level.
"""

import base64
import hashlib
import json
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from jinja2 import Environment

ASSETS = Path(__file__).parent / "assets"
"""The folder of scripts, styles and templates."""

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([a-z_]+)\.js";\n', re.MULTILINE)
EXPORT = re.compile(r"^export (?=const |let |class |function |async function )", re.MULTILINE)


def bundle(folder: Path, entry: str) -> str:
    """Return the module of this name in a folder with all that it imports, each module once, after
    those it imports."""
    written: dict[str, str] = {}

    def add(name: str) -> None:
        if name not in written:
            source = (folder / f"{name}.js").read_text(encoding="utf-8")
            for imported in _IMPORT.findall(source):
                add(imported)
            written[name] = EXPORT.sub("", _IMPORT.sub("", source))

    add(entry)
    return '"use strict";\n(() => {\n' + "\n".join(written.values()) + "})();\n"


def assemble(
    template: Path, entry: str, style: str, sources: str, data: Mapping[str, object], **more: object
) -> str:
    """Return a page with its data. Its content policy allows only its own script, its own style and
    `sources`.

    Parameters
    ----------
    template
        an HTML file with places for the parts; `head.html` has what all heads share
    entry
        the module next to the template that the script begins with
    sources
        the rest of the policy
    more
        further values by the ids of the elements that hold them
    """
    script = bundle(template.parent, entry)
    policy = (
        f"default-src 'none'; script-src {sha256(script)}; style-src {sha256(style)}; {sources};"
        " base-uri 'none'"
    )
    embedded = [
        f'<script type="application/json" id="{id}">{_embed(v)}</script>'
        for id, v in (("data", data), *more.items())
    ]
    parts = {
        "head": (ASSETS / "head.html").read_text(encoding="utf-8").rstrip(),
        "security": (
            f'<meta http-equiv="Content-Security-Policy" content="{policy}; form-action \'none\'">'
        ),
        "style": f"<style>{style}</style>",
        "scripts": "\n".join([*embedded, f"<script>{script}</script>"]),
    }
    page = template.read_text(encoding="utf-8")
    for place, content in parts.items():
        page = page.replace(f"<!--{place}-->", content)
    return page


@cache
def report_style() -> str:
    """Return the style of all reports."""
    return (Path(__file__).parent / "report.css").read_text(encoding="utf-8")


def render(template: str, title: str, **values: object) -> str:
    """Fill a template with values, which are escaped: a page without scripts that needs no other
    file.

    Parameters
    ----------
    template
        the name of a file in the folder `templates`
    """
    from markupsafe import Markup

    style = Markup(report_style())
    return _templates().get_template(template).render(title=title, style=style, **values)


@cache
def _templates() -> "Environment":
    """Return the templates of pages; jinja2 is imported with the first page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _embed(value: object) -> str:
    """Return JSON that no HTML parser mistakes for markup, whatever the names and labels in it
    are."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def sha256(content: str) -> str:
    """Return a source expression of a content security policy that allows exactly this script or
    style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def data_url(content: bytes, form: str) -> str:
    """Return the content of a picture as an address."""
    return f"data:image/{form};base64,{base64.b64encode(content).decode('ascii')}"


def png(pixels: Tensor) -> bytes:
    """Return bytes [H, W] or [H, W, 3] as a PNG file, in grey or RGB."""
    height, width = pixels.shape[:2]
    rows = pixels.cpu().contiguous().numpy().reshape(height, -1)

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    # 0: a row without a filter
    data = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows), 3)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    )


def thumbnail(image: Tensor, side: int) -> Tensor:
    """Return an image [C, H, W] as bytes [h, w] or [h, w, 3], its sides at most `side`; other
    channels become their mean."""
    largest = max(image.shape[1:])
    if largest > side:
        size = [max(1, round(extent * side / largest)) for extent in image.shape[1:]]
        image = F.interpolate(image[None], size, mode="area")[0]
    if image.shape[0] not in (1, 3):
        image = image.mean(0, keepdim=True)
    shades = (255 * image.nan_to_num(0).clamp(0, 1)).round().to(torch.uint8)
    return shades.permute(1, 2, 0) if len(shades) == 3 else shades[0]


def sheet(images: Sequence[Tensor], side: int, columns: int) -> Tensor:
    """Arrange thumbnails [h, w] or [h, w, 3] in a grid of squares of `side`, row by row, each in
    the middle of its own."""
    rows = -(-len(images) // columns)
    result = torch.zeros(rows * side, columns * side, *images[0].shape[2:], dtype=torch.uint8)
    for number, image in enumerate(images):
        height, width = image.shape[:2]
        top = number // columns * side + (side - height) // 2
        left = number % columns * side + (side - width) // 2
        result[top : top + height, left : left + width] = image
    return result


def notebook_strip(caption: str, images: Sequence[Tensor], side: int = 56) -> str:
    """Show a caption above small pictures [C, H, W] in a row, as notebooks show a value."""
    pictures = "".join(
        f'<img src="{data_url(png(thumbnail(image, side)), "png")}" alt="" height="{side}"'
        ' style="display:inline-block;margin:0 2px 2px 0;image-rendering:pixelated">'
        for image in images
    )
    return f"<div><code>{escape(caption)}</code></div><div>{pictures}</div>"
