"""Digits that nobody wrote:  python examples/new_images.py

Features of an image depend on each other, and drawing each from its own statistics gives smudges. So a new code begins
as that of an example, and is replaced window by window, what and where, by that of another example whose code is
similar everywhere else. This is Gibbs sampling, with the nearest examples in place of a density.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww


def generate(examples, count, window=5, neighbours=5, sweeps=2, seed=0):
    """New images [count, C, H, W] that resemble the examples, a solution of several hundred images or more.

    A window has `window` elements of the top layer's maps on a side, and comes from one of the `neighbours` examples
    that are nearest to the rest of the code. All windows are replaced `sweeps` times.
    """
    generator = torch.Generator().manual_seed(seed)
    contexts = similarity_maps(examples.features)
    start = torch.randint(len(contexts), (count,), generator=generator)
    drawn, (height, width) = examples.latents[start], contexts.shape[2:]
    for _ in range(sweeps):
        for top, left in window_corners(height, width, window, generator):
            inside = (slice(top, top + window), slice(left, left + window))
            near = nearest_elsewhere(contexts, similarity_maps(drawn.p), inside, start, neighbours)
            donors = near.gather(1, torch.randint(neighbours, (count, 1), generator=generator))[:, 0]
            drawn = replace_window(drawn, examples.latents[donors], inside, (height, width))
    return examples.model.decode(drawn)


def similarity_maps(p):
    """What codes are compared by, [N, B, H, W]: features, blurred by an element so that small shifts matter little."""
    blurred = F.avg_pool2d(p.square(), 3, stride=1, padding=1).sqrt()
    return blurred / blurred.flatten(1).norm(dim=1).clamp_min(1e-30)[:, None, None, None]


def window_corners(height, width, window, generator):
    """The corners of windows that cover the map, with a random offset, in random order; some stick out."""
    down, right = torch.randint(window, (2,), generator=generator).tolist()
    corners = [(max(y, 0), max(x, 0)) for y in range(-down, height, window) for x in range(-right, width, window)]
    return [corners[i] for i in torch.randperm(len(corners), generator=generator).tolist()]


def nearest_elsewhere(contexts, maps, inside, own, neighbours):
    """Of every map, the examples that are most similar outside the window; not the one that it began as."""
    outside = torch.ones(contexts.shape[2:], dtype=torch.bool)
    outside[inside] = False
    distances = torch.cdist(maps[:, :, outside].flatten(1), contexts[:, :, outside].flatten(1))
    return distances.scatter(1, own[:, None], torch.inf).topk(neighbours, largest=False).indices


def replace_window(drawn, donors, inside, extent):
    """The latents with a window taken from others, scaled to the maps of each layer."""
    others = iter(donors.tensors())

    def replaced(old):
        rows, columns = (
            slice(round(part.start * size / whole), round(min(part.stop, whole) * size / whole))
            for part, size, whole in zip(inside, old.shape[-2:], extent, strict=True)
        )
        new = old.clone()
        new[..., rows, columns] = next(others)[..., rows, columns]
        return new

    return drawn.map(replaced)


if __name__ == "__main__":
    model, digits = ww.load("mnist"), ww.data.load("digits")
    rows = []
    for digit in (0, 3, 4, 7, 8):
        images = digits[np.flatnonzero(digits.labels == digit)[:80]]
        new = generate(ww.infer(model, images, ww.InferenceSpec(lam=0.5, alpha=0.5, steps=60)), 12)
        rows.append(torch.cat(list(new[:, 0]), 1))
    plt.imsave("new_digits.png", torch.cat(rows).clamp(0, 1).numpy(), cmap="gray_r")
