"""Count how often `denoise` decodes a picture on its way:  python -m benchmarks.house.decodings

Two pictures of 40 × 40 pixels, alone and as a folder. A decoding is a call of Pillow's decoder; an
opening is a call of the function that reads a file's header.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image
from typer.testing import CliRunner

from whatwhere.app import app
from whatwhere.data import pictures


def main() -> None:
    """Denoise one picture and a folder of two, and print the counts."""
    folder = Path(tempfile.mkdtemp())
    (folder / "in").mkdir()
    values = np.random.default_rng(0)
    for number in range(2):
        noise = values.integers(0, 255, (40, 40), np.uint8)
        Image.fromarray(noise).save(folder / "in" / f"{number}.png")
    for name, source in (("one picture", "in/0.png"), ("a folder of two", "in")):
        out = folder / name.replace(" ", "_")
        words = [
            "denoise",
            str(folder / source),
            "--out",
            str(out.with_suffix(Path(source).suffix)),
        ]
        with (
            patch.object(pictures, "_open_stream", wraps=pictures._open_stream) as opened,
            patch.object(Image, "_getdecoder", wraps=Image._getdecoder) as decoded,
        ):
            CliRunner().invoke(app, [*words, "--quiet"], catch_exceptions=False)
        print(f"{name}: {opened.call_count} openings, {decoded.call_count} decodings")


if __name__ == "__main__":
    main()
