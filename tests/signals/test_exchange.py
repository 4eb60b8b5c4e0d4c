"""Events in the forms of other programs, read by these programs."""

from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.model.events import FIELDS, Events
from whatwhere.signals.exchange import to_spikeinterface, write_phy, write_wfdb

RATE = 1000.0


@pytest.fixture
def events() -> Events:
    table = np.zeros(5, FIELDS).view(Events)
    table["layer"] = [1, 1, 1, 1, 2]
    table["sample"] = [10.2, 30.6, 20.0, 40.0, 25.0]
    table["waveform"] = [0, 1, 1, 0, 0]
    table["amplitude"] = [1.0, 2.0, 3.0, 4.0, 9.0]
    return table


def test_spikeinterface_reads_the_events(events: Events) -> None:
    pytest.importorskip("spikeinterface")
    sorting = to_spikeinterface(events, RATE)
    assert sorting.get_sampling_frequency() == RATE
    assert sorting.get_unit_spike_train(0).tolist() == [10, 40]
    assert sorting.get_unit_spike_train(1).tolist() == [20, 31]


def test_wfdb_reads_the_events(events: Events, tmp_path: Path) -> None:
    wfdb = pytest.importorskip("wfdb")
    path = write_wfdb(tmp_path, "record", events, RATE)
    found = wfdb.rdann(str(path.with_suffix("")), "ww")
    assert found.sample.tolist() == [10, 20, 31, 40]
    assert [note.strip("\0") for note in found.aux_note] == [f"waveform {k}" for k in (0, 1, 1, 0)]


def test_a_folder_of_phy_has_the_events(events: Events, tmp_path: Path) -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(2, 8, channels=3))
    write_phy(tmp_path / "phy", events, model, RATE)
    assert np.load(tmp_path / "phy/spike_times.npy").tolist() == [10, 20, 31, 40]
    assert np.load(tmp_path / "phy/spike_clusters.npy").tolist() == [0, 1, 1, 0]
    assert np.load(tmp_path / "phy/amplitudes.npy").tolist() == [1, 3, 2, 4]
    templates = torch.from_numpy(np.load(tmp_path / "phy/templates.npy"))
    torch.testing.assert_close(templates, model.filters[0][:, :, 0].permute(1, 2, 0))
    extractors = pytest.importorskip("spikeinterface.extractors")
    sorting = extractors.read_phy(tmp_path / "phy")
    assert sorting.get_unit_spike_train(1).tolist() == [20, 31]
