"""Inference on signals: as on images of height 1, of any length, with accurate times."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import whatwhere as ww
from whatwhere.errors import ImageError, SpecError
from whatwhere.model.events import Events
from whatwhere.model.sized import LayerPlaces
from whatwhere.signals.event_table import write_events
from whatwhere.signals.find import EventSettings
from whatwhere.signals.recording import Signals

LENGTH = 32


def waveform(t: np.ndarray) -> np.ndarray:
    return np.cos(0.44 * t + 0.6) * np.exp(-(t**2) / 32)


CENTRED = np.arange(LENGTH) - (LENGTH - 1) / 2
NORM = float(np.linalg.norm(waveform(CENTRED)))


def known_model(**pooling: int) -> ww.DeconvNet:
    """A model of one waveform."""
    model = ww.DeconvNet(ww.ModelSpec.signals(1, LENGTH, **pooling), dtype=torch.float64)
    return model.with_filters(1, torch.from_numpy(waveform(CENTRED) / NORM)[None, None, None])


def simulated(events: int, sigma: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A recording with events at least a waveform apart, and their times."""
    rng = np.random.default_rng(seed)
    times = 40 + np.cumsum(rng.uniform(1.5 * LENGTH, 3 * LENGTH, events))
    samples = np.arange(int(times[-1]) + 60)
    return sum(waveform(samples - t) for t in times) / NORM + sigma * rng.standard_normal(
        len(samples)
    ), times


@pytest.mark.parametrize("engine", ["reference", "cpu"])
def test_a_signals_code_is_that_of_the_image_of_height_1(engine: str) -> None:
    model = ww.DeconvNet(ww.ModelSpec.signals(3, 8, channels=2))
    signals = torch.randn(2, 2, 50, generator=torch.Generator().manual_seed(0))
    known = (torch.rand(2, 1, 50, generator=torch.Generator().manual_seed(1)) > 0.2).float()
    spec = ww.InferenceSpec(lam=2.0, steps=20)
    a = ww.infer(model, signals, spec, mask=known, engine=engine)
    b = ww.infer(model, signals[:, :, None], spec, mask=known[:, :, None], engine=engine)
    c = ww.infer(
        model,
        ww.data.load(signals.where(known > 0, torch.nan), signals=True, allow_nan=True),
        spec,
        engine=engine,
    )
    for solution in (b, c):
        for ours, theirs in zip(a.latents.tensors(), solution.latents.tensors(), strict=True):
            assert torch.equal(ours, theirs)
    assert torch.equal(a.features, b.features[:, :, 0])
    assert torch.equal(a.reconstruction, c.reconstruction)
    assert a.reconstruction.shape == signals.shape
    assert b.reconstruction.shape == (2, 2, 1, 50)


def test_times_are_within_one_and_a_half_times_the_bound_of_cramer_and_rao() -> None:
    """At 10 dB; more in benchmarks/signals/results/event_times.json. The plain
    code's largest coefficient is not."""
    sigma = (1 / LENGTH / 10) ** 0.5
    x, times = simulated(80, sigma)
    bound = sigma / np.linalg.norm(
        (waveform(CENTRED + 1e-4) - waveform(CENTRED - 1e-4)) / 2e-4 / NORM
    )

    def error(pool: int) -> float:
        model = known_model(pool_size=pool)
        spec = ww.InferenceSpec.coding(lam=1 / (4 * sigma))
        events = ww.infer(model, x[None, None], spec, engine="reference").events(threshold=0.3)
        assert len(events) == len(times)
        centre = events["sample"] + (LENGTH - 1) / 2 - int(model.filters[0].abs().argmax())
        found = centre if pool > 1 else np.rint(centre + 0.5) - 0.5
        return float(np.sqrt(np.mean((found - times) ** 2)))

    assert error(2) < 1.5 * bound < error(1)


