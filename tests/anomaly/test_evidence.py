"""The kinds of evidence, each on cells that show it alone."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from surfaces import surface
from whatwhere.anomaly.aligned import ObjectSpec, learn_object
from whatwhere.anomaly.evidence import (
    SURFACE,
    EvidenceSpec,
    ExpectedEvidence,
    Gaussian,
    Kind,
    _band_differences,
    _border_distance,
    _largest_difference,
    _local_energy,
    _median_and_spread,
    _smallest,
    learn_surface,
    neighbours,
    soft_maximum,
    summarise,
    surface_of,
    what_counts,
)
from whatwhere.anomaly.filters import (
    LARGE,
    SIDE,
    SIGNAL,
    SMALL,
    SMALL_OBJECT,
    Cells,
    Search,
    _learn_channels,
    _matched,
    _spread_patches,
    brightness,
    centred,
    learn_filters,
)


def cells(seed: int) -> Cells:
    generator = torch.Generator().manual_seed(seed)
    energy = torch.randn(5, 12, 14, generator=generator)
    return Cells(
        energy,
        torch.rand(6, 12, 14, generator=generator),
        torch.ones(12, 14, dtype=torch.bool),
        LARGE,
        curves=torch.rand(12, 14, generator=generator),
    )


@pytest.mark.parametrize("size", [7, 800, 1203, 6000])
@pytest.mark.parametrize("count", [1, 5, 30, 150])
def test_the_smallest_values_are_those_of_topk(size: int, count: int) -> None:
    values = torch.randn(9, size, generator=torch.Generator().manual_seed(size))
    values[0] = values[0].round()  # many that are equal
    values[1] = values[1].sort().values
    count = min(count, size)
    expected = values.topk(count, largest=False).values
    assert torch.equal(_smallest(values, count), expected)


@pytest.mark.parametrize("size", [(98, 97), (103, 101)])
def test_no_border_varies_more_than_another(size: tuple[int, int]) -> None:
    """Cells at the lower and right border have as many pixels as others, whatever the size of a
    picture is: means of few pixels vary more."""
    generator = torch.Generator().manual_seed(0)
    pictures = [1 + 0.1 * torch.randn(1, *size, generator=generator) for _ in range(30)]
    filters = learn_filters(pictures, ww.load("photographs").filters[0][0], LARGE, aligned=False)
    energy = torch.stack([filters(picture).energy for picture in pictures])
    deviation = energy.std(0).mean(0)  # of each cell over pictures, [rows, columns]
    assert float(deviation[-1].mean() / deviation[0].mean()) == pytest.approx(1, abs=0.1)
    assert float(deviation[:, -1].mean() / deviation[:, 0].mean()) == pytest.approx(1, abs=0.1)


def test_each_kind_of_evidence_sees_its_own_defect() -> None:
    normal, usual = learn_surface([cells(n) for n in range(20)], 0), cells(50)
    before = normal.maps(usual)
    spot, curve, band, column, patch, whole = (cells(50) for _ in range(6))
    spot.peaks[2, 4, 5] = 9.0
    curve.curves[4, 5] = 9.0
    band.energy[:, 6:] += 2.0
    column.energy[:, :, 7:] += 2.0
    patch.energy[0, 3:6, 3:6] += 6.0
    whole.energy[1] += 2.0
    defects = {
        "spots": spot,
        "curves": curve,
        "texture": patch,
        "neighbours": patch,
        "rows": band,
        "columns": column,
        "whole": whole,
    }
    assert set(defects) == set(SURFACE)
    for kind, odd in defects.items():
        assert (normal.maps(odd)[kind] - before[kind]).max() > 1.0, kind
    for own, odd in (("spots", spot), ("curves", curve)):
        seen = normal.maps(odd)
        assert all((seen[kind] == before[kind]).all() for kind in SURFACE if kind != own)
        assert (seen[own] != before[own]).nonzero().tolist() == [[4, 5]]


def test_what_unknown_cells_show_has_no_influence() -> None:
    def masked(seed: int, value: float) -> Cells:
        one = cells(seed)
        one.known[:6, :6] = False
        # the cells around known ones are part of their texture
        one.energy[:, :3, :3], one.peaks[:, :6, :6] = (
            value,
            value,
        )
        return one

    found = []
    for value in (0.5, 90.0):
        normal, new = learn_surface([masked(n, value) for n in range(8)], 0), masked(50, value)
        maps = torch.stack(list(normal.maps(new).values()))
        parts = [
            maps[:, new.known],
            summarise(maps, new, [1.0] * len(maps)),
            surface_of(new),
            normal.texture.bank,
            normal.edge,
        ]
        found.append(torch.cat([part.flatten() for part in parts]))
    torch.testing.assert_close(*found)


def test_unknown_cells_of_an_object_have_no_influence() -> None:
    normal, hidden = learn_object([cells(n) for n in range(8)]), cells(3)
    hidden.known[:6], hidden.energy[:, :6] = False, 90.0
    assert normal.log_nearest_distance(hidden)[1] == pytest.approx(np.log(ObjectSpec().near), abs=1)
    picture = surface(1)[0]
    picture[:, :20] = torch.nan
    found = learn_filters(
        [surface(2)[1]], ww.load("photographs").filters[0][0], SMALL_OBJECT, aligned=True
    )(picture)
    assert not found.known[:5].any()
    assert not found.energy[:, :5].any()
    assert found.energy[:, 5:].norm() == pytest.approx(1.0)


def test_channels_are_learned_from_known_pixels() -> None:
    known = torch.rand(3, 8, 10, generator=torch.Generator().manual_seed(0))
    partly = torch.nn.functional.pad(known, [0, 5], value=1.0)
    partly[1, :, 10:] = torch.nan  # unknown in one channel is unknown
    for search in (LARGE, SMALL):
        (dark, mixing), expected = (
            _learn_channels([partly], search, False),
            _learn_channels([known], search, False),
        )
        assert dark == pytest.approx(expected[0])
        torch.testing.assert_close(mixing, expected[1])


def test_a_gaussian_gives_the_mahalanobis_distance_of_shrunk_correlations() -> None:
    x = torch.randn(3, 400, generator=torch.Generator().manual_seed(0)) * torch.tensor(
        [[1.0], [3.0], [0.5]]
    )
    x[1] += x[0]
    found, deviation = Gaussian.of([x[:, :150], x[:, 150:]]), x.std(1, correction=0)
    shrinkage = EvidenceSpec().shrinkage
    correlation = (1 - shrinkage) * torch.corrcoef(x) + shrinkage * torch.eye(3)
    difference = (x - x.mean(1, keepdim=True)) / deviation[:, None]
    expected = (difference * torch.linalg.solve(correlation, difference)).sum(0) / 3
    torch.testing.assert_close(
        found.log_mahalanobis(x), expected.clamp_min(0.01).log(), rtol=1e-3, atol=1e-3
    )


def test_steps_compare_bands_and_mark_the_rows_of_both() -> None:
    values = torch.tensor([[0.0] * 6 + [1.0] * 6])
    assert _band_differences(values)[0].tolist() == [0.5, 0.75, 1.0, 0.75, 0.5]
    assert _band_differences(values)[0].argmax() == 2
    assert _band_differences(values)[0, 2] == 1.0
    marked = _largest_difference(_band_differences(values)[0], 12)
    assert (marked == 1.0).nonzero().flatten().tolist() == list(range(2, 10))
    assert _band_differences(torch.ones(2, 1)).tolist() == [[0.0], [0.0]]


def test_the_regression_on_neighbours_is_that_of_standardised_energies() -> None:
    """By a dense solve over all places, with energies far from zero and of different spreads."""
    pictures = [cells(n) for n in range(6)]
    scale = torch.tensor([1.0, 2.0, 3.0, 0.5, 1.5])[:, None, None]
    moved = [Cells(scale * c.energy + 7, c.peaks, c.known, LARGE) for c in pictures]
    found = learn_surface(moved, 0).neighbours
    energies = torch.stack([_local_energy(c) for c in moved]).double()
    mean = energies.mean((0, 2, 3))[:, None, None]
    deviation = energies.std((0, 2, 3), correction=0)[:, None, None]
    standard = (energies - mean) / deviation
    near = torch.cat([neighbours(one, LARGE.gap).flatten(1) for one in standard], 1)
    own = torch.cat([one.flatten(1) for one in standard], 1)
    count = own.shape[1]
    products = near @ near.mT / count + EvidenceSpec().shrinkage * torch.eye(
        len(near), dtype=torch.float64
    )
    expected = torch.linalg.solve(products, near @ own.mT / count)
    torch.testing.assert_close(found.weights.double(), expected, rtol=1e-4, atol=1e-5)


def test_neighbours_predict_a_place_of_normal_pictures() -> None:
    """A place that does not continue its neighbours is seen where it is."""

    def smooth(seed: int) -> Cells:
        one = cells(seed)
        slope = torch.randn(5, 1, 1, generator=torch.Generator().manual_seed(seed))
        rows = torch.arange(12.0)[:, None].expand(12, 14)
        energy = slope * rows / 4 + 0.05 * one.energy
        return Cells(energy, one.peaks, one.known, LARGE)

    normal = learn_surface([smooth(n) for n in range(20)], 0)
    usual, odd = smooth(50), smooth(50)
    odd.energy[:, 5:8, 6:9] += 1.0
    rise = normal.maps(odd)["neighbours"] - normal.maps(usual)["neighbours"]
    assert rise.max() > 3.0
    row, column = divmod(int(rise.argmax()), 14)
    assert 4 <= row <= 8
    assert 5 <= column <= 9
    around_it = [neighbours(usual.energy, 5)[k::5][:, 6, 7] for k in range(5)]
    expected = [usual.energy[k, [6, 6, 1, 11], [2, 12, 7, 7]] for k in range(5)]
    torch.testing.assert_close(torch.stack(around_it), torch.stack(expected))


def test_of_kinds_of_one_sort_the_larger_counts() -> None:
    kinds = {
        "spots": Kind(sort="marks"),
        "curves": Kind(sort="marks", in_score=2.0, usual=0.5),
        "texture": Kind(quantile=0.9, weight=0.1),  # these two make evidence, not scores
        "rows": Kind(sort="bands"),
        "columns": Kind(sort="bands"),
    }
    evidence = torch.tensor([[1.0, 1.0], [0.6, 3.0], [0.3, 0.3], [2.0, 2.0], [2.5, 1.0]])
    expected = torch.tensor([[1.0, 5.5], [0.3, 0.3], [2.5, 2.0]])
    torch.testing.assert_close(what_counts(evidence, kinds), expected)
    alone = {kind: kinds[kind] for kind in ("curves", "texture")}
    expected = torch.tensor([[0.7, 5.5], [0.3, 0.3]])
    torch.testing.assert_close(what_counts(evidence[1:3], alone), expected)


def test_units_and_the_soft_maximum() -> None:
    median, spread = _median_and_spread(torch.arange(101.0)[:, None])
    assert (median, spread) == (50.0, 40.0)
    evidence = torch.tensor([8.0, 0.0, 0.0])
    assert evidence.mean() < soft_maximum(evidence) < evidence.max()
    assert soft_maximum(torch.full((3, 2), 1.5)).tolist() == [1.5, 1.5]


def test_distance_from_the_border() -> None:
    assert _border_distance((3, 5), 3).tolist() == [[0] * 5, [0, 1, 1, 1, 0], [0] * 5]
    assert _border_distance((1, 5), 3).tolist() == [[0, 1, 2, 1, 0]]  # a signal has two ends


def test_usual_evidence_is_that_of_normal_pictures_with_such_a_surface() -> None:
    generator = torch.Generator().manual_seed(0)
    energies = (
        torch.randn(60, 6, generator=generator) * torch.tensor([5.0, 4.0, 3.0, 2.0, 0.2, 0.1]) + 7
    )
    evidence = torch.stack([energies[:, 0] > 7, energies[:, 1] > 7], 1).float()
    usual, rough = (
        ExpectedEvidence.of(energies, evidence),
        energies.mean(0) + torch.tensor([9.0, -8.0, 0.0, 0.0, 0.0, 0.0]),
    )
    values, axes = np.linalg.eigh(np.cov(energies.T, bias=True))
    difference = (energies - rough).numpy() @ axes[:, ::-1][:, :4] / np.sqrt(values[::-1][:4])
    weights = np.exp(-np.square(difference).sum(1) / 2)
    expected = (weights @ evidence.numpy() + evidence.numpy().mean(0)) / (weights.sum() + 1)
    np.testing.assert_allclose(usual(rough), expected, rtol=1e-3)
    assert usual(rough)[0] > 0.6 > 0.4 > usual(rough)[1]
    # like no normal picture
    torch.testing.assert_close(usual(energies.mean(0) + 1000), evidence.mean(0))
    torch.testing.assert_close(
        ExpectedEvidence.of(energies[:1].expand(3, -1), evidence[:3])(energies[5]),
        evidence[:3].mean(0),
    )


# Matched filters against the formula, and the responses that they are made for --------------------


def test_matched_filters_are_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(SIDE**2, SIDE**2, generator=generator, dtype=torch.float64)
    features, covariance = (
        centred(torch.rand(3, 8, 8, generator=generator)),
        root @ root.mT / SIDE**2,
    )
    filters = _matched(features, covariance[None, None])[0, 0].flatten(1)
    floor = 1e-3 * covariance.diagonal().mean() + 1e-6
    whitened = torch.linalg.solve(covariance + floor * torch.eye(SIDE**2), features.mT).mT
    expected = whitened / (features * whitened).sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(
        filters, expected - expected.mean(1, keepdim=True), rtol=1e-4, atol=1e-6
    )


def test_responses_to_normal_pictures_have_variance_one_and_ignore_exposure() -> None:
    pictures = list(surface(12, height=60, width=60))
    filters = learn_filters(pictures, ww.load("photographs").filters[0][0], SMALL, aligned=False)
    planes = [filters.planes(picture)[0] for picture in pictures]
    responses = torch.cat([filters.responses(plane)[0].flatten(1) for plane in planes], 1)
    assert 0.7 < responses.var(1).mean() < 1.3
    torch.testing.assert_close(
        filters.responses(planes[0] + 3.0)[0], filters.responses(planes[0])[0], atol=2e-3, rtol=0
    )


def test_few_patches_of_a_large_picture_are_measured() -> None:
    assert _spread_patches(torch.zeros(1, 1000, 1000), (SIDE, SIDE)).shape[1] < 3000
    assert _spread_patches(torch.zeros(1, 9, 10), (SIDE, SIDE)).shape[1] == 90


def test_brightness_is_a_logarithm_or_relative_to_the_mean() -> None:
    values = torch.tensor([[0.1, 0.2, 0.6]])
    torch.testing.assert_close(
        brightness(values, 0.05, LARGE), torch.tensor([[0.15, 0.25, 0.65]]).log()
    )
    torch.testing.assert_close(
        brightness(7 * values, 0.05, SMALL), torch.tensor([[1 / 3, 2 / 3, 2.0]])
    )
    # darker than what counts as dark
    torch.testing.assert_close(brightness(values / 100, 0.05, SMALL), values / 5)
    assert brightness(values, 0.0, SIGNAL) is values


# The threshold for a rate of false alarms, and its uncertainty, by simulation ---------------------


@pytest.mark.parametrize(("height", "width"), [(603, 61), (557, 120)])
@pytest.mark.parametrize("search", [LARGE, SMALL])
def test_strips_of_a_large_picture_have_the_responses_of_the_whole(
    height: int, width: int, search: Search
) -> None:
    picture = surface(1, height=height, width=width)[0]
    filters = learn_filters(
        [picture[:, :200, :200]], ww.load("photographs").filters[0][0], search, aligned=False
    )
    planes, known = filters.planes(picture)
    known[:, 20:30] = False
    strips = filters.responses_by_cell(planes, known, strip=2**11)
    for part, expected in zip(strips, filters.by_cell(planes, known), strict=True):
        torch.testing.assert_close(part, expected)
