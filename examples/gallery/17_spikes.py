"""
Spikes that overlap
===================

A simulated recording of two neurons, whose spikes often overlap: both waveforms are learned from
the recording alone, and every spike gets its neuron and its time, with a fraction of a sample.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww

rng = np.random.default_rng(0)
t = np.arange(32) - 15.5
shapes = np.stack(
    [
        np.exp(-((t / 2) ** 2)) - 0.5 * np.exp(-(((t - 6) / 4) ** 2)),
        -np.exp(-((t / 4) ** 2)) * np.sin(t / 2),
    ]
)
times = rng.uniform(20, 9980, (2, 150))
recording = sum(
    np.interp(np.arange(10_000) - s, t, w, 0, 0)
    for w, each in zip(shapes, times, strict=True)
    for s in each
)
recording = (recording + 0.1 * rng.standard_normal(10_000)).astype(np.float32)

recipe = replace(
    ww.read_recipe("signals"), model=ww.ModelSpec.signals(maps=2, length=32), batch_size=1
)
model = ww.train(recording, recipe).model
spikes = ww.find_events(model, recording, threshold=0.5)

figure, axes = plt.subplots(2, 1, figsize=(9, 4.5), layout="constrained")
axes[0].plot(recording[:600], "k", linewidth=0.7)
for n in range(2):
    mine = spikes[(spikes["feature"] == n) & (spikes["time"] < 600)]
    axes[0].plot(
        mine["time"], 1.7 + 0.25 * n + 0 * mine["time"], "|", markersize=10, label=f"waveform {n}"
    )
    axes[1].plot(
        model.filters[0][0, n, 0],
        label=f"waveform {n}: {(spikes['feature'] == n).sum()} spikes, 150 simulated",
    )
for axis in axes:
    axis.legend(loc="upper right")
