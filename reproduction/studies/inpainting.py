"""Missing pixels of validation photographs, as they are and made grainy: what ships, without faint
detail, biharmonic.

    python -m reproduction.studies.inpainting cbsd432.tar --out FILE

The central 128 × 128 pixels of the first 16 photographs that `studies/denoiser.py` keeps for
validation. The last eight are blurred, have 0.6 times the contrast, and grain: white, or blurred
like that of film.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import spsolve

import whatwhere as ww
from reproduction.studies.denoiser import DEVICE, HELD_OUT, psnr, read
from whatwhere.restoration import fill

SIDE, MISSING = 128, (80, 50, 30)
# pixels by which a photograph is blurred, σ of the grain of 255, pixels by which the grain is
# blurred
GRAIN = {
    "white2": (1.5, 2.0, 0.0),
    "white4": (2.0, 4.0, 0.0),
    "corr2": (1.5, 2.0, 0.7),
    "corr3": (2.0, 3.0, 1.0),
}


def crops(archive: str) -> dict[str, np.ndarray]:
    """Pictures [128, 128] from 0 to 1 by name."""
    pictures, random = list(read(archive).values())[::HELD_OUT], np.random.default_rng(5)
    corners = [[(extent - SIDE) // 2 for extent in picture.shape] for picture in pictures]
    central = [
        p.numpy()[i : i + SIDE, j : j + SIDE] / 255
        for p, (i, j) in zip(pictures, corners, strict=True)
    ]
    found = {f"photo{i}": central[i] for i in range(8)}
    for i, (name, (blur, sigma, correlation)) in zip(range(8, 16, 2), GRAIN.items(), strict=True):
        for number in (i, i + 1):
            grain = gaussian_filter(random.standard_normal((SIDE, SIDE)), correlation)
            smooth = 0.5 + 0.6 * (gaussian_filter(central[number], blur) - 0.5)
            grainy = 255 * smooth + sigma * grain / (grain.std() if correlation else 1)
            found[f"{name}_{number}"] = grainy.round().clip(0, 255) / 255
    return {name: picture.astype(np.float32) for name, picture in found.items()}


def biharmonic(truth: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Gaps of the least squared Laplacian."""
    line = sp.diags(
        [np.ones(SIDE - 1), -np.r_[1, 2 * np.ones(SIDE - 2), 1], np.ones(SIDE - 1)], [-1, 0, 1]
    )
    laplacian = sp.kron(line, sp.eye(SIDE)) + sp.kron(sp.eye(SIDE), line)
    energy, gaps, filled = (
        (laplacian.T @ laplacian).tocsr(),
        ~known.ravel(),
        truth.ravel().astype(np.float64),
    )
    filled[gaps] = spsolve(energy[gaps][:, gaps].tocsc(), -energy[gaps][:, ~gaps] @ filled[~gaps])
    return filled.reshape(truth.shape).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("archive")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    denoiser, faint_detail, rows = ww.restoration.load_denoiser().to(DEVICE), fill.faint_detail, []
    for name, picture in crops(a.archive).items():
        for missing in MISSING:
            known = (
                np.random.default_rng([missing, sum(name.encode())]).random(picture.shape)
                >= missing / 100
            )
            truth, mask = torch.from_numpy(picture)[None, None], torch.from_numpy(known)[None, None]
            row = {"picture": name, "missing": missing}
            row["biharmonic"] = psnr(
                torch.from_numpy(biharmonic(picture, known)).clamp(0, 1), truth[0, 0]
            )
            for way, detail in (
                ("without", lambda removed, known: 0 * removed),
                ("share", faint_detail),
            ):
                fill.faint_detail = detail
                row[way] = psnr(
                    ww.restoration.inpaint(denoiser, truth * mask, mask).clamp(0, 1), truth
                )
            rows.append({k: v if isinstance(v, str) else round(v, 2) for k, v in row.items()})
            print(rows[-1], flush=True)
            a.out.write_text(json.dumps(rows) + "\n")


if __name__ == "__main__":
    main()
