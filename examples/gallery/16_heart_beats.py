"""
Heart beats
===========

The recording is the electrocardiogram of PyWavelets (1,024 samples). The model learns one waveform
from it without labels, and the events of this waveform are the times of the beats. The model also
fills in a gap in the recording.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pywt

import whatwhere as ww

ecg = pywt.data.ecg().astype(np.float32)
ecg = (ecg - np.median(ecg)) / ecg.std()
signal = ecg[None, None]
recipe = replace(
    ww.read_recipe("signals"), model=ww.ModelSpec.signals(maps=1, length=101), batch_size=1
)
recipe = ww.override(recipe, {"learning": {"each": {"epochs": 40, "inference": {"lam": 0.3}}}})
model = ww.train(signal, recipe).model
solution = ww.infer(model, signal, ww.InferenceSpec.coding(lam=0.3))
beats = solution.events(threshold=8.0)

known = np.ones_like(signal)
known[..., 480:520] = 0
filled = ww.restoration.inpaint(signal, known, model, noise=0.3)

figure, axes = plt.subplots(2, 1, figsize=(9, 4), layout="constrained", sharex=True)
axes[0].plot(ecg, "k", linewidth=0.6, label="recording")
axes[0].plot(solution.reconstruction[0, 0], linewidth=1, label="explained")
axes[0].vlines(
    beats["sample"],
    -4,
    8,
    "C3",
    linewidth=0.8,
    label=f"beats, every {np.diff(beats['time']).mean():.1f} samples",
)
axes[1].plot(np.where(known > 0, signal, np.nan)[0, 0], "k", linewidth=0.6)
axes[1].plot(np.where(known > 0, np.nan, filled)[0, 0], "C1", label="filled in")
for axis in axes:
    axis.legend(loc="upper right")
