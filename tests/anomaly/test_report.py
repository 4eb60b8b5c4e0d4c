"""The report of a detector: masks of the alarms, and its words."""

from pathlib import Path

import numpy as np
from PIL import Image

import whatwhere as ww
from surfaces import save_pictures, scratched, surface
from tiny_run import whatwhere
from whatwhere.anomaly.pictures import open_pictures
from whatwhere.anomaly.report import learned_from


def test_the_masks_of_alarms_are_the_insides_of_outlines(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(12), "n")
    save_pictures(tmp_path / "new", scratched(surface(2, seed=6))[0], "bad")
    save_pictures(tmp_path / "new", surface(2, seed=5), "good")
    file, out = tmp_path / "detector", tmp_path / "report"
    whatwhere("anomaly", "fit", tmp_path / "normal", "--out", file)
    whatwhere("anomaly", "score", tmp_path / "new", file, "--out", out)
    detector = ww.AnomalyDetector.load(file)
    expected = {}
    for found in detector.detect(open_pictures(tmp_path / "new")):
        inside = (found.anomaly_map > detector.outline_).numpy()
        if found.score > detector.threshold_.value and inside.any():
            expected[found.name] = inside
    assert {"bad0.png", "bad1.png"} <= set(expected)
    written = {mask.name: np.asarray(Image.open(mask)) for mask in (out / "masks").iterdir()}
    assert written.keys() == expected.keys()
    for name, mask in written.items():
        assert np.array_equal(mask, 255 * expected[name])
    for picture in (tmp_path / "new").glob("bad*"):
        picture.unlink()
    whatwhere("anomaly", "score", tmp_path / "new", file, "--out", out)
    assert not {"bad0.png", "bad1.png"} & {mask.name for mask in (out / "masks").iterdir()}


def test_a_random_sample_is_reported() -> None:
    """A picture of 32 x 32 pixels needs 0.39 MB, so that 1 MB is enough for two."""
    detector = ww.AnomalyDetector(memory=1).fit(surface(5, height=32, width=32))
    expected = "learned from 2 of 5 pictures; it kept a random sample of 2 (setting `memory`)"
    assert learned_from(detector) == expected
