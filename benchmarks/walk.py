"""The walk of a new user over a folder of mixed pictures, timed: python benchmarks/walk.py FOLDER

Makes 63 pictures of mixed sizes, colours and depths in FOLDER (and a text file, an empty file and a broken JPEG), takes
them through every command, and writes what each took and printed last to benchmarks/results/walk.json.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
LABELS = "file,class\n" + "".join(
    f"{name},{name.partition('-')[0]}\n"
    for name in (
        *("spots-03.jpg", "spots-12.png", "spots-21.tif"),
        *("stripes-01.jpg", "stripes-04.png", "stripes-13.tif"),
        *("shapes-02.jpg", "shapes-05.tif", "shapes-08.png"),
    )
)


def commands() -> list[list[str]]:
    return [
        ["train", "pictures", "--out", "run"],
        ["encode", "run", "pictures", "--out", "codes.npz", "--where"],
        ["decode", "run", "codes.npz", "--out", "decoded"],
        ["classify", "run", "pictures", "--labels", "labels.csv", "--out", "classes"],
        ["figures", "run"],
        ["anomaly", "fit", "pictures", "--out", "detector"],
        ["anomaly", "score", "detector", "pictures", "--out", "scores"],
        ["denoise", "pictures", "denoised"],
        ["inpaint", "pictures/spots-03.jpg", "mask.png", "filled.png"],
        ["explore", "run", "--out", "page.html"],
    ]


def main() -> None:
    from PIL import Image

    from mixed_folder import make_folder

    home = Path(sys.argv[1])
    make_folder(home / "pictures")
    (home / "labels.csv").write_text(LABELS)
    mask = Image.new("L", Image.open(home / "pictures" / "spots-03.jpg").size, 255)
    mask.paste(0, (10, 10, 20, 20))
    mask.save(home / "mask.png")
    lines = []
    for command in commands():
        start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "whatwhere", *command], cwd=home, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        last = (done.stdout or done.stderr).strip().splitlines()[-1:]
        line = {
            "command": " ".join(["whatwhere", *command]),
            "code": done.returncode,
            "seconds": round(time.monotonic() - start, 1),
            "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
            "printed": last[0][:200] if last else "",
        }
        print(line, flush=True)
        lines.append(line)
    out = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "commands": lines}
    (ROOT / "benchmarks" / "results" / "walk.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
