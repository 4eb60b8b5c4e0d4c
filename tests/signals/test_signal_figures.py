"""Figures of a recording: every event has its mark at its peak, curves are in the recording's
units."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.signals.recording import Signals

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

from whatwhere.model.events import FIELDS, Events
from whatwhere.signals.event_table import UnusableEventTable, check_events, read_events
from whatwhere.signals.figures import draw_intervals

LENGTH = 20


@pytest.fixture(scope="module")
def drawing() -> "ww.signals.RecordingFigures":
    """Two channels in mV at 1 kHz, one known waveform, a drift."""
    t = np.arange(LENGTH) - 8
    shape = np.stack([np.exp(-(t**2) / 6), 0.3 * np.exp(-(t**2) / 6)])
    x = 0.03 * np.random.default_rng(0).standard_normal((2, 5000))
    for at in range(100, 4900, 80):
        x[:, at - 8 : at - 8 + LENGTH] += 2 * shape
    x += np.sin(np.arange(5000) / 800)
    signals = Signals(
        x.astype(np.float32)[None, :, None],
        None,
        "simulated",
        rate=1000.0,
        unit="mV",
        channel_names=("I", "II"),
    )
    spec = ww.override(
        ww.ModelSpec.signals(1, LENGTH, channels=2), {"input": {"kind": "baseline", "span": 80}}
    )
    f = torch.from_numpy(shape / np.linalg.norm(shape)).float()[:, None, None]
    model = ww.DeconvNet(spec).with_filters(1, f)
    recipe = ww.override(ww.read_recipe("signals"), {"inference": {"lam": 8.0, "steps": 100}})
    run = ww.TrainedRun("a run", recipe, model)
    return ww.signals.RecordingFigures(run, signals, engine="reference")


def test_every_event_has_its_mark_at_its_peak(drawing: "ww.signals.RecordingFigures") -> None:
    section = drawing.draw("recording")
    recorded, first, of_second, second, left = section.figure.axes  # type: ignore[union-attr]
    places = np.concatenate([marks.get_offsets() for marks in first.collections])
    stretch = drawing.stretch()
    expected = [at for at in range(100, 4900, 80) if stretch.start <= at < stretch.stop]
    np.testing.assert_allclose(np.sort(1000 * places[:, 0]), expected, atol=1)
    np.testing.assert_allclose(places[:, 1], 2, atol=0.2)  # mV, without the drift
    of_recorded = np.concatenate([marks.get_offsets() for marks in recorded.collections])
    drift = np.sin(np.array(expected) / 800)
    np.testing.assert_allclose(of_recorded[np.argsort(of_recorded[:, 0]), 1], 2 + drift, atol=0.2)
    for other in (of_second, second):  # the channel without the peak
        assert sum(len(marks.get_offsets()) for marks in other.collections) == 0
    residual = left.lines[0].get_ydata()
    assert np.abs(residual).max() < 0.3, "events and drift are subtracted"
    assert left.get_xlabel() == "seconds"
    assert "mV" in first.get_ylabel()
    assert "I" in first.get_ylabel()


def test_the_stretch_that_is_drawn_has_many_events(
    drawing: "ww.signals.RecordingFigures",
) -> None:
    """Events may be rare: around the middle one there may be no other."""
    times = np.concatenate([np.arange(500, 4500, 2000), 3000 + 30 * np.arange(20)])
    events = np.zeros(len(times), FIELDS).view(Events)
    events["sample"] = np.sort(times)
    rare = replace(drawing)
    rare.__dict__["events"] = events
    stretch = rare.stretch()
    assert stretch == slice(3030 - LENGTH, 3030 + 15 * 30 + LENGTH)


def test_rates_are_events_per_second(drawing: "ww.signals.RecordingFigures") -> None:
    _, heights, rates, every, _, correlogram = drawing.draw("distributions").figure.axes  # type: ignore[union-attr]
    values = rates.patches[0].get_data().values
    assert np.median(values) == pytest.approx(1000 / 80, abs=1.5), "one every 80 ms"
    assert rates.get_ylabel() == "events per second"
    assert heights.patches[0].get_xy()[:, 1].sum() > 0
    intervals = every.patches[0].get_xy()
    assert abs(intervals[:, 0] - 0.08).max() < 0.001, "all intervals are 80 ms"
    pairs = correlogram.patches[0].get_data()
    assert pairs.values[pairs.edges[1:] < 0.078].sum() == 0, "the refractory period"
    assert pairs.values.sum() == 59 + 58 + 57 + 56


def test_a_table_of_events_is_drawn_as_it_is(
    drawing: "ww.signals.RecordingFigures", tmp_path: Path
) -> None:
    """No second search: a model that cannot be inferred draws the same."""
    drawing.events[5:].to_csv(tmp_path / "events.csv", channel_names=("I", "II"))
    table = read_events(tmp_path / "events.csv", ("I", "II"))
    for name, _ in FIELDS:
        np.testing.assert_allclose(table[name], drawing.events[name][5:], rtol=1e-4, err_msg=name)
    drawn = replace(drawing, table=table, engine="no engine")
    assert len(drawn.events) == 55
    assert "55 (0 overlap another event)" in drawn.report({"raster": drawn.draw("raster")})


def test_a_table_of_another_recording_is_an_error(
    drawing: "ww.signals.RecordingFigures", tmp_path: Path
) -> None:
    file = tmp_path / "events.csv"
    drawing.events.to_csv(file)
    table = read_events(file)
    check_events(file, table, 1, 5000)
    with pytest.raises(UnusableEventTable, match="the recording has 3,000"):
        check_events(file, table, 1, 3000)
    table["waveform"][3] = 4
    with pytest.raises(UnusableEventTable, match="it has waveform 4, and the run has 1"):
        check_events(file, table, 1, 5000)
    file.write_text("time,size\n1,2\n")
    with pytest.raises(UnusableEventTable, match="no columns waveform, sample and amplitude"):
        read_events(file)


def test_waveforms_are_as_large_as_their_events(drawing: "ww.signals.RecordingFigures") -> None:
    figure = drawing.draw("waveforms").figure
    above, below = figure.axes  # type: ignore[union-attr]
    assert max(above.lines[-1].get_ydata()) == pytest.approx(2, rel=0.1)
    assert max(below.lines[-1].get_ydata()) == pytest.approx(0.6, rel=0.1)
    assert below.get_xlabel() == "ms"


def test_the_report_has_all_figures(drawing: "ww.signals.RecordingFigures", tmp_path: Path) -> None:
    drawn = {name: drawing.draw(name) for name in drawing.names}
    assert {"waveforms", "recording", "raster", "distributions"} <= set(drawn)
    page = drawing.report(drawn)
    assert page.count("<figure ") == len(drawn)
    assert "60 (0 overlap another event)" in page


def test_the_axes_of_intervals_have_numbers(drawing: "ww.signals.RecordingFigures") -> None:
    for ends, scale in ((1.2, "linear"), (15.0, "log"), (500.0, "log")):
        axes = Figure().subplots()
        draw_intervals(axes, [np.array([0.01, 0.012]), np.geomspace(0.01, 0.01 * ends, 9)])
        assert axes.get_xscale() == scale
        axes.figure.canvas.draw()
        labels = [text.get_text() for text in axes.get_xticklabels()]
        assert not any("$" in text for text in labels)
        low, high = axes.get_xlim()
        assert sum(low <= tick <= high for tick in axes.get_xticks()) >= 3
        assert [text for text in labels if text]


def test_a_raster_has_a_row_for_every_waveform(drawing: "ww.signals.RecordingFigures") -> None:
    axes = drawing.draw("raster").figure.axes[0]  # type: ignore[union-attr]
    assert axes.collections[0].get_lineoffset() == 0
    low, high = axes.get_ylim()
    assert low < -0.4
    assert high > 0.4
