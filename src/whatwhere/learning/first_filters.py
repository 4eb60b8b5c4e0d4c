"""Where the learning of waveforms starts: at pieces of the signals themselves."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from whatwhere.inference.auto_lam import sample_rows
from whatwhere.inference.checks import ImageSource
from whatwhere.inference.target import make_target
from whatwhere.model import DeconvNet


def start_from_pieces(model: DeconvNet, images: ImageSource, seed: int) -> DeconvNet:
    """The same model with pieces of signals [N, C, 1, T] as its waveforms, each around a peak of energy.

    Random filters first become all alike, the mean of many events; pieces differ from the start. They are drawn in
    proportion to the energy that those before do not explain at any shift (k-means++).
    """
    layer = model.spec.layers[0]
    length, generator = layer.filter_shape[1], torch.Generator().manual_seed(seed)
    targets = [make_target(model, images[slice(row, row + 1)]) for row in sample_rows(len(images))]
    v = torch.cat([target.v[:, :, 0] for target in targets if target.v.shape[3] >= length]).cpu()
    if not len(v) or not v.any():
        return model
    window = torch.hann_window(length + 2, periodic=False, dtype=v.dtype)[1:-1]  # the middle counts most
    energy = F.conv1d(v.square().sum(1, keepdim=True), window[None, None])[:, 0]  # [N, T - length + 1]
    peaks = energy == F.max_pool1d(energy[:, None], 2 * (length // 2) + 1, 1, length // 2)[:, 0]
    signal, start = (peaks & (energy > 0)).nonzero(as_tuple=True)
    pieces = v.unfold(2, length, 1)[signal, :, start]  # [n, C, length]
    pieces = pieces / pieces.flatten(1).norm(dim=1)[:, None, None]
    left, chosen = energy[signal, start].double(), list[int]()
    for _ in range(layer.maps):
        chosen.append(int(torch.multinomial(left if left.sum() > 0 else torch.ones_like(left), 1, generator=generator)))
        alike = F.conv1d(pieces, pieces[chosen[-1:]], padding=length // 2).amax((1, 2)).double()
        left = left * (1 - alike.square()).clamp(min=0)
    filters = pieces[chosen].transpose(0, 1)[:, :, None].to(model.device)
    return model.with_filters(1, model.project(1, filters.double()).to(model.dtype))
