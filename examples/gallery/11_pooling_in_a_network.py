"""
A pooling layer in a small network
==================================

The same autoencoder is trained with max pooling and its switches, and with Gaussian pooling. The
decoder gets *what* through seven maps of 7 × 7, and *where* from the pooling layer. The numbers are
mean squared errors.
"""

import matplotlib.pyplot as plt
import torch
from torch import nn

import whatwhere as ww

images = ww.data.load("digits")[:300]
pairs = {
    "max": (nn.MaxPool2d(4, return_indices=True), nn.MaxUnpool2d(4)),
    "Gaussian": (ww.nn.GaussianPool2d(4, return_where=True), ww.nn.GaussianUnpool2d(4)),
}
rows = {"input": images[:12]}
for name, (pool, unpool) in pairs.items():
    torch.manual_seed(0)
    encoder, decoder = nn.Conv2d(1, 7, 5, padding=2), nn.Conv2d(7, 1, 5, padding=2)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.02)
    for step in range(60):
        batch = images[step % 6 * 50 :][:50]
        drawn = decoder(unpool(*pool(encoder(batch).relu())))
        loss = nn.functional.mse_loss(drawn, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    rows[f"{name}\n{loss:.4f}"] = decoder(unpool(*pool(encoder(images[:12]).relu()))).detach()
figure, axes = plt.subplots(3, 1, figsize=(9, 2.8), layout="constrained")
for axis, (name, row) in zip(axes, rows.items(), strict=True):
    axis.imshow(torch.cat(list(row[:, 0]), 1), cmap="gray_r", vmin=0, vmax=1)
    axis.set(xticks=[], yticks=[], ylabel=name)
