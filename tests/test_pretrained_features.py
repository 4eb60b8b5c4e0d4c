"""The example with a pretrained network, where its packages are installed: a file of the detector
records the network and refuses others."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import whatwhere as ww
from whatwhere.errors import RunError

EXAMPLE = Path(__file__).parents[1] / "examples" / "pretrained_features.py"
pytest.importorskip("efficientnet_lite_pytorch", reason="the small network is not installed")


def pictures(folder: Path, scratched: int) -> Path:
    """Grey noise of 96 × 96 pixels; the last `scratched` ones have a bright line."""
    folder.mkdir()
    generator = np.random.default_rng(scratched)
    for number in range(12):
        values = generator.normal(128, 12, (96, 96))
        if number >= 12 - scratched:
            values[40:44, 20:80] += 90
        Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(folder / f"{number:02}.png")
    return folder


def test_the_example_finds_the_scratched_pictures(tmp_path: Path) -> None:
    normal = pictures(tmp_path / "normal", 0)
    new = pictures(tmp_path / "new", 3)
    command = [sys.executable, str(EXAMPLE), str(normal), str(new)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split() for line in lines if ".png" in line]
    scores = {name: float(score) for name, score, _ in rows}
    assert sorted(sorted(scores, key=scores.__getitem__)[-3:]) == ["09.png", "10.png", "11.png"]


def test_a_file_asks_for_the_network_it_was_fitted_with(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("pretrained_features", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    detector = ww.AnomalyDetector(features=example.efficientnet)
    detector.fit(pictures(tmp_path / "normal", 0)).save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector", features=example.efficientnet)
    new = pictures(tmp_path / "new", 3)
    np.testing.assert_allclose(loaded.score_samples(new), detector.score_samples(new), rtol=1e-4)

    def other(x: torch.Tensor) -> list[torch.Tensor]:
        return [-maps for maps in example.efficientnet(x)]

    with pytest.raises(RunError, match="other features"):
        ww.AnomalyDetector.load(tmp_path / "detector", features=other)