def test_tiles_give_the_events_of_the_whole_recording(tmp_path: Path) -> None:
    x, times = simulated(12, 0.03)
    model, spec = known_model(), ww.InferenceSpec(lam=8.0, steps=200, step=ww.Fixed(momentum=True))
    whole = ww.infer(model, x[None, None], spec, engine="reference").events(threshold=0.3)
    assert len(whole) == len(times)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for recording in (mapped, ww.data.load(tmp_path / "x.npy", signals=True)):
        tiles = ww.find_events(model, recording, spec, threshold=0.3, tile=500, engine="reference")
        assert tiles.dtype == whole.dtype
        assert len(tiles) == len(whole)
        np.testing.assert_allclose(tiles["sample"], whole["sample"], atol=0.03)
        # the penalty of 1/λ is taken back
        np.testing.assert_allclose(tiles["amplitude"], whole["amplitude"] + 1 / 8, atol=0.06)


def test_two_recordings_and_two_layers() -> None:
    x = np.random.default_rng(0).normal(size=(2, 1, 700))
    layers = (
        ww.LayerSpec(maps=3, filter_size=(1, 6), pool_size=(1, 2)),
        ww.LayerSpec(maps=2, filter_size=(1, 4), pool_size=(1, 2)),
    )
    model = ww.DeconvNet(ww.ModelSpec(layers=layers, signed_filters=True), dtype=torch.float64)
    events = ww.find_events(
        model, x, ww.InferenceSpec(lam=1.0, steps=10), threshold=0, tile=300, engine="reference"
    )
    assert set(events["signal"]) == {0, 1}
    assert set(events["layer"]) == {1, 2}
    children = events[events["parent"] >= 0]
    assert len(children) > 0
    parents = events[children["parent"]]
    assert (parents["layer"] == 2).all()
    assert (parents["signal"] == children["signal"]).all()
    assert (np.abs(parents["sample"] - children["sample"]) <= 11).all()


SPARSE = ww.InferenceSpec(lam=8.0, steps=150, step=ww.Fixed(momentum=True))


def placed(*events: tuple[float, float], samples: int = 600) -> np.ndarray:
    """A recording of known events, (sample of the centre, amplitude) each, with a little noise."""
    x = 0.005 * np.random.default_rng(0).standard_normal(samples)
    for centre, amplitude in events:
        x += amplitude * waveform(np.arange(samples) - centre) / NORM
    return x


def peaks(*centres: float) -> np.ndarray:
    """The samples of the peaks of events with these centres."""
    largest = float(CENTRED[np.abs(waveform(CENTRED)).argmax()])
    return np.array(centres) + largest


def test_seconds_count_from_the_start_of_the_recording() -> None:
    signals = ww.data.load(placed((100.5, 2), (300.5, 2)), signals=True, rate=250)
    assert isinstance(signals, Signals)
    late = replace(signals, start=12.5)
    events = ww.find_events(known_model(), late, SPARSE, engine="reference")
    np.testing.assert_allclose(events["seconds"], 12.5 + peaks(100.5, 300.5) / 250, atol=0.004)


def test_amplitudes_and_shares_are_those_of_the_events() -> None:
    """The second event lies on an oscillation that has as much energy as the event."""
    x = placed((100.5, 2), (300.5, 2))
    t = np.arange(285, 317)
    x[t] += 0.5 * np.cos(2.6 * t)
    events = ww.find_events(known_model(), x, SPARSE, engine="reference")
    np.testing.assert_allclose(events["amplitude"], 2, rtol=0.1)
    assert events["explained"][0] > 0.95
    assert 0.3 < events["explained"][1] < 0.8


def test_what_lies_beside_a_waveform_is_no_evidence_against_it() -> None:
    """An oscillation within the length of the waveform, where the waveform has ended."""
    x = placed((100.5, 2), (300.5, 2))
    t = np.arange(311, 317)
    x[t] += np.cos(2.6 * t)
    events = ww.find_events(known_model(), x, SPARSE, engine="reference")
    nearest = np.abs(events["sample"] - peaks(300.5)).argmin()
    assert events["explained"][nearest] > 0.9


