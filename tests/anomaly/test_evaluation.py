"""Measures of a detector against the truth, compared with those computed pixel by pixel."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import label
from sklearn.metrics import roc_auc_score

from surfaces import save_pictures, scratched, surface
from tiny_run import whatwhere
from whatwhere.anomaly.evaluation import (
    Evaluation,
    EvaluationSpec,
    _Truth,
    compared_places,
    read_truth,
)
from whatwhere.anomaly.pictures import PictureList, open_pictures
from whatwhere.anomaly.threshold import Threshold
from whatwhere.errors import ImageError, SpecError


def made(seed: int, shift: float) -> tuple[Evaluation, list[np.ndarray], list[np.ndarray]]:
    """An evaluation of random maps, larger by `shift` on the defects; the maps and the masks."""
    generator = np.random.default_rng(seed)
    masks = [np.zeros((40, 50), bool) for _ in range(8)]
    for mask in masks[4:]:
        mask[5:9, 5:30] = mask[20:30, 10:14] = True
    maps = [generator.standard_normal(mask.shape) + shift * mask for mask in masks]
    odd = np.arange(8) >= 4
    pictures = [
        PictureList([str(n)], lambda _, m=m: torch.tensor(m[None]).float())
        for n, m in enumerate(masks)
    ]
    evaluation = Evaluation(_Truth(odd, [None] * 4 + pictures[4:]), outline=2.0)
    for heat in maps:
        evaluation.add(float(heat.max()), torch.tensor(heat))
    return evaluation, maps, masks


def test_areas_under_curves_of_pictures_and_pixels_are_those_of_scikit_learn() -> None:
    evaluation, maps, masks = made(0, shift=1.0)
    odd = np.arange(8) >= 4
    scores = [heat.max() for heat in maps]
    measured = evaluation.pictures(Threshold(3.5, 0.05, (0.0, 0.1)))
    assert measured["AUROC"]["value"] == pytest.approx(roc_auc_score(odd, scores))  # type: ignore[index]
    assert measured["recall"]["count"] == sum(score > 3.5 for score in scores[4:])  # type: ignore[index]
    pixel = roc_auc_score(np.ravel(masks), np.ravel(maps))
    assert evaluation.places()["pixel AUROC"] == pytest.approx(pixel, abs=2e-4)


def test_pro_is_the_mean_share_of_regions_found_up_to_a_rate() -> None:
    evaluation, maps, masks = made(1, shift=1.5)
    clean = np.sort(np.concatenate([h[~m] for h, m in zip(maps, masks, strict=True)]))[::-1]
    rates = np.linspace(0, 0.3, 600)
    thresholds = clean[(rates * len(clean)).astype(int)]
    shares = []
    for heat, mask in zip(maps, masks, strict=True):
        regions, count = label(mask, np.ones((3, 3)))
        shares += [
            [(heat[regions == n] > t).mean() for t in thresholds] for n in range(1, count + 1)
        ]
    expected = np.trapezoid(np.mean(shares, 0), rates) / 0.3
    assert len(shares) == 8
    assert evaluation.places()["PRO"] == pytest.approx(expected, abs=5e-3)


def test_aupimo_is_the_recall_at_rare_false_alarms_on_normal_pictures() -> None:
    evaluation, maps, masks = made(2, shift=3.0)
    spec = EvaluationSpec(rarest_false=1e-3, rare_false=1e-2)
    evaluation.spec = spec
    levels = np.sort(np.concatenate([np.ravel(heat) for heat in maps[:4]]))[::-1]
    values = []
    for heat, mask in zip(maps[4:], masks[4:], strict=True):
        at = np.geomspace(1e-3, 1e-2, 300)
        thresholds = levels[(at * len(levels)).astype(int)]
        values.append(np.mean([(heat[mask] > t).mean() for t in thresholds]))
    measured = evaluation.places()["AUPIMO"]
    assert measured["value"] == pytest.approx(np.mean(values), abs=0.02)  # type: ignore[index]
    evaluation.spec = EvaluationSpec(rarest_false=1e-6)
    assert evaluation.places()["AUPIMO"] is None, "8,000 pixels show no such rare false alarm"


def test_two_detectors_are_compared_region_by_region() -> None:
    good, _, _ = made(3, shift=4.0)
    poor, _, _ = made(4, shift=-3.0)
    compared = compared_places(good, poor)
    assert compared["regions"] == compared["found by the first only"] == 8
    assert compared["p"] == pytest.approx(2 * 0.5**8)
    assert compared["interval"][0] > 0.5  # type: ignore[index]
    same = compared_places(good, good)
    assert same["p"] == 1.0
    assert same["found by both"] == 8


def test_the_truth_is_read_from_folders_and_from_masks(tmp_path: Path) -> None:
    save_pictures(tmp_path / "flat", surface(2, height=32, width=32), "a")
    pictures = open_pictures(tmp_path / "flat")
    for folder in ("good", "scratch", "masks"):
        (tmp_path / "set" / folder).mkdir(parents=True)
    (tmp_path / "set" / "good" / "a0.png").write_bytes(b"")
    (tmp_path / "set" / "scratch" / "a1.png").write_bytes(b"")
    mask = torch.zeros(1, 1, 32, 32)
    mask[:, :, 3:6] = 1
    save_pictures(tmp_path / "set" / "masks", mask, "a1_")
    (tmp_path / "set" / "masks" / "a1_0.png").rename(tmp_path / "set" / "masks" / "a1_mask.png")
    spec = EvaluationSpec()
    for truth in (
        read_truth(pictures, tmp_path / "set", spec),
        read_truth(pictures, tmp_path / "set" / "masks", spec),
    ):
        assert truth.odd.tolist() == [False, True]
        found = truth.mask(1, (32, 32), spec.white)
        assert found is not None
        assert found.nonzero()[:, 0].unique().tolist() == [3, 4, 5]
        assert truth.mask(0, (32, 32), spec.white).sum() == 0  # type: ignore[union-attr]
        with pytest.raises(ImageError, match="32 × 32 pixels, but its picture has 32 × 64"):
            truth.mask(1, (32, 64), spec.white)
    (tmp_path / "set" / "good" / "a0.png").unlink()
    with pytest.raises(ImageError, match="is in 0 of the folders"):
        read_truth(pictures, tmp_path / "set", spec)
    with pytest.raises(ImageError, match="has no mask of"):
        read_truth(pictures, tmp_path / "set" / "good", spec)
    with pytest.raises(ImageError, match="Cannot find the folder"):
        read_truth(pictures, tmp_path / "nothing", spec)


def test_score_is_compared_with_the_truth_and_with_a_second_detector(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(12), "n")
    detector = tmp_path / "detector"
    whatwhere("anomaly", "fit", tmp_path / "normal", "--out", detector)
    test = tmp_path / "test"
    test.mkdir()
    save_pictures(test / "good", surface(4, seed=5), "a")
    damaged, mask = scratched(surface(3, seed=6))
    save_pictures(test / "bad", damaged, "b")
    save_pictures(tmp_path / "masks", mask[:, None].float(), "b")
    for name in [f"b{n}" for n in range(3)]:
        (tmp_path / "masks" / f"{name}.png").rename(tmp_path / "masks" / f"{name}_mask.png")
    out = tmp_path / "report"
    arguments = ("anomaly", "score", test, detector, "--out", out)
    printed = whatwhere(*arguments, "--evaluate", test)
    assert "Against the truth: AUROC of pictures" in printed
    measured = json.loads((out / "evaluation.json").read_text())
    assert measured["pictures"]["pictures with a defect"] == 3
    assert measured["pictures"]["recall"]["of"] == 3
    assert measured["places"] == {}
    whatwhere(*arguments, "--evaluate", tmp_path / "masks", "--compare", detector)
    measured = json.loads((out / "evaluation.json").read_text())
    assert measured["pictures"]["pictures with a defect"] == 3
    assert measured["places"]["regions"] == 3
    assert measured["compared by places"]["found by the first only"] == 0
    assert measured["second detector"]["places"] == measured["places"]
    with pytest.raises(SpecError):
        whatwhere(*arguments, "--compare", detector)
