"""
Spikes that overlap
===================

This example simulates a recording of two neurons, with a drift, in which some spikes overlap. The
program learns both waveforms from the recording alone, without manual settings. It assigns a neuron
and a time to every spike. Open marks are spikes that overlap another one.
"""

import numpy as np

import whatwhere as ww

rng = np.random.default_rng(0)
t = np.arange(32) - 15.5
shapes = np.stack(
    [
        np.exp(-((t / 2) ** 2)) - 0.5 * np.exp(-(((t - 6) / 4) ** 2)),
        -np.exp(-((t / 3) ** 2)) + 0.5 * np.exp(-(((t - 7) / 3) ** 2)),
    ]
)
times = rng.uniform(20, 19_980, (2, 80))
recording = sum(
    np.interp(np.arange(20_000) - s, t, w, 0, 0)
    for w, each in zip(shapes, times, strict=True)
    for s in each
)
recording += np.sin(np.arange(20_000) / 700) + 0.1 * rng.standard_normal(20_000)
signals = ww.data.load(recording.astype(np.float32), signals=True, rate=20_000)

run = ww.train(signals)
spikes = ww.find_events(run.model, signals, run.recipe.inference)
for n in np.unique(spikes["waveform"]):
    print(f"waveform {n}: {(spikes['waveform'] == n).sum()} spikes, 80 simulated")

figures = ww.signals.RecordingFigures(run, signals)
figure = figures.draw("recording").figure
