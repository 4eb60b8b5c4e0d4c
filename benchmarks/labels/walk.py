"""The walk of a new user over a folder of mixed pictures, timed: python -m benchmarks.labels.walk
FOLDER

Makes 63 pictures of mixed sizes, colours and depths in FOLDER (and a text file, an empty file and a
broken JPEG), takes them through every command, opens the explorer in Chromium, and writes what each
took and printed last to benchmarks/labels/results/walk.json. Machine code is made anew, in
FOLDER/code, as
after an installation. The explorer's time is from the command to the page with its first explained
image, for this run and for models that ship.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))
LABELS = "file,class\n" + "".join(
    f"{name},{name.partition('-')[0]}\n"
    for name in (
        *("spots-03.jpg", "spots-12.png", "spots-21.tif"),
        *("stripes-01.jpg", "stripes-04.png", "stripes-13.tif"),
        *("shapes-02.jpg", "shapes-05.tif", "shapes-08.png"),
    )
)
COMMANDS = """
train pictures --out run
encode pictures run --out codes.npz --where
decode codes.npz run --out decoded
classify pictures run --labels labels.csv --out classes
figures run
anomaly fit pictures --out detector
anomaly score pictures detector --out scores
denoise pictures --out denoised
inpaint pictures/spots-03.jpg --mask mask.png --out filled.png
"""
EXPLORED = ("run", "mnist", "photographs pictures")


def make(home: Path) -> None:
    """The pictures, a table of labels and a mask."""
    from PIL import Image

    from mixed_folder import make_folder

    make_folder(home / "pictures")
    (home / "labels.csv").write_text(LABELS)
    mask = Image.new("L", Image.open(home / "pictures" / "spots-03.jpg").size, 255)
    mask.paste(0, (10, 10, 20, 20))
    mask.save(home / "mask.png")


def run(home: Path, command: str) -> dict[str, Any]:
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "whatwhere", *command.split()],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    last = (done.stdout or done.stderr).strip().splitlines()[-1:]
    return {
        "command": f"whatwhere {command}",
        "code": done.returncode,
        "seconds": round(time.monotonic() - start, 1),
        "processor_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1
        ),
        "printed": last[0][:200] if last else "",
    }


def explore(home: Path, browser: Any, command: str) -> dict[str, Any]:
    """Seconds from the command until its page shows an image with the first step of its
    explanation, and all steps."""
    start = time.monotonic()
    arguments = [
        sys.executable,
        "-u",
        "-W",
        "ignore",
        "-m",
        "whatwhere",
        *command.split(),
        "--no-browser",
    ]
    with subprocess.Popen(arguments, cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        served, tab = time.monotonic() - start, browser.new_page()
        tab.goto(url)
        tab.locator("#step-label:not(:empty)").wait_for(timeout=300_000)
        shown = time.monotonic() - start
        tab.locator("body[aria-busy=false]").wait_for(timeout=300_000)
        explained = time.monotonic() - start
        tab.close()
        process.terminate()
    line = {
        "command": f"whatwhere {command}",
        "served": served,
        "seconds": shown,
        "explained": explained,
    }
    return {
        name: round(value, 1) if isinstance(value, float) else value for name, value in line.items()
    }


def main() -> None:
    from playwright.sync_api import sync_playwright

    home = Path(sys.argv[1]).absolute()
    make(home)
    os.environ["NUMBA_CACHE_DIR"] = str(home / "code")
    load, lines = os.getloadavg()[0], []
    for command in COMMANDS.strip().splitlines():
        lines.append(run(home, command))
        print(lines[-1], flush=True)
    with sync_playwright() as api:
        browser = api.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for model in EXPLORED:
            lines.append(explore(home, browser, f"explore {model}"))
            print(lines[-1], flush=True)
        browser.close()
    total = sum(line["seconds"] for line in lines[: -len(EXPLORED) + 1])  # with one page
    print(f"{total:.0f} s altogether")
    out = {"cores": os.cpu_count(), "load_before": load, "seconds": round(total), "commands": lines}
    (ROOT / "benchmarks" / "labels" / "results" / "walk.json").write_text(
        json.dumps(out, indent=1, ensure_ascii=False) + "\n"
    )


if __name__ == "__main__":
    main()
