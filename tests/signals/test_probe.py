"""The places of the channels of a probe, from files that people have, and their groups."""

import json
from pathlib import Path

import numpy as np
import pytest

from whatwhere.errors import WhatwhereError
from whatwhere.signals.probe import ProbeSettings, UnusableProbe, groups_of, read_probe

PLACES = [[0.0, 0.0], [0.0, 20.0], [0.0, 40.0]]


def probeinterface_file(folder: Path, **changes: object) -> Path:
    """Write a file in the form of probeinterface 0.2, with one probe unless it is changed."""
    probe = {
        "ndim": 2,
        "si_units": "um",
        "contact_positions": PLACES,
        "device_channel_indices": [2, 0, 1],
    }
    content = {"specification": "probeinterface", "version": "0.2.21", "probes": [probe | changes]}
    file = folder / "probe.json"
    file.write_text(json.dumps(content))
    return file


def test_a_file_of_probeinterface_is_read_in_the_order_of_its_wiring(tmp_path: Path) -> None:
    places = read_probe(probeinterface_file(tmp_path), 3)
    np.testing.assert_array_equal(places, [[0, 20], [0, 40], [0, 0]])


def test_units_and_contacts_that_are_not_connected(tmp_path: Path) -> None:
    file = probeinterface_file(tmp_path, si_units="mm", device_channel_indices=[1, -1, 0])
    np.testing.assert_allclose(read_probe(file, 2), [[0, 40_000], [0, 0]])


def test_two_probes_of_a_file_are_apart(tmp_path: Path) -> None:
    file = probeinterface_file(tmp_path)
    content = json.loads(file.read_text())
    del content["probes"][0]["device_channel_indices"]
    content["probes"] *= 2
    file.write_text(json.dumps(content))
    groups = groups_of(read_probe(file, 6))
    assert [group.seen.tolist() for group in groups] == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("channels", [("A", "B", "C"), ("0", "1", "2")])
def test_a_table_names_channels_or_numbers_them(
    tmp_path: Path, channels: tuple[str, str, str]
) -> None:
    file = tmp_path / "probe.csv"
    rows = [f"{y},{name}, {x}" for name, (x, y) in zip(channels, PLACES, strict=True)]
    file.write_text("\ufeffY, Channel, X\n" + "\n".join(rows[::-1]) + "\n", encoding="utf-8")
    np.testing.assert_array_equal(read_probe(file, 3, ("A", "B", "C")), PLACES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "channel,x\n0,1\n",
        "channel,x,y\n0,1,2\n",
        "channel,x,y\n0,1,2\n1,a,3\n",
        "channel,x,y\n0,1,2\n1,1\n",
        "channel,x,y\n0,1,2\n1,nan,3\n",
    ],
)
def test_a_table_without_a_place_for_each_channel(tmp_path: Path, text: str) -> None:
    file = tmp_path / "probe.csv"
    file.write_text(text)
    with pytest.raises(UnusableProbe) as caught:
        read_probe(file, 2)
    assert caught.value.path == file


@pytest.mark.parametrize("changes", [{"contact_positions": [[0.0, "a"]] * 3}, {"si_units": "ell"}])
def test_a_damaged_file_of_probeinterface(tmp_path: Path, changes: dict[str, object]) -> None:
    from whatwhere.errors import ImageError

    with pytest.raises(ImageError):
        read_probe(probeinterface_file(tmp_path, **changes), 3)


def test_every_channel_is_in_one_core_and_groups_see_what_is_near() -> None:
    rng = np.random.default_rng(0)
    places = np.array([(x, 20.0 * y) for y in range(16) for x in (0.0, 32.0)])
    places = places[rng.permutation(len(places))]
    settings = ProbeSettings()
    groups = groups_of(places, settings)
    cores = np.concatenate([group.core for group in groups])
    np.testing.assert_array_equal(np.sort(cores), np.arange(len(places)))
    for group in groups:
        distance = np.linalg.norm(places[:, None] - places[group.core], axis=2).min(1)
        np.testing.assert_array_equal(group.seen, np.flatnonzero(distance <= settings.reach))
        assert np.ptp(places[group.core], axis=0).max() <= 60, "neighbours"


@pytest.mark.parametrize("name", ["none.json", "none.csv"])
def test_a_probe_that_is_missing_is_an_error(name: str, tmp_path: Path) -> None:
    with pytest.raises(WhatwhereError, match=name):
        read_probe(tmp_path / name, 3)
