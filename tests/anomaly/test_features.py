"""Features that a user gives: instead of the detector's own or joined with them, in files, and with
the promise on false alarms."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import whatwhere as ww
from surfaces import scratched, surface
from whatwhere.anomaly.features import GivenFeatures, GivenSpec, _projected, usual_features
from whatwhere.anomaly.joined import Ranks, join
from whatwhere.errors import ImageError, RunError, SpecError
from whatwhere.views import Network
from whatwhere.views.choice import OWN


def small_network(seed: int = 0) -> nn.Module:
    """Fixed random filters, rectified, at strides 4 and 8."""
    generator = torch.Generator().manual_seed(seed)
    network = TwoMaps()
    for parameter in network.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 5
    return network.eval()


class TwoMaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 12, 5, stride=4, padding=2)
        self.second = nn.Conv2d(12, 20, 3, stride=2, padding=1)

    def forward(self, pictures: Tensor) -> list[Tensor]:
        fine = F.relu(self.first(pictures / pictures.mean((1, 2, 3), keepdim=True).clamp_min(1e-3)))
        return [fine, F.relu(self.second(fine))]


NETWORK = small_network()


def edges(pictures: Tensor) -> Tensor:
    """One map at half the size: differences to the right and down."""
    right = pictures.diff(dim=3)[..., :-1, :]
    down = pictures.diff(dim=2)[..., :-1]
    return F.avg_pool2d(torch.cat([right.abs(), down.abs()], 1), 2)


@pytest.mark.parametrize("features", [NETWORK, ["own", NETWORK], [edges, NETWORK]])
def test_given_features_find_scratches_in_pictures_of_any_size(features: object) -> None:
    detector = ww.AnomalyDetector(features=features).fit(
        [*surface(8), *surface(4, seed=1, height=60, width=44)]
    )
    clean = [*surface(4, seed=5), *surface(4, seed=7, height=60, width=44)]
    damaged, mask = scratched(surface(8, seed=6))
    odd = np.arange(16) >= 8
    assert roc_auc_score(odd, -detector.score_samples([*clean, *damaged])) > 0.9
    maps = detector.anomaly_map([*damaged, clean[-1]])
    assert [heat.shape for heat in maps] == [(40, 44)] * 8 + [(60, 44)]
    assert roc_auc_score(mask.flatten(), np.stack(maps[:8]).ravel()) > 0.8
    patch, *alike = detector.compared(damaged[0], torch.from_numpy(maps[0]))
    assert len(alike) == 4
    assert all(one.shape == patch.shape for one in alike)


def test_the_word_own_means_the_detectors_own_features() -> None:
    normal = surface(6, height=24, width=28)
    pictures = surface(3, seed=5, height=24, width=28)
    expected = ww.AnomalyDetector().fit(normal).score_samples(pictures)
    own = ww.AnomalyDetector(features="own").fit(normal)
    np.testing.assert_array_equal(own.score_samples(pictures), expected)


def test_joined_evidence_names_the_features() -> None:
    detector = ww.AnomalyDetector(features=["own", edges]).fit(surface(8))
    [found] = detector.detect(ww.anomaly.open_pictures(surface(1, seed=5)))
    assert list(found.evidence)[:2] == ["spots", "texture"]
    assert any(kind.startswith("edges: ") for kind in found.evidence)


def test_ranks_are_shares_of_normal_pictures_and_keep_the_order() -> None:
    normal = torch.linspace(0, 1, 1001) ** 3
    ranks = Ranks.of(normal)
    at = normal.quantile(torch.tensor([0.5, 0.9]))
    torch.testing.assert_close(ranks(at), -torch.tensor([0.5, 0.1]).log(), rtol=1e-3, atol=1e-3)
    values = ranks(torch.linspace(-3, 5, 200))
    assert (values.diff() > 0).all()
    assert join([ranks], [at]) is at
    doubled = Ranks.of(2 * normal + 1)
    torch.testing.assert_close(join([ranks, doubled], [at, 2 * at + 1]), ranks(at))
    assert Ranks.of(torch.zeros(9))(torch.tensor([0.0, 1.0])).diff() > 0


def test_unknown_pixels_are_filled_before_features_see_them() -> None:
    normal = surface(8)
    normal[:, :, :12, :12] = torch.nan
    detector = ww.AnomalyDetector(features=NETWORK).fit(normal.numpy())
    damaged, _ = scratched(surface(1, seed=6))
    hidden = damaged.clone()
    hidden[:, :, 8:32, 8:36] = torch.nan
    assert detector.score_samples(hidden.numpy()) > detector.score_samples(damaged)
    heat = detector.anomaly_map(hidden.numpy())[0]
    np.testing.assert_array_equal(np.isnan(heat), hidden[0, 0].isnan())


def test_aligned_objects_by_given_features() -> None:
    normal = 0.05 * torch.rand(16, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    normal[:, :, :, 8:11] += 0.8
    detector = ww.AnomalyDetector(features=edges, aligned=True).fit(normal[4:])
    moved = normal[:4].roll(12, 3)
    assert detector.score_samples(normal[:4]).min() > detector.score_samples(moved).max()


@pytest.mark.parametrize("features", [edges, ["own", NETWORK]])
def test_pictures_without_contrast_are_anomalies_by_any_features(features: object) -> None:
    detector = ww.AnomalyDetector(features=features).fit(surface(8))
    constant = torch.tensor([0.0, 0.3, 1.0])[:, None, None, None].expand(-1, 1, 40, 44)
    assert detector.decision_function(constant).max() < -5
    assert np.min(detector.anomaly_map(constant)) > detector.threshold_.value


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        ("netwerk", SpecError, "Unknown view"),
        ([], SpecError, r"features = \[\]"),
        (small_network().train(), SpecError, "TwoMaps is in training mode"),
        (lambda x: x[0], ImageError, r"returned \(1, 40, 44\) for pictures \(1, 1, 40, 44\)"),
        (lambda x: [], ImageError, "returned no map"),
        (lambda x: x / 0, ImageError, "non-finite"),
        (lambda x: x[..., :0], ImageError, "empty"),
    ],
)
def test_wrong_features_raise(features: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ww.AnomalyDetector(features=features).fit(surface(3))


# Files --------------------------------------------------------------------------------------------


def test_a_file_needs_the_features_that_it_was_fitted_with(tmp_path: Path) -> None:
    detector = ww.AnomalyDetector(features=["own", NETWORK]).fit(surface(6))
    detector.save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector", features=["own", small_network()])
    pictures = surface(3, seed=5)
    expected = detector.score_samples(pictures)
    np.testing.assert_array_equal(loaded.score_samples(pictures), expected)
    more = surface(2, seed=8)
    np.testing.assert_array_equal(
        loaded.partial_fit(more).score_samples(pictures),
        detector.partial_fit(more).score_samples(pictures),
    )
    for wrong, message in (
        (None, "the features own, TwoMaps. .* the command line cannot load it"),
        ([NETWORK, "own"], "in the same order"),
        (["own", small_network(seed=1)], "other features than TwoMaps"),
        (["own", edges], "features of 32 channels, but edges has 2"),
    ):
        with pytest.raises(RunError, match=message):
            ww.AnomalyDetector.load(tmp_path / "detector", features=wrong)


def test_an_error_about_features_with_a_long_name_is_short(tmp_path: Path) -> None:
    def named(pictures: Tensor) -> Tensor:
        return edges(pictures)

    named.__name__ = 10_000 * "x"
    ww.AnomalyDetector(features=named).fit(surface(3)).save(tmp_path / "detector")
    with pytest.raises(RunError, match="in the same order") as raised:
        ww.AnomalyDetector.load(tmp_path / "detector")
    assert len(str(raised.value)) < 1000


def test_features_by_their_words_are_read_back_without_them(tmp_path: Path) -> None:
    pictures = torch.cat([surface(5, seed, height=28, width=28) for seed in range(3)], 1)
    detector = ww.AnomalyDetector(features=["own", "colour"]).fit(pictures)
    assert {kind.split(":")[0] for kind in detector.normal_evidence_[0]} >= {"spots", "colour"}
    detector.save(tmp_path / "detector")
    loaded = ww.AnomalyDetector.load(tmp_path / "detector")
    np.testing.assert_array_equal(
        loaded.score_samples(pictures[:2]), detector.score_samples(pictures[:2])
    )
    with pytest.raises(SpecError):
        ww.AnomalyDetector(features="colours").fit(pictures)


def test_many_channels_are_projected_and_keep_their_distances() -> None:
    generator = torch.Generator().manual_seed(0)
    energy = torch.randn(1500, 3, 4, generator=generator)
    found = _projected(energy)
    assert found.shape == (GivenSpec().most_channels, 3, 4)
    before, after = (
        (e.flatten(1)[:, 1:] - e.flatten(1)[:, :1]).square().mean(0) for e in (energy, found)
    )
    torch.testing.assert_close(after, before, rtol=0.3, atol=0)
    assert GivenFeatures(lambda x: x.expand(-1, 1500, -1, -1))(
        torch.rand(1, 6, 7)
    ).energy.shape == (GivenSpec().most_channels, 6, 7)


def test_the_sample_leaves_room_for_the_maps_of_given_features() -> None:
    def wide(pictures: Tensor) -> Tensor:
        return pictures.expand(-1, 100, -1, -1)

    detector = ww.AnomalyDetector(features=wide, memory=2).fit(surface(12, height=16, width=18))
    values = 16 * 18
    assert detector.sample_.feature_bytes == 6 * 4 * 100
    assert len(detector.sample_.kept) == 2_000_000 // (values * 6 * 4 * 100)


# The promise on false alarms, by simulation -------------------------------------------------------


def grain(count: int, seed: int) -> Tensor:
    return 0.5 + 0.1 * torch.randn(count, 1, 16, 16, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "features",
    [edges, ["own", edges], lambda x: torch.ones_like(x[..., ::2, ::2]), small_network(seed=2)],
    ids=["edges", "joined", "constant", "network"],
)
def test_false_alarms_are_as_rare_as_promised(features: Callable[[Tensor], Tensor]) -> None:
    rates = []
    for seed in range(5):
        detector = ww.AnomalyDetector(features=features, false_alarms=0.2)
        detector.fit(grain(19, 2 * seed))
        rates.append((detector.predict(grain(20, 2 * seed + 1)) == -1).mean())
    assert np.mean(rates) < 0.2 + 2 * 0.4 / len(rates) ** 0.5 / 19**0.5 + 0.03
    assert np.mean(np.array(rates) <= detector.threshold_.interval[1]) > 0.8


def test_both_sources_count_when_scores_are_joined() -> None:
    """-log of the share of normal pictures above a score, on average over the sources."""
    normal = torch.arange(1000.0)
    ranks = [Ranks.of(normal), Ranks.of(10 * normal)]
    scores = [torch.tensor([500.0, 899.0]), torch.tensor([8990.0, 8990.0])]
    shares = torch.tensor([[0.5, 0.1], [0.1, 0.1]])
    expected = -shares.log().mean(0)
    torch.testing.assert_close(join(ranks, scores), expected, rtol=2e-2, atol=2e-2)


def test_the_usual_features_have_the_network_for_surfaces_where_it_is_installed() -> None:
    large, small, signal = torch.zeros(3, 120, 100), torch.zeros(3, 60, 60), torch.zeros(1, 1, 9999)
    joined = [OWN, "network"] if Network.is_installed() else [OWN]
    assert usual_features(large, aligned=False) == joined
    for picture, aligned in ((large, True), (small, False), (signal, False)):
        assert usual_features(picture, aligned) == [OWN]
