"""The anomaly detector: defects that the test makes, every kind of source, edge cases, files, and
memory."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import whatwhere as ww
from surfaces import scratched, surface
from whatwhere.anomaly.evidence import Kind, evidence_of_places, surface_of
from whatwhere.anomaly.filters import SIGNAL, cosines, learn_filters
from whatwhere.anomaly.likeness import TooAlike, UnlikeLearned
from whatwhere.anomaly.pictures import MemorySpec, open_pictures
from whatwhere.anomaly.threshold import choose_threshold, pictures_alike
from whatwhere.engines.devices import UnknownDevice
from whatwhere.errors import ImageError, RunError, SpecError


@pytest.fixture(scope="module")
def fitted() -> ww.AnomalyDetector:
    return ww.AnomalyDetector().fit(surface(16))


def test_scratches_are_found_and_so_are_their_pixels(fitted: ww.AnomalyDetector) -> None:
    clean = surface(8, seed=5)
    damaged, mask = scratched(surface(8, seed=6))
    pictures, odd = torch.cat([clean, damaged]), np.arange(16) >= 8
    assert roc_auc_score(odd, -fitted.score_samples(pictures)) > 0.95
    maps = np.stack(fitted.anomaly_map(damaged))
    assert roc_auc_score(mask.flatten(), maps.ravel()) > 0.9
    assert fitted.predict(damaged).tolist() == [-1] * 8
    assert (fitted.predict(clean) == 1).sum() >= 6


def test_the_outline_lies_on_the_scratch(fitted: ww.AnomalyDetector) -> None:
    """It covers most of the scratches, little else, and as much of normal pictures as promised."""
    damaged, mask = scratched(surface(8, seed=6))
    inside = torch.from_numpy(np.stack(fitted.anomaly_map(damaged))) > fitted.outline_
    scratches = mask.view_as(inside)
    assert inside[scratches].float().mean() > 0.5
    assert inside.float().mean() < 0.35  # 0.74 without the detail of cells
    normal = np.stack(fitted.anomaly_map(surface(24, seed=5)))
    for area in (0.01, 0.05):
        assert 0.3 * area < (normal > -np.log10(area)).mean() < 3 * area


def test_wide_evidence_alone_marks_no_place() -> None:
    """Rows that are odd as a whole count up to a limit; what is odd at a place stands out."""
    kinds = dict.fromkeys(["spots", "rows", "whole"], Kind())
    by_kind = torch.zeros(3, 4, 5)
    by_kind[1, 2] = by_kind[2] = 20.0
    by_kind[0, 3, 3] = 6.0
    known = torch.ones(4, 5, dtype=torch.bool)
    found = evidence_of_places(by_kind, kinds, known, score=0.0)
    assert found.argmax() == 3 * 5 + 3
    assert found[3, 3] > found.flatten().sort().values[-2] + 1
    assert found[0, 0] < 1.5
    odd = evidence_of_places(by_kind, kinds, known, score=50.0)
    assert (odd - found).min() > 0.1
    assert (odd - found).max() < 1, "an odd picture is not odd everywhere"


def test_the_decision_is_the_score_with_the_threshold_at_zero(fitted: ww.AnomalyDetector) -> None:
    pictures = torch.cat([surface(3, seed=5), scratched(surface(3, seed=6))[0]])
    scores, decision = fitted.score_samples(pictures), fitted.decision_function(pictures)
    np.testing.assert_allclose(decision, scores + fitted.threshold_.value)
    np.testing.assert_array_equal(fitted.predict(pictures), np.where(decision < 0, -1, 1))
    assert (
        fitted.threshold_.interval[0]
        < fitted.threshold_.false_alarms
        < fitted.threshold_.interval[1]
    )


def test_exposure_has_almost_no_influence(fitted: ww.AnomalyDetector) -> None:
    picture = scratched(surface(1, seed=6))[0]
    bright, dark = fitted.score_samples(torch.cat([picture, 0.5 * picture]))
    assert bright == pytest.approx(dark, rel=0.03)


def test_evidence_is_measured_against_normal_pictures_with_such_a_surface(
    fitted: ww.AnomalyDetector,
) -> None:
    picture = scratched(surface(1, seed=6))[0]
    [found] = fitted.detect(open_pictures(picture))
    [scorer] = fitted.scorers_
    cells = scorer.extract(picture[0])
    excess = scorer.normal.maps(cells)["spots"].max() - scorer.usual(surface_of(cells))[0]
    median, spread = scorer.units[:, 0]
    assert found.evidence["spots"] == pytest.approx(float((excess - median) / spread), rel=1e-4)


def test_an_aligned_object_is_compared_place_by_place() -> None:
    """A bar that all normal pictures have, but elsewhere: only the place is wrong."""
    normal = 0.05 * torch.rand(16, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    normal[:, :, :, 8:11] += 0.8
    moved = normal[:4].roll(12, 3)
    detector = ww.AnomalyDetector(aligned=True).fit(normal[4:])
    assert detector.score_samples(normal[:4]).min() > detector.score_samples(moved).max()
    heat = detector.anomaly_map(moved)[0]
    assert heat[:, 17:26].mean() > heat[:, 28:].mean()
    with pytest.raises(ImageError):
        detector.predict(torch.zeros(1, 1, 40, 32))
    with pytest.raises(ImageError, match="Aligned pictures need one size; got 2"):
        ww.AnomalyDetector(aligned=True).fit([np.zeros((32, 32)), np.zeros((40, 32))])


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("aligned", [False, True])
def test_every_part_of_fit_shows_its_progress_to_the_end(count: int, aligned: bool) -> None:
    stages: list[tuple[str, int]] = []
    done: list[int] = []

    @contextmanager
    def stage(title: str, total: int) -> Iterator[Callable[[int], None]]:
        stages.append((title, total))
        done.append(0)

        def advance(pieces: int) -> None:
            done[-1] += pieces

        yield advance

    detector = ww.AnomalyDetector(aligned=aligned, contamination=0.4)
    detector.fit(surface(count, height=32, width=32), stage=stage)
    passes = 1 if count < 3 else 2
    assert len(stages) == 1 + 3 * passes
    filters = [title.startswith("learning filters") for title, _ in stages]
    assert sum(filters) == passes
    # the numbers of a line about progress have a unit
    assert all(f"({n:,} comparison" in title for title, n in stages if "comparing" in title)
    assert done == [total for _, total in stages]


def test_aligned_pictures_need_one_size_before_any_work() -> None:
    titles: list[str] = []

    @contextmanager
    def stage(title: str, total: int) -> Iterator[Callable[[int], None]]:
        titles.append(title)
        yield lambda pieces: None

    with pytest.raises(ImageError, match="got 2"):
        ww.AnomalyDetector(aligned=True).fit([np.zeros((32, 32)), np.zeros((40, 32))], stage=stage)
    assert titles == ["reading pictures"]


# Pictures of a broken camera, identical pictures and gaps ----------------------------------------


@pytest.mark.parametrize(
    ("side", "channels", "dtype"),
    [
        (24, 1, np.uint8),
        (24, 1, np.uint16),
        (24, 3, np.uint8),
        (24, 3, np.uint16),
        # how pictures are searched depends on their size, not on how their values are stored
        (64, 1, np.uint16),
        (100, 1, np.uint8),
        (100, 3, np.uint16),
    ],
)
def test_a_picture_without_contrast_is_an_anomaly(side: int, channels: int, dtype: type) -> None:
    largest = np.iinfo(dtype).max
    colours = torch.tensor([1.0, 0.8, 0.6])[:channels].view(-1, 1, 1)
    normal = (largest * surface(6, height=side, width=side) * colours).numpy().astype(dtype)
    new = (largest * surface(2, seed=8, height=side, width=side) * colours).numpy().astype(dtype)
    detector = ww.AnomalyDetector().fit(normal)
    levels = [0, 1, largest // 3, largest]
    constant = np.stack([np.full_like(normal[0], level) for level in levels])
    assert detector.decision_function(constant).max() < -5
    assert min(map(np.min, detector.anomaly_map(constant))) > detector.threshold_.value
    assert detector.decision_function(new).min() > -5


def test_a_flat_recording_is_an_anomaly() -> None:
    generator = torch.Generator().manual_seed(0)
    normal = ww.data.load(torch.randn(12, 1, 400, generator=generator), signals=True)
    flat = ww.data.load(torch.full((1, 1, 400), 0.3), signals=True)
    assert ww.AnomalyDetector().fit(normal).predict(flat).tolist() == [-1]


def test_constant_pictures_are_normal_among_constant_ones() -> None:
    normal = torch.linspace(0.2, 0.8, 12)[:, None, None, None].expand(-1, 1, 32, 32)
    assert ww.AnomalyDetector().fit(normal).predict(normal[:3]).tolist() == [1, 1, 1]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("aligned", [False, True])
def test_identical_normal_pictures_are_normal(count: int, aligned: bool) -> None:
    for seed in range(3):
        one = torch.rand(1, 1, 24, 28, generator=torch.Generator().manual_seed(seed))
        detector = ww.AnomalyDetector(aligned=aligned).fit(one.expand(count, -1, -1, -1))
        assert detector.predict(one).tolist() == [1]


@pytest.mark.parametrize(("side", "seed"), [(40, 0), (97, 100)])
def test_unknown_pixels_are_no_anomaly(side: int, seed: int) -> None:
    """Pictures with a gap score like whole ones, whether the detector has learned from gaps or
    not.

    The means of rows and of the whole picture are of fewer cells then, and so a little farther
    from those of whole pictures: up to 0.6 on average, in units of the spread of normal pictures.
    """
    gap = (..., slice(8, 24), slice(8, 24))
    normal = surface(12, seed=seed + 16, height=side, width=side)
    new = surface(6, seed=seed + 6, height=side, width=side)
    with_gaps, new_with_gaps = normal.clone(), new.clone()
    with_gaps[:6][gap] = torch.nan
    new_with_gaps[gap] = torch.nan
    for pictures in (normal, with_gaps):
        detector = ww.AnomalyDetector().fit(pictures)
        difference = detector.score_samples(new_with_gaps) - detector.score_samples(new)
        assert abs(difference.mean()) < 0.75
        # The border of the gap is no spot in any picture: that would be several units.
        assert abs(difference).max() < 1.25
        near_the_gap = np.stack(detector.anomaly_map(new_with_gaps))[:, 4:28, 4:28]
        assert np.nanmax(near_the_gap) < np.nanmax(np.stack(detector.anomaly_map(new))) + 1
    scores = detector.normal_scores_
    assert abs(scores[:6].mean() - scores[6:].mean()) < 1.0


def test_odd_pictures_are_left_out_of_a_fit_that_is_told_of_them() -> None:
    odd, _ = scratched(surface(2, seed=6))
    mixed = torch.cat([surface(5), odd, surface(4, seed=1)])
    detector = ww.AnomalyDetector(contamination=0.2).fit(mixed)
    assert sorted(set(range(11)) - set(detector.fitted_.tolist())) == [5, 6]
    assert len(detector.normal_scores_) == 9
    new = scratched(surface(3, seed=7))[0]
    clean = ww.AnomalyDetector().fit(torch.cat([surface(5), surface(4, seed=1)]))
    np.testing.assert_array_equal(detector.score_samples(new), clean.score_samples(new))
    told, not_told = (d.threshold_.interval for d in (detector, clean))
    assert told[0] == not_told[0]
    assert told[1] > not_told[1]


# Sources ------------------------------------------------------------------------------------------


def test_folders_arrays_tensors_and_lists_are_the_same_pictures(
    tmp_path: Path, fitted: ww.AnomalyDetector
) -> None:
    pixels = (255 * surface(4, seed=5)[:, 0]).round().to(torch.uint8).numpy()
    for n, picture in enumerate(pixels):
        Image.fromarray(picture).save(tmp_path / f"{n}.png")
    expected = fitted.score_samples(tmp_path)
    for source in (
        str(tmp_path),
        pixels,
        torch.from_numpy(pixels)[:, None],
        list(pixels),
        [p[..., None] for p in pixels],
    ):
        np.testing.assert_array_equal(fitted.score_samples(source), expected)


def test_pictures_of_mixed_sizes_and_channels() -> None:
    grey, large = surface(6), surface(6, seed=1, height=70, width=44)
    colour = surface(2, seed=2).expand(-1, 3, -1, -1)
    detector = ww.AnomalyDetector().fit([*grey, *large])
    maps = detector.anomaly_map([grey[0], large[0]])
    assert [heat.shape for heat in maps] == [(40, 44), (70, 44)]
    with pytest.raises(UnlikeLearned) as raised:
        detector.predict([grey[0], colour[0]])
    assert raised.value.name == "1"
    with pytest.raises(UnlikeLearned):
        ww.AnomalyDetector().fit(colour).predict(grey)
    hyper = torch.rand(8, 5, 40, 40, generator=torch.Generator().manual_seed(0))
    five = ww.AnomalyDetector().fit(hyper[:6])
    assert np.isfinite(five.score_samples(hyper[6:])).all()
    with pytest.raises(UnlikeLearned):
        five.predict(torch.rand(1, 3, 40, 40))


def test_pictures_of_another_size_are_refused(fitted: ww.AnomalyDetector) -> None:
    """Filters have a fixed size in pixels."""
    for height, width in ((20, 22), (80, 88)):
        with pytest.raises(UnlikeLearned) as raised:
            fitted.predict(surface(1, height=height, width=width))
        assert raised.value.given == f"has {height} × {width} pixels"
    assert fitted.predict(surface(1, height=36, width=50)).shape == (1,)


def test_copies_of_a_picture_give_a_warning() -> None:
    with pytest.warns(TooAlike) as seen:
        ww.AnomalyDetector().fit(surface(1).repeat(5, 1, 1, 1))
    assert (seen[0].message.given, seen[0].message.different) == (5, 1)
    with pytest.warns(TooAlike):
        ww.AnomalyDetector().fit(surface(2))


@pytest.mark.filterwarnings("error")
def test_pictures_may_be_files_pil_pictures_and_read_only_arrays(
    tmp_path: Path, fitted: ww.AnomalyDetector
) -> None:
    pixels = (255 * surface(3, seed=5)[:, 0]).round().to(torch.uint8).numpy()
    files = [tmp_path / f"{n}.png" for n in range(3)]
    for file, picture in zip(files, pixels, strict=True):
        Image.fromarray(picture).save(file)
    expected = fitted.score_samples(pixels)
    pixels.flags.writeable = False
    opened = [Image.open(file) for file in files]
    for source in (files, [str(file) for file in files], opened, pixels, list(pixels)):
        np.testing.assert_array_equal(fitted.score_samples(source), expected)
    assert open_pictures(files).names == [str(file) for file in files]
    np.testing.assert_array_equal(fitted.score_samples(opened[0]), expected[:1])


def test_pixels_outside_of_the_mask_have_no_influence(tmp_path: Path) -> None:
    """What is there is unknown, in `fit` and in scores."""
    pictures = surface(12)
    mask = np.ones((1, 40, 44), np.float32)
    mask[:, :, 30:] = 0
    hidden = pictures.clone()
    hidden[..., 30:] = torch.nan
    expected = ww.AnomalyDetector().fit(hidden)
    found = ww.AnomalyDetector().fit(pictures, mask=mask)
    np.testing.assert_array_equal(found.normal_scores_, expected.normal_scores_)
    damaged = pictures[:2].clone()
    damaged[..., 32:] = 0.0
    listed = [one.anomaly_map for one in found.detect(open_pictures(damaged, mask=mask))]
    clean = [one.anomaly_map for one in found.detect(open_pictures(hidden[:2]))]
    torch.testing.assert_close(listed, clean, equal_nan=True)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for n, picture in enumerate(pictures[:, 0]):
        alpha = np.where(mask[0] > 0, 255, 0).astype(np.uint8)
        grey = (255 * picture).round().to(torch.uint8).numpy()
        Image.merge("LA", [Image.fromarray(grey), Image.fromarray(alpha)]).save(folder / f"{n}.png")
    assert open_pictures(folder, mask="alpha").read(0)[:, :, 30:].isnan().all()


def test_unknown_pixels_have_no_influence(fitted: ww.AnomalyDetector) -> None:
    damaged, _ = scratched(surface(1, seed=6))
    hidden = damaged.clone()
    hidden[:, :, 8:32, 8:36] = torch.nan
    clean, odd = fitted.score_samples(hidden.numpy())[0], fitted.score_samples(damaged)[0]
    assert clean > odd
    np.testing.assert_array_equal(
        np.isnan(fitted.anomaly_map(hidden.numpy())[0]), hidden[0, 0].isnan()
    )
    normal = surface(8)
    normal[:, :, :10, :10] = torch.nan
    assert np.isfinite(ww.AnomalyDetector().fit(normal.numpy()).score_samples(normal.numpy())).all()
    with pytest.raises(ImageError, match="no known pixel"):
        ww.AnomalyDetector().fit(np.full((2, 1, 9, 9), np.nan, np.float32))
    few = np.full((1, 1, 40, 40), np.nan, np.float32)
    few[0, 0, 20, 20] = 0.5
    with pytest.raises(ImageError, match="A normal picture has no place with known pixels"):
        ww.AnomalyDetector().fit(few)
    with pytest.raises(ImageError, match="Picture 0 has no place with known pixels"):
        fitted.predict(few)


def test_a_pixel_that_is_unknown_in_one_channel_is_unknown() -> None:
    colour = surface(5).repeat(1, 3, 1, 1)
    colour[:, 1, :9, 11:20] = torch.nan
    detector = ww.AnomalyDetector().fit(colour[:4].numpy())
    [found] = detector.detect(open_pictures(colour[4:].numpy()))
    assert np.isfinite(found.score)
    np.testing.assert_array_equal(found.anomaly_map.isnan(), colour[4, 1].isnan())


def test_a_stain_is_found_by_its_colour_alone() -> None:
    """Its brightness, the mean of the channels, is that of the surface."""
    normal = surface(12, height=128, width=128).expand(-1, 3, -1, -1).clone()
    stained = normal[10:].clone()
    stained[:, 0, 40:64, 48:72] *= 1.3
    stained[:, 1, 40:64, 48:72] *= 0.7
    detector = ww.AnomalyDetector().fit(normal[:10])
    for found in detector.detect(open_pictures(stained)):
        row, column = divmod(int(found.anomaly_map.argmax()), 128)
        assert 36 <= row < 68
        assert 44 <= column < 76
        assert found.evidence["colour"] > 1.5
    for found in detector.detect(open_pictures(normal[10:])):
        assert found.evidence["colour"] < 1


def test_a_grey_picture_saved_in_colour_has_the_evidence_of_the_grey_one() -> None:
    normal = surface(6, height=128, width=128)
    new = scratched(surface(1, seed=7, height=128, width=128))[0]
    [grey] = ww.AnomalyDetector().fit(normal).detect(open_pictures(new))
    colour = ww.AnomalyDetector().fit(normal.expand(-1, 3, -1, -1))
    [found] = colour.detect(open_pictures(new.expand(-1, 3, -1, -1)))
    for kind, value in grey.evidence.items():
        assert found.evidence[kind] == pytest.approx(value, rel=0.02, abs=0.02), kind


# Signals ------------------------------------------------------------------------------------------


def heart_beats(count: int, seed: int, odd: int | None = None) -> tuple[np.ndarray, list[float]]:
    """Recordings [N, 1, 1200] of beats at irregular times, and the time of the beat number `odd`,
    which is a wide one without the waves around it.
    """
    random, t = np.random.default_rng(seed), np.arange(1200)
    recordings, times = 0.03 * random.standard_normal((count, 1, 1200)), []
    for recording in recordings:
        beats = random.uniform(20, 60) + np.cumsum(random.normal(90, 6, 14))
        for number, beat in enumerate(beats):
            waves = ((-22, 4, 0.15), (-3, 1.5, -0.12), (0, 2, 1.0), (4, 2, -0.25), (30, 7, 0.3))
            for delay, width, height in ((0, 6, 1.0), (14, 7, -0.5)) if number == odd else waves:
                recording += height * np.exp(-((t - beat - delay) ** 2) / (2 * width**2))
        times.append(beats[odd or 0])
    return recordings.astype(np.float32), times


def test_an_abnormal_heart_beat_is_found_in_its_place() -> None:
    normal, (clean, _), (odd, times) = (
        heart_beats(12, 0)[0],
        heart_beats(6, 1),
        heart_beats(6, 2, odd=5),
    )
    detector = ww.AnomalyDetector().fit(ww.data.load(normal, signals=True))
    new = ww.data.load(np.concatenate([clean, odd]), signals=True)
    assert detector.score_samples(new)[:6].min() > detector.score_samples(new)[6:].max()
    maps = detector.anomaly_map(new)
    assert [values.shape for values in maps] == [(1200,)] * 12
    assert all(
        -8 <= values.argmax() - time <= 25 for values, time in zip(maps[6:], times, strict=True)
    )
    patch, *alike = detector.compared(
        torch.from_numpy(odd[0][:, None]), torch.from_numpy(maps[6][None])
    )
    assert [one.shape for one in (patch, *alike)] == [(1, 1, 16)] * 5


def test_signals_are_pictures_of_height_one(tmp_path: Path) -> None:
    signals = np.concatenate([heart_beats(5, 0)[0], heart_beats(5, 1)[0]], 1)
    signals[1, :, 100:130] = np.nan
    loaded = ww.data.load(signals, signals=True, allow_nan=True)
    detector, pictures = (
        ww.AnomalyDetector().fit(loaded),
        ww.AnomalyDetector().fit(signals[:, :, None]),
    )
    np.testing.assert_array_equal(
        detector.score_samples(loaded), pictures.score_samples(list(signals[:, :, None]))
    )
    np.testing.assert_array_equal(
        detector.anomaly_map(loaded), pictures.anomaly_map(signals[:, :, None])
    )
    np.testing.assert_array_equal(np.isnan(detector.anomaly_map(loaded)), np.isnan(signals[:, 0]))
    detector.save(tmp_path / "detector")
    np.testing.assert_array_equal(
        ww.AnomalyDetector.load(tmp_path / "detector").score_samples(loaded),
        detector.score_samples(loaded),
    )
    with pytest.raises(ImageError, match="a picture of 9 rows; expected signals"):
        detector.predict(np.zeros((1, 2, 9, 1200), np.float32))


def test_filters_of_signals_are_those_of_the_formula() -> None:
    """Responses to normal signals have variance 1, and a constant has no influence."""
    signals = list(torch.from_numpy(heart_beats(6, 0)[0][:, None]))
    filters = learn_filters(signals, cosines(), SIGNAL, aligned=False)
    assert filters.kernels.shape == (3, 1, 7, 1, 13)
    # no logarithm
    assert (
        learn_filters([signal + 1 for signal in signals], cosines(), SIGNAL, aligned=False).dark
        == 0
    )
    responses = torch.cat(
        [filters.responses(filters.planes(signal)[0])[0].flatten(1) for signal in signals], 1
    )
    assert 0.7 < responses.var(1).mean() < 1.3
    torch.testing.assert_close(
        filters(signals[0]).peaks, filters(signals[0] + 2).peaks, atol=2e-3, rtol=0
    )


# Edge cases ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(
    "normal",
    [
        surface(1),
        surface(1).expand(5, -1, -1, -1),
        torch.full((3, 1, 30, 30), 0.5),
        torch.zeros(2, 1, 3, 2),
        torch.zeros(2, 1, 1, 5),
        surface(3),
    ],
    ids=[
        "one",
        "identical",
        "constant",
        "smaller than a patch",
        "a signal shorter than a filter",
        "three",
    ],
)
def test_few_identical_and_tiny_pictures_give_finite_results(
    normal: torch.Tensor, aligned: bool
) -> None:
    detector = ww.AnomalyDetector(aligned=aligned).fit(normal)
    other = torch.rand(2, *normal.shape[1:], generator=torch.Generator().manual_seed(3))
    scores = detector.score_samples(torch.cat([normal, other]))
    assert np.isfinite(scores).all()
    assert np.isfinite(detector.threshold_.value)
    if normal[0, 0].numel() > 100:
        assert scores[: len(normal)].min() > scores[len(normal) :].max()


def test_no_picture_raises() -> None:
    with pytest.raises(ImageError):
        ww.AnomalyDetector().fit([])
    with pytest.raises(ImageError, match="Cannot find a"):
        ww.AnomalyDetector().fit(["a.png", "b.png"])


def test_one_picture_needs_no_axis_of_pictures() -> None:
    pictures = np.random.default_rng(0).random((8, 24, 24)).astype(np.float32)
    detector = ww.AnomalyDetector().fit(pictures)
    expected = detector.score_samples(pictures[:1])
    np.testing.assert_array_equal(detector.score_samples(pictures[0]), expected)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"false_alarms": 0.0}, "false_alarms = 0.0"),
        ({"memory": 0}, "memory = 0"),
        ({"random_state": -1}, "seed = -1"),
    ],
)
def test_wrong_settings_raise(parameters: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ww.AnomalyDetector(**parameters).fit(surface(2))


def test_scores_do_not_depend_on_the_batch_or_the_threads() -> None:
    pictures = torch.cat([surface(2, seed=5), scratched(surface(2, seed=6))[0]])
    detector = ww.AnomalyDetector().fit(surface(10))  # of more places than are kept
    expected, threads = detector.score_samples(pictures), torch.get_num_threads()
    np.testing.assert_array_equal(
        [detector.score_samples(picture[None])[0] for picture in pictures], expected
    )
    try:
        torch.set_num_threads(3)  # before it was one
        again = ww.AnomalyDetector().fit(surface(10))
        np.testing.assert_array_equal(again.score_samples(pictures), expected)
        # threads share the places of a single picture
        np.testing.assert_array_equal(again.score_samples(pictures[:1]), expected[:1])
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(threads)


# scikit-learn's checks ----------------------------------------------------------------------------


class Rows(ww.AnomalyDetector):
    """Rows of numbers as pictures of one row, so that scikit-learn's checks with arrays [n,
    features] apply."""

    def __sklearn_tags__(self):  # type: ignore[no-untyped-def]
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X, y=None):  # type: ignore[no-untyped-def]
        return super().fit(np.asarray(X, np.float32)[:, None])

    def score_samples(self, X):  # type: ignore[no-untyped-def]
        return super().score_samples(np.asarray(X, np.float32)[:, None])


APPLY = [
    "dict_unchanged",
    "dont_overwrite_parameters",
    "estimators_fit_returns_self",
    "estimators_overwrite_params",
    "estimators_unfitted",
    "f_contiguous_array_estimator",
    "fit_check_is_fitted",
    "methods_sample_order_invariance",
    "methods_subset_invariance",
    "readonly_memmap_input",
]


@parametrize_with_checks([ww.AnomalyDetector()])
def test_scikit_learn_checks_of_the_interface(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


@pytest.mark.parametrize("name", APPLY)
def test_scikit_learn_checks_that_apply(name: str) -> None:
    [[estimator, check]] = [
        found
        for found in estimator_checks_generator(Rows())
        if found[1].func.__name__ == f"check_{name}"
    ]
    check(estimator)


# Learning on, files, memory -----------------------------------------------------------------------


def test_partial_fit_learns_from_all_pictures() -> None:
    pictures, odd = surface(5), surface(3, seed=5)
    expected = ww.AnomalyDetector().fit(pictures).score_samples(odd)
    parts = ww.AnomalyDetector().partial_fit(pictures[:2]).partial_fit(pictures[2:])
    np.testing.assert_array_equal(parts.score_samples(odd), expected)
    np.testing.assert_array_equal(parts.fit(pictures).score_samples(odd), expected)
    assert clone(ww.AnomalyDetector(memory=3)).get_params()["memory"] == 3


@pytest.mark.parametrize("aligned", [False, True])
def test_a_saved_detector_scores_and_learns_on_as_before(tmp_path: Path, aligned: bool) -> None:
    normal, odd = surface(5), surface(2, seed=5)
    normal[:3] = (255 * normal[:3]).round() / 255  # bytes, which are saved as such
    detector = ww.AnomalyDetector(aligned=aligned, false_alarms=0.2).fit(normal)
    detector.save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector")
    np.testing.assert_array_equal(loaded.score_samples(odd), detector.score_samples(odd))
    assert loaded.threshold_ == detector.threshold_
    more = surface(2, seed=8)
    np.testing.assert_array_equal(
        loaded.partial_fit(more).score_samples(odd), detector.partial_fit(more).score_samples(odd)
    )
    content = bytearray((tmp_path / "detector").read_bytes())
    content[-1] ^= 1
    (tmp_path / "damaged").write_bytes(content)
    with pytest.raises(RunError, match="checksum"):
        ww.AnomalyDetector.load(tmp_path / "damaged")
    ww.save(ww.DeconvNet(ww.ModelSpec.paper()), tmp_path / "model")
    with pytest.raises(RunError, match="whatwhere model 2"):
        ww.AnomalyDetector.load(tmp_path / "model")


def test_the_cpu_is_a_device_as_any_other(tmp_path: Path) -> None:
    normal, odd = surface(5), surface(2, seed=5)
    expected = ww.AnomalyDetector().fit(normal)
    detector = ww.AnomalyDetector(device="cpu").fit(normal)
    np.testing.assert_array_equal(detector.score_samples(odd), expected.score_samples(odd))
    detector.save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector", device="cpu")
    np.testing.assert_array_equal(loaded.score_samples(odd), expected.score_samples(odd))
    with pytest.raises(UnknownDevice) as raised:
        ww.AnomalyDetector.load(tmp_path / "detector", device="tpu")
    assert raised.value.given == "tpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_places_are_compared_on_a_gpu(tmp_path: Path) -> None:
    normal, odd = surface(12), surface(4, seed=5)
    expected = ww.AnomalyDetector().fit(normal)
    detector = ww.AnomalyDetector(device="cuda").fit(normal)
    assert detector.scorers_[0].normal.texture.bank.is_cuda
    np.testing.assert_allclose(detector.normal_scores_, expected.normal_scores_, atol=2e-3)
    np.testing.assert_allclose(detector.score_samples(odd), expected.score_samples(odd), atol=2e-3)
    detector.save(tmp_path / "detector")  # a machine without a GPU reads it
    loaded = ww.AnomalyDetector.load(tmp_path / "detector", device="cpu")
    np.testing.assert_allclose(loaded.score_samples(odd), detector.score_samples(odd), atol=2e-3)


def test_another_threshold_needs_no_new_fit(tmp_path: Path) -> None:
    detector = ww.AnomalyDetector(contamination=0.2).fit(surface(12))
    scores = detector.normal_scores_.copy()
    trimmed = 12 - len(scores)
    assert detector.choose_threshold(0.3) is detector
    alike = pictures_alike(scores)
    assert detector.threshold_ == choose_threshold(scores, 0.3, trimmed, alike)
    assert detector.offset_ == -detector.threshold_.value
    np.testing.assert_array_equal(detector.normal_scores_, scores)
    detector.save(tmp_path / "detector")
    assert ww.AnomalyDetector.load(tmp_path / "detector").threshold_ == detector.threshold_
    with pytest.raises(SpecError):
        detector.choose_threshold(0.0)
    assert detector.false_alarms == 0.3


def test_a_random_sample_is_kept_of_more_than_fits() -> None:
    detector = ww.AnomalyDetector(memory=3)
    for part in range(3):
        detector.partial_fit(surface(30, seed=part, height=24, width=28))
    kept = [number for _, number, _ in detector.sample_.kept]
    assert detector.sample_.seen == 90
    assert detector.sample_.size == len(kept) * 24 * 28 * MemorySpec().small <= 3_000_000
    assert min(kept) < 30 < 60 < max(kept)  # early and late ones


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs Linux's peak of a process"
)
@pytest.mark.parametrize(("aligned", "memory", "pictures"), [(False, 24, 100), (True, 24, 60)])
def test_fit_needs_no_more_memory_than_stated(aligned: bool, memory: int, pictures: int) -> None:
    """The peak of the process, above that of a fit to two pictures, for more pictures than can be
    kept. (`ru_maxrss` would count the larger process that started it.)"""
    code = f"""
