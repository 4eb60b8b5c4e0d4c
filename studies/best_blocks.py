"""Which models, side by side, describe images best: blocks of descriptors, combined through their Gram matrices.

    PYTHONPATH=src python3 studies/best_blocks.py --data FOLDER --out FOLDER --models FOLDER [--tiny] [--seconds S]

A block is one layer of one model, a unit-length descriptor of every training image. Blocks side by side, each with a
weight, have the weighted mean of their Gram matrices, so that a combination costs one SVM and no inference. Models and
SVMs are fitted to the first 50,000 training images; errors are those on the last 10,000, and, with less noise, those
of leaving out one of the 50,000 at a time. Test images are not read. The log of the one run is
studies/results/best_blocks.json.
"""

from __future__ import annotations

import argparse
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from best_search import DEVICE, TINY, Log, descriptor, gram, idx_file, latents, recipe_of, targets, train, unit

import whatwhere as ww
from whatwhere.classification.kernel_svm import cholesky, solve
from whatwhere.data.deskew import deskew
from whatwhere.data.splits import few_labels
from whatwhere.spec import InferenceSpec

NEAREST = 16_000  # training images that the SVM of a combination is fitted to: those nearest to a margin
FEW = (100, 300, 1000, 3000)
STREAM = {"steps": 50, "momentum": False, "passes": (2, 2), "lams": (2.0, 1.0), "test_steps": 50}
SMALL = [{"maps": 16}, {"maps": 48, "fan_in": 8}]
MIDDLE = [{"maps": 32}, {"maps": 96, "fan_in": 16}]
WIDE = [{"maps": 32}, {"maps": 192, "fan_in": 16}]
STAGES = {
    "image": {},
    "sigma4": {"kind": "onoff", "sigma": 4.0, "contrast": 1.0},
    "sigma2": {"kind": "onoff", "sigma": 2.0, "contrast": 1.0},
    "sigma1": {"kind": "onoff", "sigma": 1.0, "contrast": 1.0},
}
PARTS = {2: {"2": {"patch": 6, "cell": 3}}, 1: {"1": {"patch": 9, "cell": 3, "stride": 2}}}


INFERENCES = {"T5": {"steps": 5}, "T15": {"steps": 15}, "lam 1": {"lam": 1.0}, "lam 20": {"lam": 20.0}}

VARIANTS = {
    2: {"2 cell 2": {"patch": 4, "cell": 2}, "2 cell 4": {"patch": 8, "cell": 4}, "2 max": {"stat": "max"}},
    1: {
        "1 cell 2": {"patch": 6, "cell": 2, "stride": 2},
        "1 cell 4": {"patch": 12, "cell": 4, "stride": 2},
        "1 max": {"patch": 9, "cell": 3, "stride": 2, "stat": "max"},
    },
}


def sync():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def leave_one_out(K, a, f, t, C):
    """The decision functions [n, K] of images that are left out one at a time, their support vectors unchanged.

    The solution is a_S = M⁻¹ t_S with M = K_SS + I / 2C; without image i its decision function there is
    t_i - a_i / (M⁻¹)_ii. An image that is no support vector changes nothing.
    """
    out = f.clone()
    for k in range(t.shape[1]):
        s = a[:, k].nonzero()[:, 0]
        system = K[s][:, s].double()
        system.diagonal().add_(1 / (2 * C))
        inverse = torch.cholesky_inverse(cholesky(system)).diagonal()
        out[s, k] = t[s, k] - a[s, k] / inverse
    return out


