"""What the pages say of denoising and inpainting is what the result files of the studies hold."""

import json
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "reproduction/studies/results"


def results(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def page(name: str) -> str:
    return " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_no_crop_is_worse_than_its_input() -> None:
    rows = results("denoising_crops.json")["rows"]
    assert len({row["crop"] for row in rows}) == 100
    assert min(row["sigma"] for row in rows) == 2
    assert max(row["sigma"] for row in rows) == 75
    assert [row for row in rows if max(row["given"], row["estimated"]) > 1] == []


def test_where_a_feature_sits_is_reported_as_measured() -> None:
    text = page("explanation/restoration.md")
    for row in results("where_shifts.json")["rows"]:
        kind, shifts = row["kind"].replace("gauss", "Gauss"), row["learned_with"]
        name = f"{kind}, learned for {shifts} shift{'s' * (shifts > 1)}"
        psnr = " | ".join(f"{row['psnr'][averaged]:.2f}" for averaged in ("1", "4", "16", "64"))
        assert f"| {name} | {psnr} | {1000 * row['seconds'] / row['updates']:.0f} |" in text


def test_the_noise_is_estimated_as_reported() -> None:
    text = page("explanation/restoration.md")
    for sigma, ratios in results("denoising.json")["noise"]["ratios"].items():
        assert len(ratios) == 68
        within = int((np.abs(np.array(ratios) - 1) <= 0.05).sum())
        assert f"| {sigma} | {np.mean(ratios):.3f} | {np.std(ratios):.3f} | {within} |" in text
        assert abs(np.mean(ratios) - 1) < 0.05