def test_an_event_has_a_fifth_of_the_energy_where_it_lies() -> None:
    x = placed((100.5, 2), (300.5, 2))
    t = np.arange(270, 331)
    x[t] += 2 * np.cos(2.6 * t)
    large = ww.find_events(known_model(), x, SPARSE, engine="reference")
    np.testing.assert_allclose(large["sample"], peaks(100.5), atol=1)
    every = ww.find_events(known_model(), x, SPARSE, threshold=0.5, engine="reference")
    assert np.abs(every["sample"] - peaks(300.5)).min() < 2


def test_an_event_of_which_little_is_known_is_left_out() -> None:
    x = placed((100.5, 2), (300.5, 2), (500.5, 2))
    x[300:320] = np.nan  # a little more than half of the waveform's energy
    x[503:520] = np.nan  # its smaller half
    model = known_model()
    events = ww.find_events(model, x, SPARSE, engine="reference")
    np.testing.assert_allclose(events["sample"], peaks(100.5, 500.5), atol=1)
    np.testing.assert_allclose(events["amplitude"], 2, rtol=0.15)


def test_doubtful_events_are_those_that_overlap_another_one_of_the_table() -> None:
    x = placed((100.5, 2), (112.5, 2), (300.5, 2), (312.5, 0.5), (500.5, 2))
    every = ww.find_events(known_model(), x, SPARSE, threshold=0.2, engine="reference")
    np.testing.assert_array_equal(every["doubtful"], [True, True, True, True, False])
    large = ww.find_events(known_model(), x, SPARSE, threshold=1.0, engine="reference")
    np.testing.assert_array_equal(large["doubtful"], [True, True, False, False])


def test_an_event_exceeds_five_deviations_of_the_noise() -> None:
    sigma = 0.1
    centres = 50.5 + 100 * np.arange(30)
    sizes = np.where(np.arange(30) % 2, 12 * sigma, 3 * sigma)
    x = placed(*zip(centres, sizes, strict=True), samples=3100)
    x += sigma * np.random.default_rng(1).standard_normal(3100)
    model = known_model()
    spec = replace(SPARSE, lam=1 / (2 * sigma))
    events = ww.find_events(model, x, spec, engine="reference")
    near = np.abs(events["sample"][:, None] - peaks(*centres[1::2])).min(0)
    assert (near < 2).all()
    assert len(events) < 15 + 3
    every = ww.find_events(model, x, spec, threshold=0, engine="reference")
    assert len(every) > 30


class Recording:
    """A long recording of noise that is never in memory as a whole; it counts the samples that are
    asked for."""

    def __init__(self, samples: int) -> None:
        self.shape, self.most, self.total = (1, 1, samples), 0, 0

    def as_images(self) -> None: ...

    def with_white(self, white: float) -> "Recording":
        return self

    def __len__(self) -> int:
        return 1

    def recording(self, row: int) -> "Recording":
        return self

    def __getitem__(self, window: Any) -> np.ndarray:
        first, last, _ = window[2].indices(self.shape[2])
        self.most, self.total = max(self.most, last - first), self.total + last - first
        return np.sin(np.arange(first, last, dtype=np.float64) ** 1.1)[None, None]


def test_a_gap_longer_than_a_tile_leaves_the_other_events() -> None:
    """λ and the threshold are chosen by what is known."""
    model = known_model()
    x, times = simulated(60, 0.03)
    x[1000:2500] = np.nan
    known = times[(times < 980) | (times > 2520)]
    found = ww.find_events(model, x, tile=512)
    peak = int(model.filters[0].abs().argmax())
    centre = found["sample"] + (LENGTH - 1) / 2 - peak
    assert len(found) == len(known)
    np.testing.assert_allclose(centre, known, atol=1)


def test_a_recording_without_a_known_sample_is_an_error() -> None:
    with pytest.raises(ImageError, match="no value is known"):
        ww.find_events(known_model(), np.full((1, 3000), np.nan), tile=512)
    with pytest.raises(ImageError, match="1 channel, 0 samples long"):
        ww.find_events(known_model(), np.zeros((1, 0)))


