"""Make the page that removes noise in a browser: npm install --prefix docs/browser, then

    python docs/browser_page.py docs/_build/html/browser

The folder has the page, the denoiser as an ONNX file, and the parts of onnxruntime-web that run it.
Any web server can serve it; nothing is sent to the server.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import whatwhere as ww

SOURCE = Path(__file__).parent / "browser"
RUNTIME = SOURCE / "node_modules" / "onnxruntime-web"
PAGE = ("denoise.html", "page.mjs", "denoise.mjs")
PARTS = ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")


def make_page(folder: Path, runtime: Path = RUNTIME, quality: int = 16) -> None:
    """Write the page and what it needs into a folder.

    runtime  the folder of the npm package onnxruntime-web
    quality  number of shifted grids that are averaged; the time is proportional to it
    """
    parts = [runtime / "dist" / name for name in PARTS]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise SystemExit(
            f"{runtime} lacks {', '.join(missing)}. Run npm install --prefix docs/browser first."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for file in (*(SOURCE / name for name in PAGE), *parts):
        shutil.copyfile(file, folder / file.name)
    spec = ww.restoration.RestorationSpec(quality=quality)
    ww.restoration.save_onnx(
        ww.restoration.load_denoiser(), folder / "denoiser.onnx", spec, overwrite=True
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runtime", type=Path, default=RUNTIME)
    parser.add_argument("--quality", type=int, default=16)
    a = parser.parse_args()
    make_page(a.folder, a.runtime, a.quality)