class Blocks:
    """The blocks of one data set, and the errors of their combinations."""

    def __init__(self, name, v, y, count, log, folder, nearest=NEAREST):
        self.name, self.v, self.y, self.count, self.log, self.folder = name, v, y, count, log, folder
        self.nearest, self.near, self.models, self.rows, self.grams, self.scores = nearest, None, {}, {}, {}, {}

    def step(self, need, function, *args, **kwargs):
        if self.log.left() < need and not TINY:
            return self.log.put(data=self.name, skipped=f"{function.__name__} {args[:1]}")
        try:
            return function(*args, **kwargs)
        except Exception:
            self.log.put(data=self.name, failed=f"{function.__name__} {args[:1]}", error=traceback.format_exc()[-1500:])
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            return None

    def model(self, name, options, parts=PARTS, images=None):
        """Train a model and add its blocks: {layer: {block: options of its descriptor}}."""
        v = self.v if images is None else images
        recipe = recipe_of(**{**STREAM, **options, **TINY})
        model, seconds, history = train(recipe, v[: self.count])
        ww.save(model.to("cpu"), self.folder / f"{self.name} {name}.safetensors")
        self.log.put(data=self.name, model=name, options={**STREAM, **options}, training_seconds=round(seconds, 2),
                     nonzeros=[h.get("nonzeros") for h in history],
                     dead=[h.get("dead_maps") for h in history])  # fmt: skip
        self.models[name] = model
        self.describe(name, v, recipe.inference, parts)

    def describe(self, name, v, inference, parts=PARTS, model=""):
        """The blocks of a trained model: its own, unless another one is named."""
        start = time.perf_counter()
        for layer, variants in parts.items():
            made = {f"{name}/{k}": [] for k in variants}
            for p, theta in latents(self.models[model or name], v, inference, layer, 20 if TINY else 3000):
                for k, options in variants.items():
                    made[f"{name}/{k}"].append(descriptor(p, theta, **options).half())
            for k, rows in made.items():
                self.rows[k] = torch.cat(rows)
        sync()
        self.log.put(data=self.name, described=name, layers=list(parts), lam=inference.lam, steps=inference.steps,
                     seconds=round(time.perf_counter() - start, 2))  # fmt: skip

    def whiten(self, name, share, suffix="white"):
        """A block whose columns are decorrelated over the training images, and its rows of unit length again.

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
        rows = [torch.linalg.solve_triangular(factor, (part.float() - mean).T, upper=False) for part in x.split(6000)]
        self.rows[f"{name} {suffix}"] = torch.cat([unit(part.T).half() for part in rows])
        sync()
        self.log.put(data=self.name, whitened=name, share=share, seconds=round(time.perf_counter() - start, 2))

    def choose_near(self, names, C=3.0):
        """The training images nearest to a margin when all are fitted: nearly all support vectors of other blocks."""
        n = self.count
        if n <= self.nearest:
            self.near = torch.arange(n, device=DEVICE)
            return
        K = gram([self.rows[k] for k in names], [1.0] * len(names), slice(0, n), slice(0, n)).add_(1)
        t = targets(self.y[:n])
        a = solve(K, t, C)
        margin = (t * (K @ a.float()).double()).amin(1)
        self.near = margin.argsort()[: self.nearest].sort().values
        self.log.put(data=self.name, near=names, images=self.nearest, C=C, support=int(a.ne(0).any(1).sum()),
                     farthest=round(float(margin[self.near].max()), 3))  # fmt: skip

    def gram_of(self, name):
        """Gram matrix of the nearest training images and, below them, of the validation images with these."""
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
        y, y_eval, t, a, errors, loo, loss = self.y[near], self.y[self.count :], targets(self.y[near]), None, {}, {}, {}
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
        row = {"data": self.name, "blocks": weights, "width": width, "errors": errors, "left_out_errors": loo,
               "left_out_loss": loss, "support": int(a.ne(0).any(1).sum()),
               "columns": sum(self.rows[k].shape[1] for k in weights)}  # fmt: skip
        del K
        if few:
            row["few"] = self.few(weights)
        row["seconds"] = round(time.perf_counter() - start, 2)
        self.log.put(**row)
        best = min(loo[C] + errors[C] for C in grid)
        self.scores[(tuple(sorted(weights.items())), width)] = best
        return best

    def few(self, weights, grid=(10.0, 100.0), draws=3):
        """Validation errors in % with few labels: {count: {C: mean over draws}}."""
        found, parts, w = {}, [self.rows[k] for k in weights], list(weights.values())
        for count in FEW if not TINY else (30,):
            means = dict.fromkeys(grid, 0.0)
            for seed in range(draws):
                drawn = few_labels(self.y[: self.count], count, seed)
                rows = torch.from_numpy(np.concatenate([drawn, np.arange(self.count, len(self.y))])).to(DEVICE)
                K = gram([x[rows] for x in parts], w, slice(None), slice(0, count)).add_(1)
                for C in grid:
                    a = solve(K[:count], targets(self.y[drawn]), C)
                    wrong = (K[count:] @ a.float()).argmax(1).cpu().numpy() != self.y[self.count :]
                    means[C] += 100 * float(wrong.mean()) / draws
            found[count] = {C: round(m, 2) for C, m in means.items()}
        return found

    def check(self, weights, grid=(30.0,), width=None):
        """The validation error with all training images, not only the nearest."""
        start, n = time.perf_counter(), self.count
        K = gram([self.rows[k] for k in weights], list(weights.values()), slice(None), slice(0, n))
        K = K.sub_(1).mul_(1 / width**2).exp_().add_(1) if width else K.add_(1)
        t, a, errors = targets(self.y[:n]), None, {}
        for C in grid:
            a = solve(K[:n], t, C, a)
            errors[C] = int(((K[n:] @ a.float()).argmax(1).cpu().numpy() != self.y[n:]).sum())
        self.log.put(data=self.name, all_images=weights, width=width, errors=errors, support=int(a.ne(0).any(1).sum()),
                     seconds=round(time.perf_counter() - start, 2))  # fmt: skip

    def greedy(self, start, candidates, C=30.0, width=None, rounds=4, need=20):
        """Add the block, or double the weight of one, that lowers the errors most, while any does."""
        chosen = dict(start)
        best = self.score(chosen, (C,), width)
        for _ in range(rounds):
            trials = {}
            for name in candidates:
                if self.log.left() < need and not TINY:
                    break
                weights = {**chosen, name: chosen.get(name, 0.0) + 1.0}
                found = self.score(weights, (C,), width)
                if found is not None:
                    trials[name] = found
            if not trials or min(trials.values()) >= best:
                break
            name = min(trials, key=trials.get)
            chosen[name], best = chosen.get(name, 0.0) + 1.0, trials[name]
        self.log.put(data=self.name, greedy=chosen, width=width, best=best)
        return chosen

    def drop(self, *names):
        for name in names:
            self.rows.pop(name, None)
            self.grams.pop(name, None)


def pairs(*models, layers=("2", "1")):
    return [f"{model}/{layer}" for model in models for layer in layers]


def widths_of(s, names, widths, grid=(30.0,)):
    for width in widths:
        s.step(5, s.score, names, grid, width)


def mnist(s):
    grid, up = (10.0, 30.0, 100.0), deskew(s.v.to(DEVICE)).cpu()
    small, middle = {"layers": SMALL}, {"layers": MIDDLE}
    four = pairs("image", "sigma4", "up image", "up sigma4")
    for view, images in (("", None), ("up ", up)):
        for stage in ("image", "sigma4"):
            s.step(30, s.model, f"{view}{stage}", {**small, **STAGES[stage]}, images=images)
            if s.near is None:
                s.step(20, s.choose_near, pairs("image"))
            s.step(10, s.score, pairs(f"{view}{stage}", layers=("2",)), grid)
            s.step(10, s.score, pairs(f"{view}{stage}"), grid, few=True)
        s.step(10, s.score, pairs(f"{view}image", f"{view}sigma4"), grid, few=True)
    s.step(10, s.score, four, grid, few=True)
    for label, changes in INFERENCES.items():
        inference = InferenceSpec(**{"lam": 5.0, "steps": 50} | ({"steps": 2} if TINY else changes))
        s.step(10, s.describe, f"up image {label}", up, inference, model="up image")
        s.step(10, s.score, pairs(f"up image {label}"), (30.0,), few=True)
        s.step(10, s.score, pairs("up image", f"up image {label}"), (30.0,))
        s.drop(*pairs(f"up image {label}"))
    s.step(10, s.describe, "up image", up, InferenceSpec(lam=5.0, steps=2 if TINY else 50), VARIANTS)
    for layer, other in ((2, "1"), (1, "2")):
        for part in VARIANTS[layer]:
            s.step(10, s.score, [f"up image/{part}", f"up image/{other}"], (30.0,), few=True)
            s.drop(f"up image/{part}")
    for name in pairs("up image", "up sigma4"):
        s.step(10, s.whiten, name, 1.0)
    s.step(10, s.score, [f"{k} white" for k in pairs("up image", "up sigma4")], (1.0, 10.0), few=True)
    widths_of(s, pairs("up image", "up sigma4"), (0.25, 0.35, 0.5))
    widths_of(s, [f"{k} white" for k in pairs("up image", "up sigma4")], (0.7,))
    s.drop(*[f"{k} white" for k in pairs("up image", "up sigma4")])
    widths_of(s, four, (0.35,))
    s.step(60, s.model, "up image long", {**small, "passes": (3, 5)}, images=up)
    s.step(10, s.score, pairs("up image long"), (30.0,), few=True)
    for view, images in (("up ", up), ("", None)):
        for stage in ("image", "sigma4"):
            s.step(60, s.model, f"{view}{stage} 96", {**middle, **STAGES[stage]}, images=images)
            s.step(10, s.score, pairs(f"{view}{stage} 96"), (30.0,), few=True)
        s.step(10, s.score, pairs(f"{view}image 96", f"{view}sigma4 96"), grid, few=True)
        s.step(10, s.score, pairs(f"{view}image", f"{view}sigma4", f"{view}image 96", f"{view}sigma4 96"))
        s.step(40, s.model, f"{view}sigma2", {**small, **STAGES["sigma2"]}, images=images)
        s.step(10, s.score, pairs(f"{view}sigma2"))
        s.step(10, s.score, pairs(f"{view}image", f"{view}sigma4", f"{view}sigma2"), grid, few=True)
    s.step(10, s.score, pairs("image 96", "sigma4 96", "up image 96", "up sigma4 96"), grid, few=True)
    core = [k for k in s.rows if k.split("/")[0] in s.models]
    upright, plain = [k for k in core if k.startswith("up ")], [k for k in core if not k.startswith("up ")]
    s.step(30, s.greedy, dict.fromkeys(pairs("up image", "up sigma4"), 1.0), core, rounds=3)
    s.step(30, s.greedy, dict.fromkeys(pairs("image", "sigma4"), 1.0), plain, rounds=2)
    for names in (upright, plain):
        widths_of(s, names, (0.35, 0.5))
        s.step(10, s.score, names, grid, few=True)
    for (weights, width), _ in sorted(s.scores.items(), key=lambda item: item[1])[:2]:
        s.step(20, s.check, dict(weights), (30.0,), width)


def fashion(s):
    s.near = torch.arange(min(20_000, s.count), device=DEVICE)  # enough for comparisons: most are support vectors
    names = []
    for stage in ("sigma4", "image", "sigma2"):
        options = {"layers": MIDDLE, **STAGES[stage], "floor": 0.03}
        parts = {
            2: {**PARTS[2], "2 cell 2": {"patch": 4, "cell": 2}},
            1: {**PARTS[1], "1 cell 2": {"patch": 8, "cell": 2, "stride": 4}},
        }
        s.step(20, s.model, stage, options, parts)
        names.append(stage)
        s.step(8, s.score, pairs(*names), (10.0,))
        s.step(8, s.score, pairs(*names, layers=("2 cell 2", "1")), (10.0,))
    s.step(8, s.score, pairs(*names, layers=("2 cell 2", "1 cell 2")), (10.0,))
    s.step(8, s.score, pairs(*names), (3.0,))
    s.step(25, s.check, dict.fromkeys(pairs(*names, layers=("2 cell 2", "1")), 1.0), (30.0,))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True, help="folder of the trained models")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=395.0)
    parser.add_argument("--fashion", type=float, default=90.0, help="of them for Fashion-MNIST")
    given = parser.parse_args()
    for folder in (given.out, given.models):
        folder.mkdir(parents=True, exist_ok=True)
    log = Log(given.out, given.seconds - given.fashion, "best_blocks.json")
    for name, search in (("mnist", mnist), ("fashion-mnist", fashion)):
        v = torch.from_numpy(idx_file(given.data / name / "train-images-idx3-ubyte.gz").astype(np.float32) / 255)[
            :, None
        ]
        y = idx_file(given.data / name / "train-labels-idx1-ubyte.gz").astype(np.int64)
        count, nearest = 50_000, NEAREST
        if given.tiny:
            v, y, count, nearest = v[:140], y[:140], 100, 80
            TINY.update(steps=2, test_steps=2, batch=50, layers=[{"maps": 4}, {"maps": 6, "fan_in": 2}])
        search(Blocks(name, v, y, count, log, given.models, nearest))
        if DEVICE == "cuda":
            torch.cuda.empty_cache()
        log.seconds = given.seconds


if __name__ == "__main__":
    main()
