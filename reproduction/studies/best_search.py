"""Search for the best descriptors on validation images: models, descriptors and combinations, each
with its error.

    python -m reproduction.studies.best_search --data FOLDER --out FOLDER [--tiny] [--seconds S]

Everything is fitted to the first 50,000 training images and evaluated on the last 10,000; test
images are not read. The log of the one run, on an H200, is results/best.json, search. In that run
the parts of a combination were weighted before they were rounded to TF32 (now after): with 3, 5, 6,
7 or 9 parts the kernel had a relative error of 5e-4, and one fit failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import traceback
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import whatwhere as ww
from reproduction.deskew import deskew
from reproduction.studies.where_moments import mean_position, where_cells
from reproduction.svm.kernel_svm import solve
from reproduction.svm.virtual_samples import Move, moved
from whatwhere.classification.descriptors import cell_positions, pool_cells
from whatwhere.spec import EveryBatch, InferenceSpec, InputSpec, LineSearch, Phase, Recipe

BEGAN = time.monotonic()
FEW = [100, 300, 1000, 3000]
TINY = {}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def idx_file(path):
    raw = gzip.decompress(path.read_bytes())
    dims = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


# training and inference ---------------------------------------------------------------------------


def recipe_of(
    layers,
    kind="none",
    sigma=4.0,
    contrast=0.0,
    floor=0.1,
    steps=25,
    momentum=True,
    passes=(1, 1),
    lams=(2.0, 0.5),
    batch=1000,
    seed=0,
    test_lam=5.0,
    test_steps=25,
):
    model = ww.ModelSpec(
        layers=tuple(ww.LayerSpec(**layer) for layer in layers),
        input=InputSpec(kind=kind, sigma=sigma, contrast=contrast, contrast_floor=floor),
    )
    change = {
        str(k + 1): {
            "update": EveryBatch(),
            "epochs": passes[min(k, 1)],
            "cg_steps": 1,
            "inference": {
                "steps": steps,
                "step": LineSearch(momentum=momentum),
                "lam": lams[min(k, 1)],
            },
        }
        for k in range(len(layers))
    }
    return ww.override(
        Recipe.paper(model),
        {
            "batch_size": batch,
            "seed": seed,
            "learning": change,
            "inference": {"lam": test_lam, "steps": test_steps},
        },
    )


def train(recipe, v):
    start = time.perf_counter()
    run = ww.train(v.cpu(), recipe, options=ww.TrainingOptions(device=DEVICE))
    return (
        run.model.to(DEVICE),
        time.perf_counter() - start,
        [h.__dict__ if hasattr(h, "__dict__") else {} for h in run.history],
    )


def latents(model, v, spec, layer, batch=6000):
    """Batches of (p, theta of the layer)."""
    plan = (Phase(layer=layer, update_pooling=tuple(range(1, layer + 1))),)
    for i in range(0, len(v), batch):
        s = ww.infer(model, v[i : i + batch].to(DEVICE), spec, plan, batch_size=batch)
        yield s.features, s.latents.pooling_params[layer - 1]


def unit(x, eps=1e-12):
    return x / x.square().sum(-1, keepdim=True).sqrt().clamp(min=eps)


def patches(cells, patch, stride, cell, extent):
    rows, columns = (
        cell_positions(e, min(patch, e), stride, min(cell, patch, e)).to(cells.device)
        for e in extent
    )
    got = cells[:, :, rows[:, :, None, None], columns]
    return got.permute(0, 2, 4, 1, 3, 5).flatten(3)


def descriptor(
    p,
    theta,
    patch=6,
    stride=1,
    cell=3,
    stat="rms",
    power=1.0,
    where=0.0,
    floor=0.0,
    block=True,
    soft=0.0,
):
    """[N, B, H, W] → [N, D] of unit length."""
    q = p**power if power != 1 else p
    cells = pool_cells(q, stat, (min(cell, patch), min(cell, patch)))
    if where:
        side = (min(cell, patch),) * 2
        cells = torch.cat([cells, where * where_cells(p, mean_position(theta, 2), cells, side)], 1)
    got = patches(cells, patch, stride, cell, p.shape[2:])
    if block:
        length = got.square().sum(-1, keepdim=True).sqrt()
        if floor:  # patches with little in them stay small
            mean = length.mean((1, 2), keepdim=True)
            got = got / (length.square() + (floor * mean).square()).sqrt().clamp(min=1e-12)
        else:
            got = got / length.clamp(min=1e-12)
    return unit(got.flatten(1))


def describe(model, v, spec, layer, variants, batch=6000):
    """One inference, several descriptors: name → [N, D] half."""
    out = {name: [] for name in variants}
    for p, theta in latents(model, v, spec, layer, batch):
        for name, options in variants.items():
            out[name].append(descriptor(p, theta, **options).half())
    return {name: torch.cat(parts) for name, parts in out.items()}


# evaluation ---------------------------------------------------------------------------------------


def gram(parts, weights, rows, columns, chunk=6000):
    """Σ w_i X_i X_iᵀ between two sets of rows: rows × columns."""
    torch.set_float32_matmul_precision("high")
    n, m = len(parts[0][rows]), len(parts[0][columns])
    K = torch.zeros(n, m, device=DEVICE)
    total = sum(weights)
    for X, w in zip(parts, weights, strict=False):
        # half precision is exact in TF32; a weight would not be
        right, left = (
            X[columns].float().T,
            X[rows],
        )
        for i in range(0, n, chunk):
            K[i : i + chunk].add_(left[i : i + chunk].float() @ right, alpha=w / total)
        del right
    torch.set_float32_matmul_precision("highest")
    return K


def targets(y):
    return torch.from_numpy(np.where(y[:, None] == np.arange(10), 1.0, -1.0)).to(DEVICE)


def errors_by_C(K, y, train, grid=(3.0, 30.0), y_eval=None):
    """Kernel rows [N, n] whose first n are the training images; error on the rest for every C."""
    t, a, found = targets(y[:train]), None, {}
    y_eval = y[train:] if y_eval is None else y_eval
    for C in grid:
        a = solve(K[:train], t, C, a)
        f = K[train:] @ a.float()
        found[C] = float((f.argmax(1).cpu().numpy() != y_eval).mean())
    return found, a, f


def few_errors(K, y, train, counts=(100, 300, 1000, 3000), draws=3, C=10.0):
    found = {}
    for count in counts:
        scores = []
        for seed in range(draws):
            rows = torch.from_numpy(ww.data.splits.few_labels(y[:train], count, seed)).to(DEVICE)
            a = solve(K[rows][:, rows].contiguous(), targets(y[rows.cpu().numpy()]), C)
            f = K[train:][:, rows] @ a.float()
            scores.append(float((f.argmax(1).cpu().numpy() != y[train:]).mean()))
        found[count] = float(np.mean(scores))
    return found


class Log:
    def __init__(self, out, seconds, name="best_search.json"):
        self.out, self.seconds, self.name, self.rows = out, seconds, name, []

    def left(self):
        return self.seconds - (time.monotonic() - BEGAN)

    def put(self, **row):
        row["at"] = round(time.monotonic() - BEGAN, 1)
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        (self.out / self.name).write_text(json.dumps(self.rows, indent=1) + "\n")


class Steps:
    """What is left out when time is short, and logged when it fails."""

    def step(self, need, function, *args, **kwargs):
        """Call a function if the seconds it needs are left; what fails is logged, and the search
        goes on."""
        if self.log.left() < need and not TINY:
            return self.log.put(data=self.name, skipped=f"{function.__name__} {args[:1]}")
        try:
            return function(*args, **kwargs)
        except Exception:
            self.log.put(
                data=self.name,
                failed=f"{function.__name__} {args[:1]}",
                error=traceback.format_exc()[-1500:],
            )
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            return None


class Search(Steps):
    """The parts of one data set and what they are worth."""

    def __init__(self, name, v, y, train, log):
        self.name, self.v, self.y, self.train, self.log = name, v, y, train, log
        self.parts, self.best = {}, {}

    def model(self, name, options, descriptions, images=None, extra_specs=()):
        """Train and describe: descriptions is [(layer, {part: descriptor options})]."""
        v = self.v if images is None else images
        recipe = recipe_of(**{**options, **TINY})
        model, seconds, history = train(recipe, v[: self.train])
        torch.cuda.synchronize() if DEVICE == "cuda" else None
        ww.save(model.to("cpu"), self.log.out / f"best_{self.name}_{name}.safetensors")
        nonzeros = [h.get("nonzeros") for h in history]
        dead = [h.get("dead_maps") for h in history]
        for layer, variants in descriptions:
            start = time.perf_counter()
            got = describe(
                model, v, recipe.inference, layer, {f"{name}/{k}": o for k, o in variants.items()}
            )
            torch.cuda.synchronize() if DEVICE == "cuda" else None
            self.parts.update(got)
            self.log.put(
                data=self.name,
                model=name,
                options={k: str(o) for k, o in options.items()},
                layer=layer,
                training_seconds=round(seconds, 2),
                describing_seconds=round(time.perf_counter() - start, 2),
                nonzeros=nonzeros[-1:],
                dead=dead[-1:],
                parts={k: x.shape[1] for k, x in got.items()},
            )
        return model, recipe

    def score(self, names, weights=None, few=False, grid=(3.0, 30.0), keep=False):
        """The validation error of some parts side by side."""
        if missing := [n for n in names if n not in self.parts]:
            return self.log.put(data=self.name, skipped=f"score {names}: no {missing}")
        weights = weights or [1.0] * len(names)
        start = time.perf_counter()
        everything, training = slice(None), slice(0, self.train)
        K = gram([self.parts[n] for n in names], weights, everything, training).add_(1)
        found, a, _f = errors_by_C(K, self.y, self.train, grid)
        row = {
            "data": self.name,
            "parts": names,
            "weights": weights,
            "error": found,
            "best": min(found.values()),
            "columns": sum(self.parts[n].shape[1] for n in names),
            "support": int(a.ne(0).any(1).sum()),
            "seconds": round(time.perf_counter() - start, 2),
        }
        if few:
            row["few"] = few_errors(K, self.y, self.train, FEW)
        self.best[tuple(names)] = row["best"]
        self.log.put(**row)
        return (K, a) if keep else row["best"]

    def gaussian(self, names, widths=(0.5, 0.7, 1.0), grid=(10.0, 100.0)):
        """The same with a Gaussian kernel."""
        everything, training = slice(None), slice(0, self.train)
        K = gram([self.parts[n] for n in names], [1.0] * len(names), everything, training)
        for width in widths:
            start = time.perf_counter()
            G = ((K - 1) / width**2).exp_().add_(1)
            found, a, _f = errors_by_C(G, self.y, self.train, grid)
            self.log.put(
                data=self.name,
                kernel="gaussian",
                width=width,
                parts=names,
                error=found,
                best=min(found.values()),
                support=int(a.ne(0).any(1).sum()),
                seconds=round(time.perf_counter() - start, 2),
            )
            del G

    def drop(self, *names):
        for name in names:
            self.parts.pop(name, None)

    def greedy(self, start, rounds=3, few=False):
        """Add the part that helps most, while any does."""
        chosen = list(start)
        best = self.best.get(tuple(chosen)) or self.score(chosen)
        for _ in range(rounds):
            trials = {}
            for name in [n for n in self.parts if n not in chosen and not n.startswith("upright")]:
                if self.log.left() < 15:
                    break
                trials[name] = self.score([*chosen, name])
            if not trials or min(trials.values()) >= best:
                break
            name = min(trials, key=trials.get)
            chosen, best = [*chosen, name], trials[name]
        self.log.put(data=self.name, greedy=chosen, best=best)
        return chosen


MOVES = {
    "shifts": [Move(right=1), Move(right=-1), Move(down=1), Move(down=-1)],
    "turns": [Move(degrees=8.0), Move(degrees=-8.0)],
}


def virtual(search, model, recipe, layer, part, options, names):
    """The support vectors moved: the linear SVM refitted with them; one part only."""
    K, a = search.score([part], grid=(30.0,), keep=True)
    del K
    support = a.ne(0).any(1).cpu()
    y, train = search.y, search.train
    rows = support.nonzero()[:, 0]
    base = search.v[:train][rows]
    made, labels = [], []
    for kind in names:
        for move in MOVES[kind]:
            v = moved(base.to(DEVICE), move)
            made.append(describe(model, v, recipe.inference, layer, {"x": options})["x"])
            labels.append(y[:train][rows.numpy()])
        X = torch.cat([search.parts[part][:train][rows.to(DEVICE)], *made])
        labels_all = np.concatenate([y[:train][rows.numpy()], *labels, y[train:]])
        n = len(X)
        both = torch.cat([X, search.parts[part][train:]])
        G = gram([both], [1.0], slice(None), slice(0, n)).add_(1)
        found, _a2, _f = errors_by_C(G, labels_all, n, (3.0, 30.0))
        search.log.put(
            data=search.name,
            virtual=kind,
            part=part,
            samples=n,
            error=found,
            best=min(found.values()),
        )
        del G, both, X


PAPER = [{"maps": 16}, {"maps": 48, "fan_in": 8}]
WIDE = [{"maps": 32}, {"maps": 192, "fan_in": 16}]
HUGE = [{"maps": 64}, {"maps": 384, "fan_in": 32}]
COARSE = [{"maps": 32, "filter_size": 7}, {"maps": 192, "filter_size": 5, "fan_in": 16}]
ONOFF = {"kind": "onoff", "sigma": 4.0, "contrast": 1.0, "floor": 0.1}
TWO = {"2": {"patch": 6, "cell": 3}}
FIRST = {"1": {"patch": 9, "cell": 3, "stride": 2}}
LARGE = {"1": {"patch": 6, "cell": 3, "stride": 2}}


def shrunk(layers):
    return (
        [
            {**layer, "maps": 8, "fan_in": min(4, layer["fan_in"]) if "fan_in" in layer else None}
            for layer in layers
        ]
        if TINY
        else layers
    )


def mnist(s):
    done = s.step(40, s.model, "wide", {"layers": shrunk(WIDE)}, [(2, TWO), (1, FIRST)])
    s.step(20, s.score, ["wide/2"], few=True)
    s.step(40, s.model, "onoff", dict(layers=shrunk(WIDE), **ONOFF), [(2, TWO), (1, FIRST)])
    s.step(20, s.score, ["onoff/2"], few=True)
    s.step(20, s.score, ["wide/2", "onoff/2"], few=True)
    s.step(20, s.score, ["wide/2", "wide/1", "onoff/2", "onoff/1"])
    upright = deskew(s.v.to(DEVICE)).cpu()
    s.step(40, s.model, "upright", {"layers": shrunk(WIDE)}, [(2, TWO), (1, FIRST)], images=upright)
    s.step(20, s.score, ["upright/2"], few=True)
    s.step(
        40, s.model, "upright onoff", dict(layers=shrunk(WIDE), **ONOFF), [(2, TWO)], images=upright
    )
    s.step(20, s.score, ["upright/2", "upright onoff/2"], few=True)
    s.step(
        40,
        s.model,
        "large filters",
        {"layers": shrunk([{"maps": 64, "filter_size": 11}])},
        [(1, LARGE)],
    )
    s.step(20, s.score, ["wide/2", "onoff/2", "large filters/1"])
    s.step(40, s.model, "coarse", dict(layers=shrunk(COARSE), **ONOFF), [(2, TWO)])
    s.step(20, s.score, ["coarse/2"])
    s.step(20, s.score, ["wide/2", "onoff/2", "coarse/2"])
    # a small model: descriptors, where, inference
    small = s.step(
        40,
        s.model,
        "small",
        {"layers": PAPER},
        [
            (
                2,
                {
                    "2": {},
                    "2 where": {"where": 1.0},
                    "2 sqrt": {"power": 0.5},
                    "2 cell 2": {"cell": 2},
                },
            )
        ],
    )
    for part in ("2", "2 where", "2 sqrt", "2 cell 2"):
        s.step(30, s.score, [f"small/{part}"], few=part in ("2", "2 where"))
    if small:
        got = s.step(
            30,
            describe,
            small[0],
            s.v,
            InferenceSpec(lam=5.0, steps=3 if TINY else 50),
            2,
            {"small/2 T50": {}},
        )
        if got:
            s.parts.update(got)
            s.step(30, s.score, list(got))
            s.drop(*got)
    s.drop("small/2 where", "small/2 sqrt", "small/2 cell 2")
    return done


def fashion(s):
    contrast = {**ONOFF, "floor": 0.03}
    s.parts["pixels"] = unit(F.avg_pool2d(s.v, 2).flatten(1)).half().to(DEVICE)
    s.step(
        40,
        s.model,
        "onoff",
        dict(layers=shrunk(WIDE), **contrast),
        [(2, {**TWO, "2 cell 2": {"patch": 4, "cell": 2}, "2 sqrt": {"power": 0.5}}), (1, FIRST)],
    )
    for part in ("2", "2 cell 2", "2 sqrt"):
        s.step(30, s.score, [f"onoff/{part}"])
    s.step(30, s.score, ["onoff/2", "onoff/1"])
    s.step(30, s.score, ["onoff/2 cell 2", "onoff/1"])
    s.drop("onoff/2 sqrt")
    s.step(40, s.model, "wide", {"layers": shrunk(WIDE)}, [(2, TWO), (1, FIRST)])
    s.step(30, s.score, ["wide/2", "wide/1", "onoff/2", "onoff/1"])
    s.step(30, s.score, ["wide/2", "wide/1", "onoff/2", "onoff/1", "pixels"])
    s.step(
        40,
        s.model,
        "large filters",
        dict(layers=shrunk([{"maps": 64, "filter_size": 9}]), **contrast),
        [(1, LARGE)],
    )
    s.step(20, s.score, ["wide/2", "wide/1", "onoff/2", "onoff/1", "large filters/1"])
    s.step(
        40,
        s.model,
        "fine",
        {"layers": shrunk(WIDE), "kind": "onoff", "sigma": 2.0, "contrast": 1.0, "floor": 0.03},
        [(2, TWO), (1, FIRST)],
    )
    s.step(20, s.score, ["wide/2", "wide/1", "onoff/2", "onoff/1", "fine/2", "fine/1"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--seconds", type=float, default=290.0)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    log, searches = Log(given.out, given.seconds * 0.52), {}
    for name in ("mnist", "fashion-mnist"):
        v = torch.from_numpy(
            idx_file(given.data / name / "train-images-idx3-ubyte.gz").astype(np.float32) / 255
        )[:, None]
        y = idx_file(given.data / name / "train-labels-idx1-ubyte.gz").astype(np.int64)
        train = 50_000
        if given.tiny:
            v, y, train = v[:140], y[:140], 100
            FEW[:] = [30]
            TINY.update(steps=2, test_steps=2, batch=50)
        s = searches[name] = Search(name, v, y, train, log)
        if name == "mnist":
            wide = mnist(s)
        else:
            log.seconds = given.seconds * 0.85
            fashion(s)
    log.seconds = given.seconds
    s, f = searches["mnist"], searches["fashion-mnist"]
    singles = [n for n in ("wide/2", "onoff/2") if n in s.parts]
    s.step(25, s.gaussian, singles, widths=(0.5, 0.8), grid=(30.0,))
    if wide:
        s.step(30, virtual, s, *wide, 2, "wide/2", {}, ["shifts", "turns"])
    s.step(15, s.score, [n for n in s.parts if not n.startswith("upright")])
    f.step(15, f.score, list(f.parts))
    f.step(20, f.greedy, ["onoff/2", "onoff/1"], rounds=1)
    s.step(20, s.greedy, singles, rounds=2)


if __name__ == "__main__":
    main()
