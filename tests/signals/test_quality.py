"""The quality of waveforms, against values that are known: spikes of three waveforms."""

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.errors import SpecError
from whatwhere.model.events import FIELDS, Events
from whatwhere.signals.quality import Relabelling, waveform_quality

RATE = 10_000.0
NOISE = np.array([2.0, 1.0, 1.0])


def model() -> ww.DeconvNet:
    """Waveforms 0 and 1 are one shape; 2 has nothing in common with them."""
    f = torch.zeros(1, 3, 1, 8)
    f[0, :2, 0, 2] = 1
    f[0, 2, 0, 2:6] = torch.tensor([0.5, -0.5, 0.5, -0.5])
    return ww.DeconvNet(ww.ModelSpec.signals(3, 8)).with_filters(1, f)


def table(sample: list[float], waveform: list[int], amplitude: list[float]) -> Events:
    events = np.zeros(len(sample), FIELDS).view(Events)
    events["layer"] = 1
    events["sample"], events["waveform"], events["amplitude"] = sample, waveform, amplitude
    return events


def test_quality_of_known_events() -> None:
    # 11 events of waveform 0 every 1,000 samples, one of them 10 samples (1 ms) after another
    first = [*range(0, 10_000, 1000), 10]
    events = table([*sorted(first), 500, 700], [0] * 11 + [1, 1], [8.0] * 11 + [5.0, 5.0])
    events["doubtful"][:2] = True
    one, other = waveform_quality(events, model(), NOISE, 10_000, RATE)
    assert (one.waveform, one.events, other.waveform, other.events) == (0, 11, 1, 2)
    assert one.rate == pytest.approx(11)
    assert one.violations == pytest.approx(1 / 10)
    assert one.snr == pytest.approx(4)
    assert one.isolation == pytest.approx((8 - 5) / 2, rel=1e-3)
    assert one.presence == pytest.approx(10 / 60)
    assert one.doubtful == pytest.approx(2 / 11)
    assert other.violations == 0
    assert np.isnan(waveform_quality(events, model(), NOISE, 10_000)[0].violations)


def test_waveforms_are_merged_and_left_out() -> None:
    events = table([1, 2, 3, 4], [0, 1, 2, 2], [1.0] * 4)
    merged = Relabelling(merge="1,2").apply(events, 3)
    assert merged["waveform"].tolist() == [0, 1, 1, 1]
    left = Relabelling(merge="0,1", drop="2").apply(events, 3)
    assert left["waveform"].tolist() == [0, 0]
    assert left["sample"].tolist() == [1, 2]
    assert events["waveform"].tolist() == [0, 1, 2, 2], "the table itself stays"


@pytest.mark.parametrize("wrong", [{"merge": "3"}, {"merge": "1,9"}, {"drop": "x"}, {"drop": "3"}])
def test_waveforms_that_do_not_exist_are_an_error(wrong: dict[str, str]) -> None:
    with pytest.raises(SpecError, match="from 0 to 2"):
        Relabelling(**wrong).of_waveform(3)
