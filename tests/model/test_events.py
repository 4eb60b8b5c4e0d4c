"""Events of signals, against sums written out coefficient by coefficient."""

import csv
import io
import sys

import numpy as np
import pytest
import torch

import whatwhere as ww
from raising import raises
from whatwhere.errors import InvalidImages, InvalidSetting, MissingExtra
from whatwhere.latents import Latents, PoolingParams
from whatwhere.model.events import Events, events_of

TWO_LAYERS = ww.ModelSpec(
    layers=(
        ww.LayerSpec(maps=3, filter_size=(1, 6), pool_size=(1, 2)),
        ww.LayerSpec(maps=2, filter_size=(1, 4), pool_size=(1, 2)),
    ),
    signed_filters=True,
)


def random_latents(model: ww.DeconvNet, samples: int, share: float, seed: int = 0) -> Latents:
    """Few features of both signs, at any places of their regions."""
    generator = torch.Generator().manual_seed(seed)
    grids = [regions.grid for regions in model.at(1, samples).regions]
    p = torch.randn(2, *grids[-1], generator=generator, dtype=torch.float64)
    p *= torch.rand(p.shape, generator=generator) < share
    thetas = []
    for grid in grids:
        mu = torch.rand(2, 2, *grid, generator=generator, dtype=torch.float64) - 0.5
        thetas.append(
            PoolingParams(mu, 10 * torch.rand(mu.shape, generator=generator, dtype=torch.float64))
        )
    return Latents(p, tuple(thetas))


def signals_model(pool: int, stride: int) -> ww.DeconvNet:
    return ww.DeconvNet(
        ww.ModelSpec.signals(2, 9, pool_size=pool, pool_stride=stride), dtype=torch.float64
    )


def brute_force(model: ww.DeconvNet, latents: Latents, samples: int) -> list[tuple[float, ...]]:
    """Signal, feature, time, width and amplitude of every event, by loops over the regions."""
    layer, p, theta = model.spec.layers[0], latents.p, latents.pooling_params[0]
    assert p is not None
    peaks = [int(f.abs().argmax()) for f in model.filters[0][0, :, 0]]
    (_, size), (_, stride) = layer.pool_shape, layer.strides
    found = []
    for n, b in np.ndindex(*p.shape[:2]):
        for sign in (1, -1):
            parts: list[
                list[tuple[float, float]]
            ] = []  # events: their coefficients as (place, value)
            last = -np.inf
            regions = []
            for j in range(p.shape[3]):
                if sign * p[n, b, 0, j] <= 0:
                    continue
                places = [i for i in range(j * stride, j * stride + size) if i < samples + 8]
                mu, gamma = (float(t[n, 1, b, 0, j]) for t in (theta.mu, theta.gamma))
                q = np.exp(
                    [-gamma / 2 * (i - j * stride - (size - 1) / 2 - mu) ** 2 for i in places]
                )
                w = np.sqrt(q / q.sum())
                regions.append(
                    (
                        float(w @ places / w.sum()),
                        [(i, float(p[n, b, 0, j]) * x) for i, x in zip(places, w, strict=False)],
                    )
                )
            for time, coefficients in sorted(regions, key=lambda region: region[0]):
                if time - last > max(1.5, size):
                    parts.append([])
                parts[-1] += coefficients
                last = time
            for coefficients in parts:
                total = sum(value for _, value in coefficients)
                time = sum(i * value for i, value in coefficients) / total
                width = np.sqrt(sum((i - time) ** 2 * value for i, value in coefficients) / total)
                found.append((n, b, time - 8 + peaks[b], width, total))
    return sorted(found, key=lambda event: (event[0], event[2]))


@pytest.mark.parametrize(("pool", "stride"), [(1, 1), (2, 1), (2, 2), (3, 2), (4, 4)])
def test_events_are_those_of_the_coefficients(pool: int, stride: int) -> None:
    model = signals_model(pool, stride)
    latents = random_latents(model, 61, share=0.25)
    events = events_of(model.at(1, 61), latents)
    expected = brute_force(model, latents, 61)
    assert len(expected) == len(events) > 7
    for name, column in zip(
        ("signal", "waveform", "sample", "width", "amplitude"),
        zip(*expected, strict=True),
        strict=True,
    ):
        np.testing.assert_allclose(events[name], column, atol=1e-7, err_msg=name)
    assert (events["parent"] == -1).all()
    assert (events["layer"] == 1).all()


def test_the_amplitudes_are_those_of_the_unpooled_map() -> None:
    model = signals_model(2, 1)
    latents = random_latents(model, 61, share=0.1)
    sized = model.at(1, 61)
    assert latents.p is not None
    z = sized.weights(latents.pooling_params)[0].unpool(latents.p)
    assert events_of(sized, latents)["amplitude"].sum() == pytest.approx(float(z.sum()))


def test_the_time_is_that_of_the_waveforms_peak() -> None:
    """A lone event: the reconstruction is the waveform, and its largest value is at the event."""
    model = signals_model(1, 1)
    p = torch.zeros(1, 2, 1, 68, dtype=torch.float64)
    p[0, 1, 0, 30] = 2.5
    flat = torch.zeros(1, 2, 2, 1, 68, dtype=torch.float64)
    latents = Latents(p, (PoolingParams(flat, flat),))
    (event,) = events_of(model.at(1, 60), latents)
    assert event["amplitude"] == 2.5
    assert event["waveform"] == 1
    assert event["width"] == 0
    assert np.isnan(event["seconds"])
    signal = model.at(1, 60).decode(latents)[0, 0, 0]
    assert event["sample"] == int(signal.abs().argmax())
    begin = int(event["sample"]) - int(model.filters[0][0, 1, 0].abs().argmax())
    torch.testing.assert_close(signal[begin : begin + 9], 2.5 * model.filters[0][0, 1, 0])


