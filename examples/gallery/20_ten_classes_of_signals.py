"""
Ten classes of signals
======================

Each class has a waveform that lies somewhere in 40 samples, stretched and scaled, on a slope and
with noise. A linear classifier of the samples makes many errors, because the waveform may start
anywhere. With features that are learned without labels, it makes fewer. A small network learns from
the labels, with max pooling or with `GaussianPool1d`.

The idea comes from MNIST-1D (Greydanus and Kobak 2024; accuracy: logistic regression 32 %, MLP 68
%, CNN 94 %). On MNIST-1D, we measured 31.8 % with a linear classifier of the samples, 71.6 % with
one of the features, 96.2 % with max pooling and 96.9 % with Gaussian pooling. The last two are
means of three networks. On validation signals they are 0.1 points apart, so this does not show that
one is better (`benchmarks/signals/mnist1d.py`).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

import whatwhere as ww

rng, y, at = np.random.default_rng(0), torch.arange(3000) % 10, np.arange(40)
start, length, slope, scale = rng.uniform([0, 12, -1, 0.7], [26, 16, 1, 1.3], (3000, 4)).T[
    ..., None
]
phase = np.pi * np.clip((at - start) / length, 0, 1)
# five for each class
sines = rng.standard_normal((10, 5))[y, None] * np.sin(phase[..., None] * np.arange(1, 6))
x = torch.tensor(
    scale * sines.sum(-1) + slope * np.linspace(-1, 1, 40) + 0.5 * rng.standard_normal((3000, 40))
).float()

how = {
    "filter_size": (1, 11),
    "pool_size": (1, 2),
    "lam": 20,
    "descriptor": ww.DescriptorSpec(cell_statistic="max"),
}
rows = (
    ww.DeconvNetFeatures(maps=(32,), nonnegative=False, **how)
    .fit(x[:2000, None])
    .transform(x[:, None])
)
linear, correct = LogisticRegression(C=3, max_iter=500), {}
for name, given in {"samples": x, "features": rows}.items():
    correct[f"linear,\n{name}"] = linear.fit(given[:2000], y[:2000]).score(given[2000:], y[2000:])
for name, pool in {"max": torch.nn.MaxPool1d, "Gaussian": ww.nn.GaussianPool1d}.items():
    torch.manual_seed(0)
    layers = [
        (torch.nn.Conv1d(channels, 16, 5, padding=2), torch.nn.ReLU(), pool(2))
        for channels in (1, 16, 16)
    ]
    network = torch.nn.Sequential(*sum(layers, ()), torch.nn.Flatten(), torch.nn.Linear(80, 10))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for batch in torch.randint(2000, (300, 200)):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(x[batch, None]), y[batch]).backward()
        optimizer.step()
    correct[f"network,\n{name} pooling"] = (
        (network(x[2000:, None]).argmax(1) == y[2000:]).float().mean().item()
    )

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
left.plot(at[:, None] + 46 * (at // 10), x[:40].T - 6 * y[:40])
left.set(xticks=[], yticks=[], title="four signals of each class")
right.bar_label(
    right.bar(list(correct), list(correct.values()), color=("0.8", "C0") * 2), fmt="{:.1%} correct"
)
