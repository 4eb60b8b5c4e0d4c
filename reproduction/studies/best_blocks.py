"""Which models, side by side, describe images best: blocks of descriptors, combined through their
Gram matrices.

    python -m reproduction.studies.best_blocks --data FOLDER --out FOLDER --models FOLDER [--tiny]
    [--seconds S]

Models that the folder of models holds are not trained again.

A block is one layer of one model, a unit-length descriptor of every training image. Blocks side by
side, each with a weight, have the weighted mean of their Gram matrices, so that a combination costs
one SVM and no inference. Models and SVMs are fitted to the first 50,000 training images; errors are
those on the last 10,000, and, with less noise, those of leaving out one of the 50,000 at a time.
Test images are not read.

results/best.json, blocks, has the log of its run on an H200, and that of an earlier version,
which compared settings of inference and cells, without whitening but for one trial. What was left
out for lack of time is not in the logs.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

import whatwhere as ww
from reproduction.baselines import BASELINES
from reproduction.deskew import deskew
from reproduction.studies.best_search import (
    DEVICE,
    TINY,
    Log,
    Steps,
    descriptor,
    gram,
    idx_file,
    latents,
    recipe_of,
    targets,
    train,
    unit,
)
from reproduction.svm.kernel_svm import cholesky, solve
from whatwhere.data import Images, few_labels

NEAREST = (
    16_000  # training images that the SVM of a combination is fitted to: those nearest to a margin
)
FEW = 3000  # labels
STREAM = {"steps": 50, "momentum": False, "passes": (2, 2), "lams": (2.0, 1.0), "test_steps": 50}
SMALL = [{"maps": 16}, {"maps": 48, "fan_in": 8}]
MIDDLE = [{"maps": 32}, {"maps": 96, "fan_in": 16}]
STAGES = {
    "image": {},
    "sigma4": {"kind": "onoff", "sigma": 4.0, "contrast": 1.0},
    "sigma2": {"kind": "onoff", "sigma": 2.0, "contrast": 1.0},
}
PARTS = {2: {"2": {"patch": 6, "cell": 3}}, 1: {"1": {"patch": 9, "cell": 3, "stride": 2}}}
COARSE = {**PARTS, 1: {**PARTS[1], "1 cell 4": {"patch": 12, "cell": 4, "stride": 2}}}
SHARES = (1.0, 0.3, 3.0, 0.1)


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def leave_one_out(K, a, f, t, C):
    """The decision functions [n, K] of images that are left out one at a time, their support
    vectors unchanged.

    The solution is a_S = M⁻¹ t_S with M = K_SS + I / 2C; without image i its decision function
    there is t_i - a_i / (M⁻¹)_ii. An image that is no support vector changes nothing.
    """
    out = f.clone()
    for k in range(t.shape[1]):
        s = a[:, k].nonzero()[:, 0]
        system = K[s][:, s].double()
        system.diagonal().add_(1 / (2 * C))
        inverse = torch.cholesky_inverse(cholesky(system)).diagonal()
        out[s, k] = t[s, k] - a[s, k] / inverse
    return out


class Blocks(Steps):
    """The blocks of one data set, and the errors of their combinations."""

    def __init__(self, name, v, y, count, log, folder, nearest=NEAREST):
        self.name, self.v, self.y, self.count, self.log, self.folder = (
            name,
            v,
            y,
            count,
            log,
            folder,
        )
        self.nearest, self.near, self.models, self.rows, self.grams = nearest, None, {}, {}, {}

    def model(self, name, options, parts=PARTS, images=None):
        """Load a model, or train it, and add its blocks: {layer: {block: options of its
        descriptor}}."""
        v, file = (
            self.v if images is None else images,
            self.folder / f"{self.name} {name}.safetensors",
        )
        recipe = recipe_of(**{**STREAM, **options, **TINY})
        if file.is_file():
            self.models[name] = ww.load(str(file)).to(DEVICE)
        else:
            model, seconds, history = train(recipe, v[: self.count])
            ww.save(model.to("cpu"), file)
            self.log.put(
                data=self.name,
                model=name,
                options={**STREAM, **options},
                training_seconds=round(seconds, 2),
                nonzeros=[h.get("nonzeros") for h in history],
                dead=[h.get("dead_maps") for h in history],
            )
            self.models[name] = model
        self.describe(name, v, recipe.inference, parts)

    def describe(self, name, v, inference, parts=PARTS):
        """The blocks of a model."""
        start = time.perf_counter()
        for layer, variants in parts.items():
            made = {f"{name}/{k}": [] for k in variants}
            for p, theta in latents(self.models[name], v, inference, layer, 20 if TINY else 3000):
                for k, options in variants.items():
                    made[f"{name}/{k}"].append(descriptor(p, theta, **options).half())
            for k, rows in made.items():
                self.rows[k] = torch.cat(rows)
        sync()
        self.log.put(
            data=self.name,
            described=name,
            layers=list(parts),
            lam=inference.lam,
            steps=inference.steps,
            seconds=round(time.perf_counter() - start, 2),
        )

    def whiten(self, name, share):
        """A block, "NAME SHARE", whose columns are decorrelated over the training images, its rows
        of unit length.

        Variances are raised by `share` of their mean first, so that rare columns are not blown up.
        """
        start, x = time.perf_counter(), self.rows[name]
        mean = x[: self.count].float().mean(0)
        covariance = torch.zeros(len(mean), len(mean), device=DEVICE)
        for part in x[: self.count].split(6000):
            centred = part.float() - mean
            covariance.addmm_(centred.T, centred, alpha=1 / self.count)
        covariance.diagonal().add_(share * covariance.diagonal().mean())
        factor = cholesky(covariance)
        rows = [
            torch.linalg.solve_triangular(factor, (part.float() - mean).T, upper=False)
            for part in x.split(6000)
        ]
        self.rows[f"{name} {share:g}"] = torch.cat([unit(part.T).half() for part in rows])
        sync()
        self.log.put(
            data=self.name,
            whitened=name,
            share=share,
            seconds=round(time.perf_counter() - start, 2),
        )

    def join(self, name, parts):
        """One block of several, which can then be decorrelated from each other."""
        self.rows[name] = torch.cat([self.rows[part] for part in parts], 1)

    def baseline(self, name, method, images=None):
        """The rows of another method, its columns standardised over the training images."""
        start, v = time.perf_counter(), (self.v if images is None else images).numpy()
        sets = (Images(part, None, "") for part in (v[: self.count], v[self.count :]))
        rows = BASELINES[method]().describe(*sets)
        self.rows[name] = torch.cat([torch.from_numpy(part).to(DEVICE).half() for part in rows])
        self.log.put(
            data=self.name,
            described=name,
            baseline=method,
            seconds=round(time.perf_counter() - start, 2),
        )

    def choose_near(self, names, C=3.0):
        """The training images nearest to a margin when all are fitted: nearly all support vectors
        of other blocks."""
        n = self.count
        if n <= self.nearest:
            self.near = torch.arange(n, device=DEVICE)
            return
        K = gram([self.rows[k] for k in names], [1.0] * len(names), slice(0, n), slice(0, n)).add_(
            1
        )
        t = targets(self.y[:n])
        a = solve(K, t, C)
        margin = (t * (K @ a.float()).double()).amin(1)
        self.near = margin.argsort()[: self.nearest].sort().values
        self.log.put(
            data=self.name,
            near=names,
            images=self.nearest,
            C=C,
            support=int(a.ne(0).any(1).sum()),
            farthest=round(float(margin[self.near].max()), 3),
        )

    def gram_of(self, name):
        """Gram matrix of the nearest training images and, below them, of the validation images
        with these."""
        if name not in self.grams:
            x = self.rows[name]
            some = torch.cat([x[: self.count][self.near], x[self.count :]])
            self.grams[name] = gram([some], [1.0], slice(None), slice(0, len(self.near)))
        return self.grams[name]

    def kernel(self, weights, width=None):
        total = sum(weights.values())
        K = torch.zeros_like(self.gram_of(next(iter(weights))))
        for name, w in weights.items():
            K.add_(self.gram_of(name), alpha=w / total)
        if width:
            K.sub_(1).mul_(1 / width**2).exp_()
        return K.add_(1)

    def score(self, weights, grid=(30.0,), width=None, few=False):
        """Validation error and leave-one-out error of blocks side by side, for every C."""
        weights = dict.fromkeys(weights, 1.0) if not isinstance(weights, dict) else weights
        if missing := [k for k in weights if k not in self.rows]:
            self.log.put(data=self.name, skipped=f"score {list(weights)}: no {missing}")
            return None
        start, n = time.perf_counter(), len(self.near)
        K, near = self.kernel(weights, width), self.near.cpu().numpy()
        y, y_eval, t, a, errors, loo, loss = (
            self.y[near],
            self.y[self.count :],
            targets(self.y[near]),
            None,
            {},
            {},
            {},
        )
        for C in grid:
            a = solve(K[:n], t, C, a)
            f = (K @ a.float()).double()
            errors[C] = int((f[n:].argmax(1).cpu().numpy() != y_eval).sum())
            left_out = leave_one_out(K[:n], a, f[:n], t, C)
            loo[C] = int((left_out.argmax(1).cpu().numpy() != y).sum())
            scores = torch.cat([left_out, f[n:]])
            true = torch.from_numpy(np.concatenate([y, y_eval])).to(DEVICE)[:, None]
            own = scores.gather(1, true)[:, 0]
            other = scores.scatter(1, true, -torch.inf).amax(1)
            loss[C] = round(float((1 - (own - other)).clamp(min=0).square().sum()), 1)
        row = {
            "data": self.name,
            "blocks": weights,
            "width": width,
            "errors": errors,
            "left_out_errors": loo,
            "left_out_loss": loss,
            "support": int(a.ne(0).any(1).sum()),
            "columns": sum(self.rows[k].shape[1] for k in weights),
        }
        del K
        if few:
            row["few"] = self.few(weights)
        row["seconds"] = round(time.perf_counter() - start, 2)
        self.log.put(**row)
        return min(loss.values())

    def few(self, weights, grid=(1.0, 10.0)):
        """Validation errors in % with few labels, one draw: {C: error}."""
        parts, count = [self.rows[k] for k in weights], FEW if not TINY else 30
        drawn = few_labels(self.y[: self.count], count, 0)
        rows = torch.from_numpy(np.concatenate([drawn, np.arange(self.count, len(self.y))])).to(
            DEVICE
        )
        K = gram(
            [x[rows] for x in parts], list(weights.values()), slice(None), slice(0, count)
        ).add_(1)
        solved = {C: solve(K[:count], targets(self.y[drawn]), C) for C in grid}
        predicted = {C: (K[count:] @ a.float()).argmax(1).cpu().numpy() for C, a in solved.items()}
        return {
            C: round(100 * float((p != self.y[self.count :]).mean()), 2)
            for C, p in predicted.items()
        }

    def check(self, weights, grid=(30.0,), width=None):
        """The validation error with all training images, not only the nearest."""
        start, n = time.perf_counter(), self.count
        K = gram([self.rows[k] for k in weights], list(weights.values()), slice(None), slice(0, n))
        K = K.sub_(1).mul_(1 / width**2).exp_().add_(1) if width else K.add_(1)
        t, a, errors = targets(self.y[:n]), None, {}
        for C in grid:
            a = solve(K[:n], t, C, a)
            errors[C] = int(((K[n:] @ a.float()).argmax(1).cpu().numpy() != self.y[n:]).sum())
        self.log.put(
            data=self.name,
            all_images=weights,
            width=width,
            errors=errors,
            support=int(a.ne(0).any(1).sum()),
            seconds=round(time.perf_counter() - start, 2),
        )

    def drop(self, *names):
        for name in names:
            self.rows.pop(name, None)
            self.grams.pop(name, None)


def pairs(*models, layers=("2", "1")):
    return [f"{model}/{layer}" for model in models for layer in layers]


def white(names, share):
    return [f"{name} {share:g}" for name in names]


def best_share(s, groups, grid, shares=SHARES):
    """Whiten with every share, score every group of blocks; the share with the lowest loss of the
    last group."""
    found = {}
    for share in shares:
        for name in dict.fromkeys(name for group in groups for name in group):
            s.step(5, s.whiten, name, share)
        losses = [s.step(5, s.score, white(group, share), grid) for group in groups]
        if losses[-1] is not None:
            found[share] = losses[-1]
        if share != 1.0 and found and min(found, key=found.get) != share:
            s.drop(*[name for group in groups for name in white(group, share)])
    return min(found, key=found.get) if found else 1.0


def mnist(s):
    up, stages, small = deskew(s.v.to(DEVICE)).cpu(), ("image", "sigma4"), {"layers": SMALL}
    for view, images in (("up ", up), ("", None)):
        for stage in stages:
            s.step(5, s.model, f"{view}{stage}", {**small, **STAGES[stage]}, COARSE, images)
    plain, upright = pairs(*stages), pairs(*[f"up {stage}" for stage in stages])
    for name in (*plain, *upright):
        s.step(5, s.whiten, name, 1.0)
    s.step(5, s.choose_near, white([*plain, *upright], 1.0), 1.0)
    share = best_share(s, (plain, upright, [*plain, *upright]), (0.3, 1.0, 3.0, 10.0))
    for width in (0.6, 0.8, 1.0, 1.3):
        s.step(5, s.score, white([*plain, *upright], share), (3.0, 30.0), width)
    for width in (0.7, 1.0):
        s.step(5, s.score, white(plain, share), (3.0, 30.0), width)
    coarse = pairs(*stages, *[f"up {stage}" for stage in stages], layers=("2", "1 cell 4"))
    for name in coarse[1::2]:
        s.step(5, s.whiten, name, share)
    for names in (coarse[4:], coarse, [*plain, *upright, *coarse[1::2]]):
        s.step(5, s.score, white(names, share), (1.0, 3.0))
    peers(s, up)
    for name, names in (("joined up", upright), ("joined", [*plain, *upright])):
        s.step(10, s.join, name, names)
        s.step(10, s.whiten, name, share)
        s.step(5, s.score, white([name], share), (0.3, 1.0, 3.0))
        s.drop(name, *white([name], share))
    s.step(8, s.check, dict.fromkeys(white([*plain, *upright], share), 1.0), (1.0,))
    s.step(8, s.check, dict.fromkeys(white([*plain, *upright], share), 1.0), (30.0,), 1.0)
    s.step(5, s.score, white([*plain, *upright], share), (1.0,), few=True)
    s.share, s.up = share, up


def peers(s, up):
    """Other methods, whitened as ours."""
    for method in ("scattering", "k-means"):
        names = [method, f"up {method}"]
        for name, images in zip(names, (None, up), strict=True):
            s.step(5, s.baseline, name, method, images)
            for share in (0.1, 1.0) if method == "scattering" else (1.0,):
                s.step(5, s.whiten, name, share)
                s.step(5, s.score, white([name], share), (0.3, 1.0, 3.0))
                s.step(5, s.score, white([name], share), (10.0,), 1.0)
            s.step(5, s.whiten, name, 0.01)
            s.step(5, s.score, white([name], 0.01), (0.3, 1.0, 3.0))
        s.step(5, s.score, white(names, 1.0), (0.3, 1.0, 3.0))
        s.step(5, s.score, white(names, 1.0), (10.0,), 1.0)


def more(s):
    """A further model, whitened next to the others."""
    s.step(20, s.model, "up sigma2", {"layers": SMALL, **STAGES["sigma2"]}, images=s.up)
    added = pairs("up sigma2")
    for block in added:
        s.step(4, s.whiten, block, s.share)
    for names in (
        pairs("up image", "up sigma4"),
        pairs("image", "sigma4", "up image", "up sigma4"),
    ):
        s.step(4, s.score, white([*names, *added], s.share), (1.0, 3.0))


def fashion(s):
    s.near = torch.arange(s.count, device=DEVICE)
    names, parts = [], {2: {**PARTS[2], "2 cell 2": {"patch": 4, "cell": 2}}, 1: PARTS[1]}
    for stage in ("sigma4", "image", "sigma2"):
        s.step(
            8 if stage != "sigma2" else 30,
            s.model,
            stage,
            {"layers": MIDDLE, **STAGES[stage], "floor": 0.03},
            parts,
        )
        names.append(stage)
        if stage == "sigma4" or stage not in s.models:
            continue
        for layer in ("2", "2 cell 2"):
            blocks = pairs(*names, layers=(layer, "1"))
            s.step(4, s.score, blocks, (10.0,))
            best_share(s, (blocks,), (0.3, 1.0), (1.0, 3.0) if layer == "2" else (1.0,))
            s.step(4, s.score, white(blocks, 1.0), (3.0,), 1.0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=145.0)
    given = parser.parse_args()
    for folder in (given.out, given.models):
        folder.mkdir(parents=True, exist_ok=True)
    # the rest is for Fashion-MNIST
    log, searches = (
        Log(given.out, given.seconds - 45, "best_blocks.json"),
        {},
    )
    # Fashion-MNIST: 20,000 images to learn from are enough for comparisons, since most are support
    # vectors
    for name, search, first in (("mnist", mnist, 50_000), ("fashion-mnist", fashion, 20_000)):
        v = torch.from_numpy(
            idx_file(given.data / name / "train-images-idx3-ubyte.gz").astype(np.float32) / 255
        )
        y = idx_file(given.data / name / "train-labels-idx1-ubyte.gz").astype(np.int64)
        rows, count, nearest = np.r_[:first, 50_000:60_000], first, NEAREST
        if given.tiny:
            rows, count, nearest = np.arange(140), 100, 80
            TINY.update(
                steps=2, test_steps=2, batch=50, layers=[{"maps": 4}, {"maps": 6, "fan_in": 2}]
            )
        searches[name] = Blocks(name, v[rows, None], y[rows], count, log, given.models, nearest)
        search(searches[name])
        log.seconds = given.seconds
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
    more(searches["mnist"])


if __name__ == "__main__":
    main()
