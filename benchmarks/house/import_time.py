"""Processor time of `import whatwhere` here and at an earlier revision, before a release.

    python -m benchmarks.house.import_time [REVISION]     # default: the last tag

The imports alternate, and the best of each counts. The exit status is 1 if it takes over a tenth
longer than before.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 7
MOST = 1.1  # times as long as before; the best of several imports varies by a few per cent


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def seconds(source: Path) -> float:
    """Processor seconds of one import."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    subprocess.run([sys.executable, "-c", "import whatwhere"], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(revision: str) -> int:
    with tempfile.TemporaryDirectory() as folder:
        git("worktree", "add", "--detach", folder, revision)
        try:
            sources = {"before": Path(folder) / "src", "now": ROOT / "src"}
            times = {name: [seconds(sources[name])] for name in sources}  # the first fills caches
            for _ in range(ROUNDS):
                for name, source in sources.items():
                    times[name].append(seconds(source))
        finally:
            git("worktree", "remove", "--force", folder)
    best = {name: min(each[1:]) for name, each in times.items()}
    ratio = best["now"] / best["before"]
    print(json.dumps({"revision": revision, **best, "ratio": round(ratio, 3)}))
    return int(ratio > MOST)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else git("describe", "--tags", "--abbrev=0")))
