"""Denoising methods on the same noisy pictures: PSNR, SSIM and seconds.

    python -m benchmarks.restoration.denoising trained bsd68.tar set12.tar --shifts 64 --out
    results.jsonl python -m benchmarks.restoration.denoising nlm bsd68.tar set12.tar --out
    results.jsonl           # scikit-image python -m benchmarks.restoration.denoising trained
    cbsd432.tar --held-out 31 --colour --out results.jsonl

An archive holds pictures; `--held-out` takes those that `benchmarks/restoration/denoiser.py` keeps
from training,
`--model` numbers that it exported instead of those that ship. SSIM has a Gaussian window of σ =
1.5, 11 × 11 pixels. Total variation has a weight of σ; non-local means have patches of 7 × 7 within
21 × 21 pixels and h = 0.8 σ in the fast mode, as scikit-image advises.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from benchmarks.restoration.denoiser import DEVICE, held_out, psnr, read

# [C, H, W] from 0 to 1, σ → the same without noise
Method = Callable[[Tensor, float, argparse.Namespace], Any]


@cache
def denoiser(file: Path | None) -> Any:
    import whatwhere as ww

    if file is None:
        return ww.restoration.load_denoiser().to(DEVICE)
    return ww.restoration.Denoiser(**{n: v.float() for n, v in load_file(file).items()}).to(DEVICE)


def trained(noisy: Tensor, sigma: float, a: argparse.Namespace) -> Tensor:
    import whatwhere as ww

    spec = ww.restoration.RestorationSpec(quality=a.shifts)
    return ww.restoration.denoise(noisy[None], denoiser(a.model), sigma, spec=spec)[0]


def estimated(noisy: Tensor, sigma: float, a: argparse.Namespace) -> Tensor:
    """The trained denoiser, which has to find out how strong the noise is."""
    import whatwhere as ww

    spec = ww.restoration.RestorationSpec(quality=a.shifts)
    return ww.restoration.denoise(noisy[None], denoiser(a.model), spec=spec)[0]


def by_channel(noisy: Tensor, sigma: float, a: argparse.Namespace) -> Tensor:
    """The trained denoiser on red, green and blue instead of brightness and differences of
    colour."""
    return torch.cat([trained(plane[None], sigma, a) for plane in noisy])


def dictionary(noisy: Tensor, sigma: float, a: argparse.Namespace) -> Tensor:
    """Pursuit with the dictionary that ships, without pairs; with --learn adapted to the
    picture."""
    import whatwhere as ww

    spec = ww.restoration.RestorationSpec(learn=a.learn)
    return ww.restoration.denoise(noisy[None], ww.restoration.load_dictionary(), sigma, spec=spec)[
        0
    ]


def tv(noisy: Tensor, sigma: float, a: argparse.Namespace) -> np.ndarray:
    from skimage.restoration import denoise_tv_chambolle

    return denoise_tv_chambolle(noisy.numpy(), weight=sigma, channel_axis=0)


def nlm(noisy: Tensor, sigma: float, a: argparse.Namespace) -> np.ndarray:
    from skimage.restoration import denoise_nl_means

    settings = {
        "patch_size": 7,
        "patch_distance": 10,
        "fast_mode": True,
        "h": 0.8 * sigma,
        "sigma": sigma,
    }
    return np.stack([denoise_nl_means(plane.numpy(), **settings) for plane in noisy])


def sporco(noisy: Tensor, sigma: float, a: argparse.Namespace) -> np.ndarray:
    """Convolutional sparse coding with its dictionary; settings of
    benchmarks/restoration/results/restoration_settings.json."""
    from scipy.fft import next_fast_len
    from sporco import signal, util
    from sporco.admm import cbpdn

    picture = noisy[0].numpy()
    low, high = signal.tikhonov_filter(picture, 2.0, 16)
    # its convolution is circular
    frame = [(0, next_fast_len(extent + 7, real=True) - extent) for extent in high.shape]
    settings = {
        "MaxMainIter": 15,
        "RelStopTol": 5e-3,
        "HighMemSolve": True,
        "FastSolve": False,
        "Verbose": False,
    }
    atoms, padded = (
        util.convdicts()["G:8x8x32"].astype(np.float32),
        np.pad(high, frame).astype(np.float32),
    )
    solver = cbpdn.ConvBPDN(atoms, padded, np.float32(2 * sigma), cbpdn.ConvBPDN.Options(settings))
    solver.solve()
    height, width = picture.shape
    return (low + solver.reconstruct().squeeze()[:height, :width])[None]


def photographs(noisy: Tensor, sigma: float, a: argparse.Namespace) -> Tensor:
    """Sparse coding with the model `photographs`, the former way: needs the package of commit
    8adc216."""
    import whatwhere as ww

    return ww.restoration.denoise(noisy[None], ww.load("photographs"), sigma)[0]


def bm3d(noisy: Tensor, sigma: float, a: argparse.Namespace) -> np.ndarray:
    from bm3d import bm3d as denoise

    return denoise(noisy[0].numpy(), sigma)[None]


METHODS: dict[str, Method] = {
    "noisy": lambda noisy, sigma, a: noisy,
    "tv": tv,
    "nlm": nlm,
    "bm3d": bm3d,
    "sporco": sporco,
    "photographs": photographs,
    "trained": trained,
    "estimated": estimated,
    "by_channel": by_channel,
    "dictionary": dictionary,
}


def ssim(a: Tensor, b: Tensor) -> float:
    """Wang et al. 2004, the mean over the inside of pictures [C, H, W] from 0 to 1."""
    x = torch.arange(11, dtype=torch.float64) - 5
    window = torch.exp(-x.square() / (2 * 1.5**2))
    window = window / window.sum()

    def mean(values: Tensor) -> Tensor:
        return F.conv2d(
            F.conv2d(values[:, None], window.view(1, 1, 11, 1)), window.view(1, 1, 1, 11)
        )

    a, b = a.double(), b.double()
    ma, mb = mean(a), mean(b)
    va, vb, covariance = mean(a * a) - ma * ma, mean(b * b) - mb * mb, mean(a * b) - ma * mb
    c1, c2 = 0.01**2, 0.03**2
    top = (2 * ma * mb + c1) * (2 * covariance + c2)
    return float((top / ((ma * ma + mb * mb + c1) * (va + vb + c2))).mean())


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("archives", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sigmas", type=int, nargs="+", default=[15, 25, 50])
    parser.add_argument("--shifts", type=int, default=32)
    parser.add_argument("--held-out", type=int, choices=(31, 40))
    parser.add_argument("--model", type=Path)
    parser.add_argument("--learn", action="store_true", help="adapt the dictionary to each picture")
    parser.add_argument("--colour", action="store_true")
    a = parser.parse_args()
    for archive in a.archives:
        pictures = list(read(archive, "RGB" if a.colour else "L").values())
        chosen = held_out(len(pictures), a.held_out) if a.held_out else range(len(pictures))
        for sigma in a.sigmas:
            rows = []
            for i, number in enumerate(chosen):
                pixels = pictures[number].float() / 255
                clean = pixels.permute(2, 0, 1) if a.colour else pixels[None]
                random = torch.Generator().manual_seed(1000 * sigma + i)
                noisy = clean + sigma / 255 * torch.randn(clean.shape, generator=random)
                wall, processor = time.time(), time.process_time()
                result = METHODS[a.method](noisy, sigma / 255, a)
                seconds = time.time() - wall, time.process_time() - processor
                result = torch.as_tensor(result).float().clamp(0, 1)
                rows.append((psnr(result, clean), ssim(result, clean), *seconds))
            names = ("psnr", "ssim", "seconds", "processor_seconds")
            row = {
                "method": a.method,
                "data": Path(archive).stem,
                "sigma": sigma,
                "pictures": len(rows),
            }
            row |= (
                {"shifts": a.shifts} if a.method in ("trained", "estimated", "by_channel") else {}
            )
            row |= {"colour": a.colour, "learn": a.learn, "device": DEVICE}
            row |= dict(zip(names, np.mean(rows, 0).round(4).tolist(), strict=True))
            row["each"] = [round(r[0], 2) for r in rows]
            with a.out.open("a") as results:
                print(json.dumps(row), file=results)
            print({k: v for k, v in row.items() if k != "each"}, flush=True)


if __name__ == "__main__":
    main()
