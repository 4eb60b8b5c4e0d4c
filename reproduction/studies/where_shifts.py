"""Does a feature that sits where the picture wants it need fewer shifts of the grid than one at a
fixed point?

    python -m reproduction.studies.where_shifts cbsd432.tar --out results.jsonl

Sparse coding with a stride of 8, as in the trained denoiser: one coefficient per feature and region
of 8 × 8 places. `fixed`: the feature sits at one place of its region. `gaussian`: it is spread over
the region by the weights of a Gaussian, which is matched to the moments of the noisy picture's
responses and then follows the gradient at every step, as in the paper, with step sizes that are
learned. All else is the same: 128 filters of 16 × 16 pixels, 6 unrolled steps, the updates, the
crops and the noise (σ = 25 of 255). Each is learned for the mean over 1, 4 and 16 shifts, and
tested with 1, 4, 16 and 64. The central 160 × 160 pixels of each photograph are used; every 14th is
for validation. A run that was interrupted continues with the trials that the results lack.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reproduction.studies.denoiser import (
    BLOCK,
    DEVICE,
    DTYPE,
    HELD_OUT,
    LOSS_SCALE,
    psnr,
    random_crops,
    read,
    scale_gradients,
    shrink,
)
from reproduction.studies.denoiser import Steps as Cosines

SIGMA = 25 / 255
STEPS = 6
MARGIN = 20  # pixels of a crop that the loss leaves out
LEAST, MOST = math.log(0.05), math.log(8.0)  # of log γ, in places⁻²
FARTHEST = (BLOCK - 1) / 2  # places from the centre of a region
PLACES = torch.arange(BLOCK, dtype=torch.float32, device=DEVICE) - FARTHEST


class Where(nn.Module):
    """Unrolled steps with a feature per region, at a fixed point or under an inferred Gaussian."""

    def __init__(self, gaussian: bool, features: int) -> None:
        super().__init__()
        self.gaussian = gaussian
        # [M, 64, 2, 2], over blocks of 8 × 8 pixels
        filters = Cosines(1).C.detach()[:features].clone()
        self.A, self.B, self.C = (nn.Parameter(filters.clone()) for _ in range(3))
        t = torch.zeros(STEPS, features)
        t[:, 0] = math.log(0.05)
        self.t, self.g = nn.Parameter(t), nn.Parameter(torch.zeros(features))
        # log of a factor of γ after moment matching
        self.sharpness = nn.Parameter(torch.full((features,), 2.0))
        # log of the step sizes of μ and log γ
        self.rate = nn.Parameter(torch.full((STEPS, 2), -1.0))
        self.places = [(a, b) for a in range(BLOCK) for b in range(BLOCK)] if gaussian else [(3, 3)]

    def forward(self, y: Tensor) -> Tensor:
        """Pictures y [N, 1, H, W] without their noise; the sides are 7 more than a
        multiple of 8."""
        t = (SIGMA * self.t.exp())[:, :, None, None]
        e, response = y, self.analyse(y)
        pooling = self.match_moments(response) if self.gaussian else None
        p = torch.zeros_like(response[0, 0], dtype=torch.float32)
        for k in range(STEPS):
            if k:
                e = y - self.synthesise(p, pooling, self.B)
                response = self.analyse(e)
            pooled, moved = self.pool(response, p, pooling, k)
            beta = line_search(e, self.synthesise(pooled, pooling, self.B))
            p, pooling = shrink(p + beta * pooled, beta * t[k]), moved
        return self.synthesise(p * self.g.exp()[:, None, None], pooling, self.C)

    def analyse(self, e: Tensor) -> Tensor:
        """Responses [a, b, N, M, h, w] at all places (a, b) of every region."""
        h, w = e.shape[2] - BLOCK + 1, e.shape[3] - BLOCK + 1
        moved = torch.cat(
            [F.pixel_unshuffle(e[:, :, a : a + h, b : b + w], BLOCK) for a, b in self.places]
        )
        kind = {"dtype": DTYPE, "memory_format": torch.channels_last}
        responses = F.conv2d(moved.to(**kind), self.A.to(**kind))
        side = math.isqrt(len(self.places))
        return responses.view(side, side, len(e), *responses.shape[1:])

    def synthesise(
        self, p: Tensor, pooling: tuple[Tensor, Tensor] | None, filters: Tensor
    ) -> Tensor:
        """The picture [N, 1, H, W] that features p [N, M, h, w] explain."""
        z = p.to(DTYPE)
        if pooling is not None:
            rows, columns = (weights(theta).to(DTYPE) for theta in pooling)
            z = ((z * rows)[:, None] * columns).flatten(0, 2)
        kind = {"dtype": DTYPE, "memory_format": torch.channels_last}
        parts = F.pixel_shuffle(F.conv_transpose2d(z.to(**kind), filters.to(**kind)), BLOCK).float()
        total = 0
        for part, (a, b) in zip(parts.split(len(p)), self.places, strict=True):
            total = total + F.pad(part, (b, BLOCK - 1 - b, a, BLOCK - 1 - a))
        return total

    def match_moments(self, response: Tensor) -> tuple[Tensor, Tensor]:
        """(μ, log γ) [2, N, M, h, w] along rows and columns, from the squared responses."""
        energy = response.float().square()
        return tuple(self._moments(energy.sum(1 - axis)) for axis in (0, 1))

    def _moments(self, marginal: Tensor) -> Tensor:
        q = marginal / (marginal.sum(0) + 1e-12)
        x = PLACES.view(-1, 1, 1, 1, 1)
        mean = (q * x).sum(0)
        variance = (q * (x - mean).square()).sum(0)
        log_gamma = -(variance + 0.1).log() + self.sharpness[:, None, None]
        return torch.stack([mean, log_gamma.clamp(LEAST, MOST)])

    def pool(
        self, response: Tensor, p: Tensor, pooling: tuple[Tensor, Tensor] | None, k: int
    ) -> tuple:
        """The responses under the weights [N, M, h, w], and pooling variables one step down the
        gradient."""
        if pooling is None:
            return response[0, 0].float(), None
        rows, columns = (weights(theta) for theta in pooling)
        along = (response * columns.to(DTYPE)).sum(1).float()  # [a, N, M, h, w]
        across = (response * rows.to(DTYPE)[:, None]).sum(0).float()  # [b, …]
        pooled = (along * rows).sum(0)
        if k == 0:
            return pooled, pooling
        certainty = p / (p.square() + SIGMA**2)
        moved = tuple(
            self._move(theta, w, gradient * certainty, k)
            for theta, w, gradient in zip(pooling, (rows, columns), (along, across), strict=True)
        )
        return pooled, moved

    def _move(self, theta: Tensor, w: Tensor, descent: Tensor, k: int) -> Tensor:
        """∂w/∂μ = ½ w γ (x - x̄), ∂w/∂γ = -¼ w [(x - μ)² - Σ q (x - μ)²]; log γ moves by γ times
        the latter."""
        mu, log_gamma = theta
        gamma, q, x = log_gamma.exp(), w.square(), PLACES.view(-1, 1, 1, 1, 1)
        distance = (x - mu).square()
        by_mu = (descent * w * gamma * (x - (q * x).sum(0))).sum(0) / 2
        by_gamma = -(descent * w * gamma * (distance - (q * distance).sum(0))).sum(0) / 4
        rate = self.rate[k].exp()
        mu = (mu + rate[0] * by_mu).clamp(-FARTHEST, FARTHEST)
        return torch.stack([mu, (log_gamma + rate[1] * by_gamma).clamp(LEAST, MOST)])


def line_search(e: Tensor, change: Tensor) -> Tensor:
    """β [N, 1, 1, 1] that makes ‖e - β change‖ smallest for each picture."""
    e, change = e.flatten(1), change.flatten(1)
    return ((e * change).sum(1) / (change.square().sum(1) + 1e-9)).clamp(0, 2)[:, None, None, None]


def weights(theta: Tensor) -> Tensor:
    """√softmax(-γ (x - μ)² / 2) [a, N, M, h, w], whose squares have the sum 1."""
    mu, log_gamma = theta
    exponent = -log_gamma.exp() * (PLACES.view(-1, 1, 1, 1, 1) - mu).square() / 2
    return (torch.log_softmax(exponent, 0) / 2).exp()


def mean_over_shifts(model: nn.Module, y: Tensor, shifts: int) -> Tensor:
    """Pictures y [N, 1, H, W] without noise; complete but for a margin."""
    stride = BLOCK // math.isqrt(shifts)
    places = [(a, b) for a in range(0, BLOCK, stride) for b in range(0, BLOCK, stride)]
    N, _, H, W = y.shape
    h, w = H - BLOCK, W - BLOCK
    clean = model(torch.cat([y[:, :, a : a + h, b : b + w] for a, b in places]) - 0.5)
    total = torch.zeros_like(y)
    for part, (a, b) in zip(clean.split(N), places, strict=True):
        total = total + F.pad(part, (b, W - w - b, a, H - h - a))
    return total / shifts + 0.5


def loss(model: nn.Module, x: Tensor, y: Tensor, shifts: int) -> Tensor:
    inside = slice(MARGIN, x.shape[-1] - MARGIN)
    error = (mean_over_shifts(model, y, shifts) - x)[:, :, inside, inside]
    return (error.square().mean((1, 2, 3)) + 1e-7).log().mean()


def recorded(update_once: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """An update as a CUDA graph, which is started once instead of kernel by kernel; it is first
    run three times."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            update_once()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = update_once()

    def replay() -> Tensor:
        graph.replay()
        return value

    return replay


