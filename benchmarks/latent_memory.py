"""Peak memory of training by store and number of images: with latents in files it must not grow
with the images.

    python benchmarks/latent_memory.py [--images 2000 20000] [--stores file memory]

Each measurement trains layer 2 of the paper's model for one epoch in a process of its own, and
reads the highest resident memory that the operating system saw (VmHWM; its anonymous part at the
end is given next to it).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "latent_memory.json"


def measure(images: int, store: str, engine: str) -> dict[str, object]:
    """Train on this many images, digits over and over from a mapped file, and read what it took."""
    import numpy as np

    from whatwhere.data import load
    from whatwhere.learning import TrainingOptions, train
    from whatwhere.spec import Recipe

    recipe = Recipe.paper()
    first, second = recipe.learning
    inference = replace(second.inference, steps=1)
    learning = (
        replace(first, epochs=0),
        replace(second, epochs=1, cg_steps=1, inference=inference),
    )
    recipe = replace(recipe, learning=learning, batch_size=250)
    with tempfile.TemporaryDirectory() as folder:
        digits = np.rint(load("digits")[:1000].numpy() * 255).astype(np.uint8)
        with open(
            f"{folder}/images.npy", "wb"
        ) as file:  # not mapped: what is mapped counts as this process's memory
            header = {"descr": "|u1", "fortran_order": False, "shape": (images, 1, 28, 28)}
            np.lib.format.write_array_header_1_0(file, header)
            for start in range(0, images, len(digits)):
                file.write(digits[: images - start].tobytes())
        options = TrainingOptions(store=store, engine=engine, device="cpu")
        run = train(load(f"{folder}/images.npy"), recipe, f"{folder}/run", options=options)
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "images": images,
        "store": store,
        "peak_resident_mb": int(status["VmHWM"].split()[0]) // 1024,
        "anonymous_at_end_mb": int(status["RssAnon"].split()[0]) // 1024,
        "latents_mb": round(images * 40384 * 4 / 1e6),
        "seconds": round(run.history[0].seconds, 1),
        "engine": run.history[0].engine,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, nargs="+", default=[2000, 20000])
    parser.add_argument("--stores", nargs="+", default=["file", "memory"])
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--one", action="store_true", help="measure in this process, print JSON")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.images[0], given.stores[0], given.engine)))
        return
    from machine import machine

    rows = []
    for store in given.stores:
        for images in given.images:
            command = [
                sys.executable,
                __file__,
                "--one",
                "--images",
                str(images),
                "--stores",
                store,
            ]
            done = subprocess.run(
                [*command, "--engine", given.engine], stdout=subprocess.PIPE, text=True, check=True
            )
            rows.append(json.loads(done.stdout))
            print(rows[-1], flush=True)
            RESULTS.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