import re, torch, whatwhere as ww
class Many(list):
    def __init__(self, count): self.count = count
    def __len__(self): return self.count
    def __getitem__(self, n): return torch.rand(100, 100, generator=torch.Generator().manual_seed(n))
torch.set_num_threads(1)
for count in (2, {pictures}):
    ww.AnomalyDetector(memory={memory}, aligned={aligned}).fit(Many(count))
    print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1000)
"""  # noqa: E501
    # What is freed goes back at once, so that the peak is of what is in use.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    output = subprocess.check_output([sys.executable, "-c", code], env=environment)
    few, many = map(float, output.split())
    assert many - few < memory  # MB


def test_the_patches_that_a_defect_was_compared_with(fitted: ww.AnomalyDetector) -> None:
    damaged, mask = scratched(surface(1, seed=6))
    patch, *normal = fitted.compared(
        damaged[0], next(fitted.detect(open_pictures(damaged))).anomaly_map
    )
    assert patch.shape == (1, 12, 12)
    assert len(normal) == 4
    kept = (
        torch.stack(fitted.sample_.pictures)[:, 0].unfold(1, 12, 1).unfold(2, 12, 1).flatten(0, 2)
    )
    assert all((kept == one).flatten(1).all(1).any() for one in normal)
    # A picture that the detector learned from is not compared with itself.
    learned = fitted.sample_.pictures[3]
    [found] = fitted.detect(open_pictures(learned[None]))
    patch_of_learned, *others = fitted.compared(learned, found.anomaly_map)
    assert len(others) == 4
    places = learned[0].unfold(0, 12, 1).unfold(1, 12, 1).flatten(0, 1)
    assert (places == patch_of_learned).flatten(1).all(1).any()
    assert not any((places == one).flatten(1).all(1).any() for one in others)
    windows = damaged[0, 0].unfold(0, 12, 1).unfold(1, 12, 1)
    place = (windows == patch[0]).flatten(2).all(2).nonzero()[0]
    assert mask[0, place[0] : place[0] + 12, place[1] : place[1] + 12].any()
