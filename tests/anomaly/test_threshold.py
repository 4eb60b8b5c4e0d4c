"""Thresholds: the promised rate of false alarms, odd pictures among normal ones, a few defects."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import whatwhere as ww
from surfaces import scratched, surface
from whatwhere.anomaly.threshold import (
    ThresholdSpec,
    cheapest_false_alarms,
    choose_threshold,
    expected_recall,
    far_above,
    pictures_alike,
    pictures_needed,
    rate_interval,
    read_share,
    true_alarms,
)
from whatwhere.errors import SpecError


@pytest.mark.parametrize(("count", "wanted"), [(19, 0.05), (99, 0.05), (200, 0.1)])
def test_the_rate_of_false_alarms_is_the_expected_one_and_in_the_interval(
    count: int, wanted: float
) -> None:
    generator = np.random.default_rng(0)
    chosen = [choose_threshold(generator.normal(size=count), wanted) for _ in range(1500)]
    sorted_scores = np.sort(generator.normal(size=200_000))
    rates = 1 - np.searchsorted(sorted_scores, [one.value for one in chosen]) / len(sorted_scores)
    low, high = chosen[0].interval
    assert rates.mean() == pytest.approx(chosen[0].false_alarms, rel=0.1)
    assert chosen[0].false_alarms <= wanted
    assert ((low <= rates) & (rates <= high)).mean() == pytest.approx(0.95, abs=0.02)


def test_the_interval_allows_for_normal_pictures_that_were_left_out() -> None:
    """Clean scores whose largest tenth is left out: the rate lies in the interval nevertheless."""
    generator = np.random.default_rng(0)
    inside = []
    for _ in range(400):
        scores = np.sort(generator.random(100))
        chosen = choose_threshold(scores[:90], 0.05, trimmed=10)
        low, high = chosen.interval
        inside.append(low <= 1 - chosen.value <= high)
    assert np.mean(inside) > 0.94
    assert choose_threshold(scores, 0.05).interval[1] < high


@pytest.mark.parametrize(("groups", "of", "likeness"), [(90, 1, 0.0), (15, 6, 0.5), (15, 6, 0.9)])
def test_the_interval_allows_for_pictures_that_are_alike(
    groups: int, of: int, likeness: float
) -> None:
    """Scores of groups that follow each other, with a heavy tail whose largest are left out."""
    generator = np.random.default_rng(0)
    inside, plain = [], []
    for _ in range(120):
        shared = np.repeat(generator.normal(size=groups), of)
        own = generator.normal(size=groups * of)
        logs = math.sqrt(likeness) * shared + math.sqrt(1 - likeness) * own
        far = far_above(np.exp(logs))
        scores = np.delete(np.exp(logs), far)
        alike = pictures_alike(np.exp(logs))
        chosen = choose_threshold(scores, 0.05, len(far), alike)
        rate = norm.sf(math.log(chosen.value))
        inside.append(chosen.interval[0] <= rate <= chosen.interval[1])
        low, high = choose_threshold(scores, 0.05, len(far)).interval
        plain.append(low <= rate <= high)
    assert np.mean(inside) > 0.92
    assert (np.mean(plain) < 0.9) == (of > 1)  # without it, the promise is broken


def test_how_many_pictures_count_as_one() -> None:
    generator = np.random.default_rng(0)
    found = [pictures_alike(generator.normal(size=100)) for _ in range(200)]
    assert np.mean(found) < 1.25
    same = [pictures_alike(np.repeat(generator.normal(size=40), 5)) for _ in range(50)]
    assert np.mean(same) == pytest.approx(5, rel=0.2)
    assert pictures_alike(np.zeros(20)) == pictures_alike(np.zeros(1)) == 1.0
    # 12 pictures of 3 parts: nobody knows whether the next part is like them
    assert choose_threshold(generator.random(12), 0.05, alike=4.0).interval[1] > 0.5


def test_too_few_pictures_give_the_lowest_rate_that_they_can() -> None:
    chosen = choose_threshold(np.array([1.0, 3.0, 2.0]), 0.01)
    # The largest score, and a margin for the rounding of a score that is equal to it.
    assert 3.0 < chosen.value <= 3.0 * (1 + 1.01 * ThresholdSpec().rounding)
    assert chosen.false_alarms == 0.25


def test_how_many_pictures_one_percent_needs() -> None:
    count = pictures_needed(0.01, at_most=0.02)
    assert choose_threshold(np.zeros(count), 0.01).interval[1] <= 0.02
    assert choose_threshold(np.zeros(count - 100), 0.01).interval[1] > 0.02


# Odd pictures among normal ones -------------------------------------------------------------------


def test_far_scores_are_named_and_usual_ones_are_not() -> None:
    generator = np.random.default_rng(0)
    named = [
        len(far_above(generator.exponential(size=n))) for n in (20, 40, 200) for _ in range(99)
    ]
    assert np.mean(np.array(named) > 0) < 0.1
    road = np.concatenate([np.linspace(-0.8, 1.3, 36), [3.1, 2.9, 2.91]])  # a marking and shoes
    assert far_above(road).tolist() == [36, 38, 37]
    assert len(far_above(np.zeros(9))) == 0


def test_the_detector_names_odd_pictures_and_chooses_the_threshold_without_them() -> None:
    normal = surface(24)
    normal[[5, 11]] = scratched(surface(2, seed=6))[0]
    detector = ww.AnomalyDetector().fit(normal)
    odd = detector.odd_pictures_
    assert odd is not None
    assert sorted(odd.numbers) == [5, 11]
    assert sorted(odd.names) == ["11", "5"]
    assert odd.others == 22
    assert odd.threshold.value > detector.threshold_.value + 1
    others = np.delete(detector.normal_scores_, [5, 11])
    alike = pictures_alike(detector.normal_scores_)
    assert detector.threshold_ == choose_threshold(others, 0.05, trimmed=2, alike=alike)
    trusted = ww.AnomalyDetector(trusted=True).fit(normal)
    assert trusted.threshold_ == odd.threshold
    without = ww.AnomalyDetector(contamination=odd.contamination).fit(normal)
    assert not {5, 11} & set(without.fitted_.tolist())
    assert without.odd_pictures_ is None
    assert ww.AnomalyDetector().fit(surface(24)).odd_pictures_ is None


# A few defects ------------------------------------------------------------------------------------


def test_dear_defects_lower_the_threshold() -> None:
    generator = np.random.default_rng(0)
    normal, defects = generator.normal(size=400), generator.normal(2, size=30)
    cheap, dear = (cheapest_false_alarms(normal, defects, cost, 0.02) for cost in (5, 500))
    assert cheap < dear
    for rate in (cheap, dear):
        assert choose_threshold(normal, rate).false_alarms == pytest.approx(rate)


def test_the_expected_recall_is_that_of_new_defects() -> None:
    """Its interval holds the true share in about 95 of 100 trials."""
    generator = np.random.default_rng(0)
    new = generator.normal(1.5, size=2000)
    held = []
    for _ in range(60):
        normal, defects = generator.normal(size=200), generator.normal(1.5, size=12)
        found = expected_recall(normal, defects, cost=20.0, expected=0.05)
        rate = cheapest_false_alarms(normal, defects, 20.0, 0.05)
        low, high = found.interval
        held.append(low <= (new > choose_threshold(normal, rate).value).mean() <= high)
    assert np.mean(held) > 0.85


def test_defects_choose_the_threshold_and_the_file_keeps_it(tmp_path: Path) -> None:
    detector = ww.AnomalyDetector().fit(surface(16))
    damaged = scratched(surface(6, seed=6))[0]
    detector.choose_threshold_by_defects(damaged, cost=100, expected=0.01)
    assert detector.recall_ is not None
    assert (detector.recall_.found, detector.recall_.of) == (6, 6)
    assert detector.threshold_.false_alarms == pytest.approx(1 / 17)
    detector.save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector")
    assert loaded.recall_ == detector.recall_
    assert loaded.threshold_ == detector.threshold_
    assert detector.choose_threshold(0.1).recall_ is None


def test_the_interval_of_a_share_is_that_of_clopper_and_pearson() -> None:
    from scipy.stats import binomtest

    for hits, of in ((0, 5), (3, 7), (7, 7)):
        expected = binomtest(hits, of).proportion_ci(0.95, "exact")
        assert rate_interval(hits, of) == pytest.approx((expected.low, expected.high))


def test_true_alarms_by_counting() -> None:
    """Of 10,000 pictures, 100 have a defect and 40 of them alarm; 4.8 % of 9,900 are false."""
    assert true_alarms(0.048, 0.01, 0.4) == pytest.approx(40 / (40 + 0.048 * 9900))


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("2.5 %", 0.025), ("0.3", 0.3)])
def test_a_share_is_read(text: str, share: float) -> None:
    assert read_share(text, "--expected") == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "one", "0", "100%", "-1%", "nan"])
def test_a_wrong_share_is_an_error(text: str) -> None:
    with pytest.raises(SpecError):
        read_share(text, "--expected")
