"""The memory and the file of `whatwhere encode` for 1,000, 10,000 and 100,000 pictures.

    python -m benchmarks.memory.encode_memory OUT.json

Small random pictures and one step of inference: what grows with the number of pictures would show.
"""

import json
import multiprocessing
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np


def encode(folder: str, count: int, answer: "multiprocessing.Queue[dict[str, int]]") -> None:
    """Encode so many pictures in a process of its own."""
    import whatwhere as ww
    from whatwhere.app import app

    place = Path(folder)
    model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=4, filter_size=3),)))
    ww.save(model, place / "model.safetensors")
    images = np.random.default_rng(0).integers(0, 255, (count, 8, 8), np.uint8)
    np.save(place / "images.npy", images)
    del images
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = ["encode", str(place / "images.npy"), str(place / "model.safetensors"), "--where"]
    words += ["--out", str(place / "codes.npz"), "--preset", "recipe", "--quiet"]
    words += ["--set", "inference.steps=1", "--set", "engine=reference", "--device", "cpu"]
    app(words, standalone_mode=False)
    largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    size = (place / "codes.npz").stat().st_size
    answer.put({"before_kB": before, "largest_kB": largest, "bytes": size})


def main() -> None:
    results = {}
    for count in (1_000, 10_000, 100_000):
        context = multiprocessing.get_context("spawn")
        answer = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            process = context.Process(target=encode, args=(folder, count, answer))
            process.start()
            results[count] = answer.get()
            process.join()
        Path(sys.argv[1]).write_text(json.dumps(results, indent=1))
        print(count, results[count], flush=True)


if __name__ == "__main__":
    main()