def test_the_channel_is_that_of_the_peak_and_overlaps_are_doubtful() -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(1, 9, channels=3, pool_size=1), dtype=torch.float64)
    f = torch.zeros(3, 1, 1, 9, dtype=torch.float64)
    f[1, 0, 0, 2] = -2.0
    f[2, 0, 0, 6] = 1.0
    model = model.with_filters(1, f / f.norm())
    p = torch.zeros(1, 1, 1, 108, dtype=torch.float64)
    p[0, 0, 0, [20, 50, 54, 90, 95]] = 1.0
    flat = torch.zeros(1, 2, 1, 1, 108, dtype=torch.float64)
    events = events_of(model.at(1, 100), Latents(p, (PoolingParams(flat, flat),)))
    assert (events["channel"] == 1).all()
    np.testing.assert_array_equal(events["doubtful"], [False, True, True, False, False])
    np.testing.assert_array_equal(events["sample"], [14, 44, 48, 84, 89])


def test_parents_contribute_most() -> None:
    """Three groups far from each other; at one place a strong feature of another map lies on a
    weak one."""
    model = ww.DeconvNet(TWO_LAYERS, dtype=torch.float64)
    latents = random_latents(model, 200, share=0)
    assert latents.p is not None
    for b, j, value in ((0, 8, 1.0), (1, 25, 2.0), (0, 42, 0.01), (1, 42, 3.0)):
        latents.p[0, b, 0, j] = value
    events = events_of(model.at(1, 200), latents)
    above = events[events["layer"] == 2]
    assert (above["parent"] == -1).all()
    assert len(above) == 4
    strong = np.flatnonzero(above["amplitude"] > 0.1)
    below = events[events["layer"] == 1]
    below = below[np.abs(below["amplitude"]) > 0.1]
    assert len(below) > 5
    for event in below:
        nearest = strong[np.abs(above["sample"][strong] - event["sample"]).argmin()]
        assert event["parent"] == np.flatnonzero(events["layer"] == 2)[nearest]


def test_threshold_and_errors() -> None:
    model = signals_model(2, 1)
    latents = random_latents(model, 61, share=0.1)
    sized = model.at(1, 61)
    every, strong = events_of(sized, latents), events_of(sized, latents, threshold=1.0)
    expected = every[np.abs(every["amplitude"]) >= 1.0]
    for name in ("signal", "waveform", "sample", "amplitude", "width"):
        np.testing.assert_array_equal(strong[name], expected[name])
    assert 0 < len(strong) < len(every)
    assert len(events_of(sized, Latents(torch.zeros_like(latents.p), latents.pooling_params))) == 0
    with raises(InvalidSetting, given={"threshold": -1}):
        events_of(sized, latents, threshold=-1)
    pictures = ww.infer(
        ww.DeconvNet(ww.ModelSpec.paper()), torch.rand(1, 1, 8, 8), ww.InferenceSpec(steps=1)
    )
    with raises(InvalidImages, given="a model of pictures"):
        pictures.events()


def row(signal: int, waveform: int, sample: float, seconds: float = np.nan) -> tuple[float, ...]:
    """A row of a table with usual values in the other columns."""
    usual = (2.0, -0.5, 0, 0.9, False, 0.4, -1)
    return (signal, 1, waveform, sample, seconds, *usual, sample - 3, seconds - 0.1)


def test_tables() -> None:
    events = Events.of([row(0, 3, 123456.25, 4.9382504), row(1, 0, -0.5, -0.00002)])
    text = io.StringIO()
    events.to_csv(text)
    read = np.genfromtxt(io.StringIO(text.getvalue()), delimiter=",", names=True)
    assert read.dtype.names == events.dtype.names
    np.testing.assert_allclose(read["sample"], events["sample"])
    np.testing.assert_allclose(read["seconds"], events["seconds"], atol=1e-6)


def test_a_table_without_a_rate_has_no_seconds() -> None:
    text = io.StringIO()
    Events.of([row(0, 3, 12.25)]).to_csv(text)
    assert "sample" in text.getvalue()
    assert "seconds" not in text.getvalue()


def test_a_table_has_the_names_of_channels_that_are_given() -> None:
    text = io.StringIO()
    events = Events.of([row(0, 3, 12.25), row(0, 1, 13.5)])
    events["channel"][1] = 1
    events.to_csv(text, channel_names=['Elektrode "A", µV', "B"])
    read = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert [line["channel"] for line in read] == ['Elektrode "A", µV', "B"]
    assert [float(line["sample"]) for line in read] == [12.25, 13.5]


def test_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    frame = Events.of([row(0, 3, 12.25)]).to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[0, "sample"] == 12.25


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_pandas"), ("mne", "to_mne")])
def test_a_missing_package_is_named(
    package: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with raises(MissingExtra, package=package):
        getattr(Events.of([row(0, 3, 12.25)]), method)()


def test_annotations_of_mne() -> None:
    pytest.importorskip("mne")
    notes = Events.of([row(0, 3, 500.0, 2.0), row(0, 1, 750.0, 3.0)]).to_mne()
    assert list(notes.onset) == [2.0, 3.0]
    assert list(notes.description) == ["waveform 3", "waveform 1"]
    with raises(InvalidImages, given="events without seconds"):
        Events.of([row(0, 3, 500.0)]).to_mne()
