"""`whatwhere anomaly` as a person uses it."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import tiny_run as tiny
import whatwhere as ww
from tiny_run import PLAIN, whatwhere
from whatwhere.anomaly.detector import TEXTURE_INFERENCE
from whatwhere.cli.anomaly import overlay, spread


def test_scores_and_maps_are_those_of_the_detector(tmp_path: Path) -> None:
    run, (normal, _), (odd, _) = tiny.make(tmp_path / "run"), tiny.bars(40), tiny.bars(7, seed=5)
    np.save(tmp_path / "normal.npy", normal)
    np.save(tmp_path / "odd.npy", odd)
    arguments = (run, tmp_path / "odd.npy", "--normal", tmp_path / "normal.npy", "--out", tmp_path / "new" / "maps")
    printed = json.loads(whatwhere("anomaly", *arguments, "--set", "examples=20", "--json", *PLAIN))
    model = ww.load(run / "model.safetensors")
    detector = ww.AnomalyDetector(model, recipe=tiny.recipe(), engine="reference").fit(normal[spread(40, 20)])
    expected, maps = detector.decision_and_map(odd)
    with (tmp_path / "new" / "maps" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["image"]) for row in rows] == expected.argsort().tolist()
    np.testing.assert_allclose([float(row["score"]) for row in rows], np.sort(expected), atol=1e-3)
    assert printed == {"folder": str(tmp_path / "new" / "maps"), "images": 7, "anomalies": int((expected < 0).sum())}
    for row in rows:
        n = int(row["image"])
        picture = ww.data.load(tmp_path / "new" / "maps" / row["map"])[0]
        drawn = overlay(torch.from_numpy(odd[n])[None], torch.from_numpy(maps[n])).permute(2, 0, 1) / 255
        torch.testing.assert_close(picture, drawn.float(), atol=0.01, rtol=0)


def test_anywhere_takes_the_settings_for_textures(tmp_path: Path) -> None:
    run, (normal, _), (odd, _) = tiny.make(tmp_path / "run"), tiny.bars(20), tiny.bars(3, seed=5)
    np.save(tmp_path / "normal.npy", normal)
    np.save(tmp_path / "odd.npy", odd)
    arguments = (run, tmp_path / "odd.npy", "--normal", tmp_path / "normal.npy", "--out", tmp_path / "maps")
    whatwhere("anomaly", *arguments, "--anywhere", *PLAIN)
    recipe = replace(tiny.recipe(), inference=TEXTURE_INFERENCE)
    model = ww.load(run / "model.safetensors")
    detector = ww.AnomalyDetector(model, recipe=recipe, aligned=False, engine="reference").fit(normal)
    with (tmp_path / "maps" / "scores.csv").open() as file:
        scores = [float(row["score"]) for row in csv.DictReader(file)]
    np.testing.assert_allclose(scores, np.sort(detector.decision_function(odd)), atol=1e-3)


def test_normal_pixels_stay_grey_and_odd_ones_turn_red() -> None:
    colours = overlay(torch.full((1, 1, 3), 0.5), torch.tensor([[-1.0, 0.0, 99.0]]))
    assert colours.tolist() == [[[128, 128, 128], [128, 128, 128], [255, 0, 0]]]


def test_examples_are_spread_over_the_normal_images() -> None:
    assert spread(5, 10).tolist() == [0, 1, 2, 3, 4]
    assert spread(101, 3).tolist() == [0, 50, 100]
