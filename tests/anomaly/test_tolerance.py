"""Changes of pictures, and detectors that tolerate them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

import whatwhere as ww
from surfaces import save_pictures, surface
from tiny_run import whatwhere
from whatwhere.anomaly import AlarmsAfter, Change, Tolerance
from whatwhere.anomaly.pictures import open_pictures
from whatwhere.anomaly.tolerance import table_of
from whatwhere.errors import ImageError, SpecError


def test_a_rotation_is_that_of_scipy() -> None:
    smooth = ndimage.gaussian_filter(np.random.default_rng(0).random((40, 56)), 3)
    smooth = (smooth - smooth.min()) / np.ptp(smooth)
    expected = ndimage.rotate(smooth, 5, reshape=False, order=3, mode="constant", cval=np.nan)
    found = Change(rotation=5)(torch.tensor(smooth[None], dtype=torch.float32))[0].numpy()
    inside = np.isfinite(found) & np.isfinite(expected)
    assert inside.mean() > 0.85
    np.testing.assert_allclose(found[inside], expected[inside], atol=0.02)


def test_a_blur_is_that_of_scipy() -> None:
    picture = np.random.default_rng(0).random((30, 41))
    found = Change(blur=1.5)(torch.tensor(picture[None], dtype=torch.float32))[0].numpy()
    expected = ndimage.gaussian_filter(picture, 1.5, mode="nearest", radius=5)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(("down", "across"), [(3, -2), (-1, 0), (0, 5)])
def test_what_a_shift_brings_into_a_picture_is_unknown(down: int, across: int) -> None:
    picture = torch.arange(63.0).view(1, 7, 9)
    found = Change(down=down, across=across)(picture)[0]
    for row in range(7):
        for column in range(9):
            y, x = row - down, column - across
            if 0 <= y < 7 and 0 <= x < 9:
                assert found[row, column] == picture[0, y, x]
            else:
                assert found[row, column].isnan()


def test_a_tolerant_detector_gives_no_alarm_for_blur() -> None:
    normal, new = surface(20), surface(6, seed=9)
    blurry = torch.stack([Change(blur=0.9)(picture) for picture in new])
    plain = ww.AnomalyDetector().fit(normal)
    tolerant = ww.AnomalyDetector(tolerate=Tolerance(blur=1)).fit(normal)
    assert (plain.predict(blurry) < 0).all()
    assert (tolerant.predict(blurry) < 0).sum() <= 1
    assert len(tolerant.normal_scores_) == len(plain.normal_scores_) == 20
    before, after = (model.alarms_after([Change(blur=0.9)]) for model in (plain, tolerant))
    assert before[0].alarms >= 3
    assert after[0].alarms <= 1


def test_a_tolerant_detector_is_read_back(tmp_path: Path) -> None:
    pictures = surface(8)
    model = ww.AnomalyDetector(tolerate=Tolerance(shift=2, copies=1)).fit(pictures)
    model.save(tmp_path / "detector")
    found = ww.AnomalyDetector.load(tmp_path / "detector")
    assert found.tolerate == Tolerance(shift=2, copies=1)
    np.testing.assert_array_equal(found.score_samples(pictures), model.score_samples(pictures))
    with pytest.raises(SpecError):
        found.alarms_after()


def test_the_table_names_changes_and_alarms() -> None:
    rows = [AlarmsAfter(Change(rotation=2), 3, 20), AlarmsAfter(Change(), 0, 20)]
    assert table_of(rows).splitlines()[1:] == [
        "  rotated by 2°  3 of 20",
        "  unchanged      0 of 20",
    ]


@pytest.mark.parametrize("text", ["rotation", "speed=3", "blur=much", "rotation=60", "shift=-1"])
def test_a_tolerance_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Tolerance.parse(text)


def test_fit_says_how_many_false_alarms_each_change_raises(tmp_path: Path) -> None:
    save_pictures(tmp_path / "normal", surface(12), "n")
    line = ["anomaly", "fit", str(tmp_path / "normal"), "--tolerate", "shift=2,blur=0.5"]
    facts = json.loads(whatwhere(*line, "--out", str(tmp_path / "b"), "--quiet", "--json"))
    assert facts["alarms_after"]["unchanged"][1] == 3
    assert set(facts["alarms_after"]) >= {"shifted by 2 pixels", "blurred by 1 pixel"}


def test_what_a_shift_may_move_into_a_picture_has_no_influence() -> None:
    model = ww.AnomalyDetector(tolerate=Tolerance(shift=3, copies=1)).fit(surface(8))
    picture = surface(1, seed=5)
    changed = picture.clone()
    changed[..., :3] = 0.9
    changed[..., -3:, :] = 0.1
    found, again = (next(iter(model.detect(open_pictures(one)))) for one in (picture, changed))
    assert found.score == again.score
    height, width = picture.shape[-2:]
    margin = torch.ones(height, width, dtype=torch.bool)
    margin[3:-3, 3:-3] = False
    assert (found.anomaly_map.isnan() == margin).all()
    row, column = divmod(int(found.anomaly_map.nan_to_num(-9).argmax()), width)
    patch = found.patch
    assert patch.top <= row < patch.top + patch.height
    assert patch.left <= column < patch.left + patch.width


def test_a_picture_without_a_part_inside_the_margin_is_refused() -> None:
    with pytest.raises(ImageError):
        Tolerance(shift=4).window(torch.zeros(1, 20, 8))