def learn(
    a: argparse.Namespace, gaussian: bool, shifts: int, training: Tensor
) -> tuple[Where, dict[str, float]]:
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    model = Where(gaussian, a.features).to(DEVICE)
    slow = [model.A, model.B, model.C]
    fast = [p for p in model.parameters() if not any(p is q for q in slow)]
    rates = torch.zeros(2, device=DEVICE)
    optimizer = torch.optim.Adam(
        [{"params": slow, "lr": rates[0]}, {"params": fast, "lr": rates[1]}],
        betas=(0.9, 0.99),
        capturable=DEVICE == "cuda",
    )
    side = BLOCK * (a.regions + 1) + BLOCK - 1 + BLOCK
    x = random_crops(training, a.batch, side, random).contiguous()
    y = x + SIGMA * torch.randn_like(x)

    def update_once() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        value = loss(model, x, y, shifts)
        (LOSS_SCALE * value).backward()
        scale_gradients([p for p in model.parameters() if p.grad is not None])
        optimizer.step()
        return value.detach()

    step = update_once if a.eager or DEVICE == "cpu" else recorded(update_once)
    began, done = time.time(), 0
    for update in range(a.updates):
        progress = max(update / a.updates, (time.time() - began) / a.seconds)
        if progress >= 1:
            break
        rate = a.rate * min(1.0, (update + 1) / 100) * (1 + math.cos(math.pi * progress)) / 2
        rates.copy_(torch.tensor([rate, 10 * rate]))
        x.copy_(random_crops(training, a.batch, side, random))
        y.copy_(x + SIGMA * torch.randn_like(x))
        value, done = step(), update + 1
        if update % 250 == 0:
            print(
                model.gaussian,
                shifts,
                update,
                round(value.item(), 3),
                round(time.time() - began),
                flush=True,
            )
    return model, {"updates": done, "seconds": round(time.time() - began, 1)}