def test_memory_is_bounded_by_a_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read is of at most a tile, however long the recording is, and at most a batch of them is
    solved together."""
    from whatwhere.inference import tiled

    batches, solve = [], tiled.run_plan

    def counted(engine: Any, problem: Any, plan: Any) -> Any:
        batches.append(problem.images.numel())
        return solve(engine, problem, plan)

    monkeypatch.setattr(tiled, "run_plan", counted)
    model, recording = known_model(), Recording(100_000)
    seen: list[int] = []
    ww.find_events(
        model,
        recording,
        ww.InferenceSpec(lam=0.1, steps=2),
        threshold=0,
        tile=2048,
        engine="reference",
        progress=seen.append,
    )
    assert recording.most == 2048
    assert max(batches) <= 2048 * torch.get_num_threads()
    shared = 4 * LayerPlaces.of(model.spec, 1)[-1].reach
    once = 100_000 * 2048 / (2048 - shared) * 1.02
    # the engine is chosen by a few tiles, which are read twice
    assert recording.total <= once + tiled.TILING.engine_sample * 2048
    assert 50 < len(seen) < 60


def test_neither_statistics_nor_events_of_earlier_tiles_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from whatwhere.inference import tiled
    from whatwhere.signals.event_table import write_events

    solve, to_csv, most = tiled.run_plan, Events.to_csv, [0, 0]
    statistics, tables = list[weakref.ref](), list[weakref.ref]()

    def solved(engine: Any, problem: Any, plan: Any) -> Any:
        solution = solve(engine, problem, plan)
        statistics.append(weakref.ref(solution.stats.reconstruction))
        return solution

    def written(table: Events, file: Any, **options: Any) -> None:
        tables.append(weakref.ref(table))
        most[:] = [
            max(a, sum(ref() is not None for ref in b))
            for a, b in zip(most, (statistics, tables), strict=True)
        ]
        to_csv(table, file, **options)

    monkeypatch.setattr(tiled, "run_plan", solved)
    monkeypatch.setattr(Events, "to_csv", written)
    x, times = simulated(500, 0.03)
    inference = ww.InferenceSpec(lam=8.0, steps=20, tolerance=1e-6, step=ww.Fixed(momentum=True))
    recipe = replace(ww.read_recipe("signals"), model=known_model().spec, inference=inference)
    signals, path = ww.data.load(x, signals=True), tmp_path / "events.csv"
    with pytest.warns(ww.errors.ConvergenceWarning, match="images did not reach tolerance"):
        count = write_events(path, recipe, known_model(), signals, 0.3, "reference")
    assert len(tables) > 8
    assert most[0] <= 2
    assert most[1] <= 2
    monkeypatch.undo()
    with pytest.warns(ww.errors.ConvergenceWarning):
        table = ww.find_events(
            known_model(), signals, inference, recipe.plan, threshold=0.3, engine="reference"
        )
    assert count == len(table) == pytest.approx(len(times), abs=5)
    table.to_csv(tmp_path / "whole.csv")
    assert path.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_an_onset_is_where_the_waveform_begins(tmp_path: Path) -> None:
    """A step up, a slow decay: the peak comes late, the onset where the step begins."""
    f = np.zeros(64)
    f[20:30] = np.linspace(0.2, 1, 10)
    f[30:] = np.exp(-np.arange(34) / 8)
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=1, length=64))
    model = model.with_filters(1, torch.from_numpy(f / np.linalg.norm(f)).float()[None, None, None])
    x = 0.02 * np.random.default_rng(0).standard_normal(8000)
    for begin in (1000, 3500, 6000):
        x[begin : begin + 44] += f[20:]
    signals = ww.data.load(x.astype(np.float32), signals=True, rate=100)
    events = ww.find_events(model, signals)
    np.testing.assert_allclose(events["onset"], [1000, 3500, 6000], atol=1)
    np.testing.assert_allclose(events["onset_seconds"], [10, 35, 60], atol=0.01)
    events.to_csv(tmp_path / "events.csv")
    table = np.genfromtxt(tmp_path / "events.csv", delimiter=",", names=True)
    np.testing.assert_allclose(table["onset_seconds"], events["onset_seconds"], atol=1e-6)


def test_a_threshold_in_deviations_of_the_noise() -> None:
    """Events of 6 and of 12 deviations, at three times."""
    f = torch.zeros(1, 1, 1, 16)
    f[..., 4:12] = torch.hann_window(8)
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=1, length=16)).with_filters(1, f / f.norm())
    shape = (f / f.norm())[0, 0, 0].numpy()
    x = 0.1 * np.random.default_rng(0).standard_normal(9000)
    for at, size in ((1000, 0.65), (2500, 1.3), (4700, 0.65), (6000, 1.3), (8000, 1.3)):
        x[at : at + 16] += size * shape

    def count(threshold: float | str | None) -> int:
        spec = ww.InferenceSpec(lam=4.0, steps=50)
        return len(ww.find_events(model, x, spec, threshold=threshold))

    assert count("4.5sd") >= 5
    assert count("9sd") == count(" 9 SD ") == count(0.9) == 3
    for wrong in ("sd", "4 deviations", "-1"):
        with pytest.raises(SpecError, match="such as 4sd"):
            count(wrong)


def test_the_recipe_infers_as_events_does() -> None:
    inference = ww.read_recipe("signals").inference
    assert EventSettings().inference(inference) == inference


def test_noise_sets_lambda() -> None:
    x, _ = simulated(60, 0.05)
    spec = ww.InferenceSpec(lam=ww.AutoLam(deviations=4.0), steps=1)
    lam = ww.infer(known_model(), x[None, None], spec, engine="reference").lam
    assert lam is not None
    assert 1 / (4 * lam) == pytest.approx(0.05, rel=0.1)
    with pytest.raises(ImageError, match="no noise"):
        ww.infer(
            known_model(), np.zeros((1, 1, 100)), ww.InferenceSpec(lam=ww.AutoLam(deviations=4.0))
        )


def wrong() -> Iterator[tuple[Any, str]]:
    yield np.zeros((1, 1, 50), np.int32), "and scales integers"
    yield np.zeros((1, 1, 1, 50)), r"expected floats \[T\]"
    yield np.zeros((2, 50)), r"expected 1 channel, as"


@pytest.mark.parametrize(("recording", "message"), list(wrong()))
def test_what_is_wrong_with_a_recording(recording: Any, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        ww.find_events(known_model(), recording)


def test_what_is_wrong_with_signals() -> None:
    with pytest.raises(ImageError, match="one of signals"):
        ww.find_events(ww.DeconvNet(ww.ModelSpec.paper()), np.zeros(50))
    with pytest.raises(ImageError, match=r"\[1, 2, 1, 50\]; expected a float tensor \[N, 1, T\]"):
        ww.infer(known_model(), torch.zeros(1, 2, 50))


@pytest.mark.parametrize(
    "recording", ["recording.npy", [0.0, 1.0], ww.data.load(np.zeros((2, 8, 8)))]
)
def test_what_is_no_recording_raises_an_error(recording: object) -> None:
    with pytest.raises(ImageError, match=r"Got a recording of .*; expected"):
        ww.find_events(ww.DeconvNet(ww.ModelSpec.signals(2, 9)), recording)


def test_every_row_of_a_table_has_the_columns_of_its_heading(tmp_path: Path) -> None:
    """Without a rate, and with no event in the first tile."""
    f = torch.zeros(1, 1, 1, 16)
    f[..., 4:12] = torch.hann_window(8)
    model = ww.DeconvNet(ww.ModelSpec.signals(maps=1, length=16)).with_filters(1, f / f.norm())
    rng = np.random.default_rng(0)
    x = 0.02 * rng.standard_normal(12_000)
    for at in (7000, 9000, 11_000):
        x[at : at + 8] += np.hanning(8)
    signals = ww.data.load(x.astype(np.float32), signals=True)
    recipe = replace(ww.read_recipe("signals"), model=model.spec)
    count = write_events(tmp_path / "events.csv", recipe, model, signals, threshold=0.5)
    lines = (tmp_path / "events.csv").read_text().splitlines()
    assert count == len(lines) - 1 == 3
    assert "seconds" not in lines[0]
    assert {line.count(",") for line in lines} == {lines[0].count(",")}