@torch.no_grad()
def test(model: Where, held: Tensor, shifts: int) -> list[float]:
    """The PSNR of every validation picture [n, H, W], continued by reflection."""
    random = torch.Generator().manual_seed(1)
    scores = []
    for picture in held:
        x = picture.float() / 255
        y = (x + SIGMA * torch.randn(x.shape, generator=random)).to(DEVICE)
        extent = -(x.shape[0] + 2 * MARGIN) % BLOCK + BLOCK - 1 + BLOCK
        padded = F.pad(
            y[None, None], (MARGIN, MARGIN + extent, MARGIN, MARGIN + extent), mode="reflect"
        )
        clean = mean_over_shifts(model, padded, shifts)[
            0, 0, MARGIN : MARGIN + len(x), MARGIN : MARGIN + len(x)
        ]
        scores.append(psnr(clean.clamp(0, 1).cpu(), x))
    return scores


def central(picture: Tensor, side: int = 160) -> Tensor:
    top, left = ((extent - side) // 2 for extent in picture.shape)
    return picture[top : top + side, left : left + side]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shifts", type=int, nargs="+", default=[1, 4, 16], help="to learn with")
    numbers = {"updates": 2000, "batch": 8, "features": 128, "regions": 9, "held": 31, "side": 160}
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seconds", type=float, default=10_000, help="at most, for each trial")
    parser.add_argument("--eager", action="store_true", help="without CUDA graphs")
    a = parser.parse_args()
    pictures = [central(picture) for picture in read(a.archive).values()]
    held = torch.stack([central(x, a.side) for x in pictures[::HELD_OUT][: a.held]])
    training = torch.stack([x for i, x in enumerate(pictures) if i % HELD_OUT]).to(DEVICE)
    rows = [json.loads(line) for line in a.out.read_text().splitlines()] if a.out.exists() else []
    done = {(row.get("kind"), row.get("learned_with")) for row in rows}
    for shifts in a.shifts:
        for kind in ("fixed", "gaussian"):
            if (kind, shifts) in done:
                continue
            model, spent = learn(a, kind == "gaussian", shifts, training)
            row = {
                "kind": kind,
                "learned_with": shifts,
                **{name: getattr(a, name) for name in numbers},
                "rate": a.rate,
            }
            row |= spent | {"numbers": sum(p.numel() for p in model.parameters())}
            row["psnr"] = {
                str(s): round(float(np.mean(test(model, held, s))), 3) for s in (1, 4, 16, 64)
            }
            with a.out.open("a") as results:
                print(json.dumps(row), file=results)
            print(row, flush=True)


if __name__ == "__main__":
    main()
