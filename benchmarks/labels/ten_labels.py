"""Ten labels: which metric of small distortions and which graph classify best, with as few labels
as one of each class.

    python -m benchmarks.labels.ten_labels --data FOLDER --out FOLDER [--part search] [--seconds
    S] [--tiny]

Everything in `search` is chosen on validation images: the metric, the graph and the labels are
those of the first 50,000 training images, errors those on the last 10,000, which join the graph as
new rows. Rows are written to OUT/ten_labels_PART.jsonl as they are measured; what is there is not
measured again.

FOLDER holds mnist/, fashion-mnist/ (IDX, gzip) and omniglot.npz. kymatio, for the scattering
baseline, is optional.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import whatwhere as ww
from reproduction.deskew import deskew
from whatwhere.classification.descriptors import describe, unit_length
from whatwhere.classification.linear_svm import fit_svm
from whatwhere.classification.metric import Covariance, MetricSettings, distort, metric_of
from whatwhere.classification.neighbour_graph import connected_parts, symmetric_graph
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.poisson import grow_regions, solve_poisson
from whatwhere.classification.settings import Distortions
from whatwhere.data.images import few_labels
from whatwhere.spec.recipe import joint

BEGAN = time.monotonic()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RECIPE = Path(__file__).parents[2] / "reproduction" / "recipes" / "best.toml"
DRAWS, BATCH = 10, 5000
TINY = False


class Log:
    """Results as lines of JSON; a result that is there is not measured again, and what fails does
    not stop the rest."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file, self.seconds = file, seconds
        lines = file.read_text().splitlines() if file.exists() else []
        self.done = {json.loads(line)["name"] for line in lines}

    def left(self) -> float:
        return self.seconds - (time.monotonic() - BEGAN)

    def step(self, name: str, function, need: float = 5.0):
        """Measure: `function` returns a dict of results."""
        if name in self.done:
            return
        if self.left() < need:
            print(json.dumps({"skipped": name}), flush=True)
            return
        start = time.perf_counter()
        try:
            found = function()
        except Exception:
            print(json.dumps({"failed": name, "error": traceback.format_exc()[-2500:]}), flush=True)
            if DEVICE == "cuda":
                torch.cuda.empty_cache()
            return
        row = {
            "name": name,
            **found,
            "seconds": round(time.perf_counter() - start, 2),
            "at": round(-self.left() + self.seconds),
        }
        self.done.add(name)
        with self.file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)


# images and descriptors ---------------------------------------------------------------------------


def idx_file(path: Path) -> np.ndarray:
    raw = path.read_bytes()
    raw = lzma.decompress(raw) if raw.startswith(b"\xfd7zXZ") else gzip.decompress(raw)
    dims = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(dims)


def read(folder: Path, part: str) -> tuple[Tensor, np.ndarray]:
    v = torch.from_numpy(
        idx_file(folder / f"{part}-images-idx3-ubyte.gz").astype(np.float32) / 255
    )[:, None]
    y = idx_file(folder / f"{part}-labels-idx1-ubyte.gz").astype(np.int64)
    return (v[:400], y[:400]) if TINY else (v, y)


@dataclass(frozen=True)
class Describer:
    """Images → descriptors of some layers of a model, of images as they are or upright."""

    model: object
    layers: tuple[int, ...] = (2,)
    steps: int | str = 50
    upright: bool = False
    spec: object = None

    def __call__(self, v: Tensor) -> Tensor:
        v = v.to(DEVICE)
        v = deskew(v) if self.upright else v
        features = []
        for k in self.layers:
            if self.steps == "learned":
                solution = ww.infer(self.model, v, steps="learned", batch_size=len(v))
            else:
                inference = ww.InferenceSpec(lam=5.0, steps=2 if TINY else self.steps)
                solution = ww.infer(self.model, v, inference, joint(k), batch_size=len(v))
            features.append(solution.features)
        rows = describe(
            features, self.spec or ww.DescriptorSpec(stride=(2, 1)), self.layers
        ).float()
        return rows[:, ::20] if TINY else rows


def in_batches(function, v: Tensor, batch: int = BATCH) -> Tensor:
    return torch.cat([function(part).half() for part in v.split(batch)])


def stream_model(name: str, v: Tensor, folder: Path, layers, **stage):
    """A model learned in a stream, as recipes/best.toml has it; kept in a file."""
    file = folder / f"{name.replace(' ', '_')}.safetensors"
    if not file.exists():
        recipe = ww.override(ww.read_recipe(RECIPE), {"model": {"layers": layers, "input": stage}})
        if TINY:
            recipe = ww.override(recipe, {"learning": {"each": {"inference": {"steps": 3}}}})
        run = ww.train(v, recipe, options=ww.TrainingOptions(device=DEVICE))
        ww.save(run.model.to("cpu"), file)
    return ww.load(str(file)).to(DEVICE)


SMALL = [{"maps": 16}, {"maps": 48, "fan_in": 8}]
MIDDLE = [{"maps": 32}, {"maps": 96, "fan_in": 16}]


def scattering(shape=(28, 28)):
    """Images → scattering coefficients; kymatio 0.3 imports a function that SciPy has renamed."""
    import scipy.special

    if not hasattr(scipy.special, "sph_harm"):
        scipy.special.sph_harm = None
    from kymatio.torch import Scattering2D

    transform = Scattering2D(J=3, L=8, max_order=2, shape=shape).to(DEVICE)

    def rows(v: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat(
                [transform(part[:, 0].to(DEVICE).contiguous()).flatten(1) for part in v.split(2000)]
            )

    return rows


# the metric ---------------------------------------------------------------------------------------


class DenseCovariance(Covariance):
    """The same from all products: exact, and fast on a GPU."""

    def __init__(self, size: int) -> None:
        super().__init__(32 if TINY else size)
        self.products: Tensor | None = None

    def add(self, rows: Tensor) -> None:
        self.count += len(rows)
        self.squares += float(rows.square().sum(dtype=torch.float64))
        added = rows.T @ rows
        self.products = added if self.products is None else self.products.add_(added)

    def rows(self) -> Tensor:
        if self.factor is None:
            columns = len(self.products)
            size = min(self.size, columns)
            Q = torch.randn(
                columns, min(size + 64, columns), generator=torch.Generator().manual_seed(0)
            ).to(self.products)
            for _ in range(1 if TINY else 8):
                Q = torch.linalg.qr(self.products @ Q).Q
            values, vectors = torch.linalg.eigh((Q.T @ self.products @ Q).double())
            self.factor = (
                Q @ vectors.to(Q)[:, -size:] * values[-size:].clamp(min=0).sqrt().to(Q)
            ).T.contiguous()
            self.products = None
        return self.factor / self.count**0.5


@dataclass
class Moments:
    """What a metric is made from: the descriptors' covariance under distortions, their second
    moments, their mean."""

    within: Covariance
    total: Covariance
    mean: Tensor
    how: Distortions

    def metric(self, power: float = 0.0, **settings):
        """`power`: above 0 columns that vary most count more than they vary, below 0 less, at -1
        all the same."""
        metric = metric_of(self.within, self.total, self.mean, self.how, MetricSettings(**settings))
        weights = (metric.variances / metric.variances[0]).clamp(min=1e-7) ** (power / 2)
        return replace(metric, matrix=weights[:, None] * metric.matrix)


def within_of(function, v: Tensor, how: Distortions, directions: int = 512) -> Covariance:
    """The covariance of the descriptors of distorted copies."""
    within, generator = DenseCovariance(directions), torch.Generator().manual_seed(how.seed)
    for part in v.split(BATCH // 2):
        copies = torch.stack(
            [function(distort(part.to(DEVICE), how, generator)) for _ in range(how.copies)], 1
        )
        within.add(
            (
                (copies - copies.mean(1, keepdim=True)) * (how.copies / (how.copies - 1)) ** 0.5
            ).flatten(0, 1)
        )
    return within


def moments_of(
    function, x: Tensor, v: Tensor, how: Distortions, images: int = 10_000, size: int = 1024
) -> Moments:
    """From descriptors x of images v, of which some are distorted."""
    some = torch.linspace(0, len(v) - 1, min(images, len(v)), dtype=torch.float64).long()
    total = DenseCovariance(size)
    for part in x.split(4096):
        total.add(part.float())
    return Moments(within_of(function, v[some], how), total, x.float().mean(0), how)


# the graph and the SVM ----------------------------------------------------------------------------


def weights_of(squares: Tensor, found: Tensor, kind: str) -> Tensor:
    if kind == "own scale":  # Zelnik-Manor and Perona
        scale = squares[:, min(6, squares.shape[1] - 1)].sqrt()
        return (-squares / (scale[:, None] * scale[found]).clamp(min=1e-12)).exp()
    if kind == "cosine cubed":  # rows of unit length
        return (1 - squares / 2).clamp(min=1e-6) ** 3
    return torch.ones_like(squares) if kind == "one" else neighbour_weights(squares)


def joined(weights: Tensor, found: Tensor, rule: str) -> Tensor:
    """The graph by the rule 'either', 'mean' or 'mutual'; a row always keeps its nearest
    neighbour."""
    if rule == "either":
        return symmetric_graph(weights, found)
    count, k = found.shape
    rows = torch.arange(count, device=found.device).repeat_interleave(k)
    if rule == "mutual":
        keys, back = rows * count + found.flatten(), found.flatten() * count + rows
        keep = torch.isin(back, keys).view(count, k)
        keep[:, 0] = True
        weights = weights * keep + 1e-12
    both = torch.stack([torch.cat([rows, found.flatten()]), torch.cat([found.flatten(), rows])])
    values = weights.double().flatten().repeat(2) / 2
    return torch.sparse_coo_tensor(both, values, (count, count)).coalesce().to_sparse_csr()


def spread(graph: Tensor, y: Tensor, count: int, draws: int) -> tuple[Tensor, list[Tensor]]:
    """Potentials [N, draws, K] of all draws of labels, and the labelled rows of each."""
    rows = [
        torch.from_numpy(few_labels(y.cpu().numpy(), count, seed)).to(y.device)
        for seed in range(draws)
    ]
    classes = int(y.max()) + 1
    source = torch.zeros(len(y), draws, classes, dtype=torch.float64, device=y.device)
    for d, drawn in enumerate(rows):
        source[drawn, d] = torch.nn.functional.one_hot(y[drawn], classes).double() - 1 / classes
    return solve_poisson(graph, source.flatten(1)).view_as(source), rows


def graph_errors(
    z: Tensor,
    y: Tensor,
    z_new: Tensor,
    y_new: Tensor,
    counts=(10, 100),
    k: int = 10,
    kind: str = "",
    rule: str = "either",
    draws: int = 0,
    keep: dict | None = None,
    neighbours=None,
) -> dict:
    """Errors in %, mean and deviation over draws: P Poisson learning, R regions, S regions with
    even shares."""
    draws = draws or DRAWS
    neighbours = neighbours or Neighbours(z, DEVICE)
    squares, found = neighbours.others(k)
    graph = joined(weights_of(squares, found, kind), found, rule)
    squares, found = neighbours.nearest(z_new, k)
    weights = neighbour_weights(squares).double()
    weights = weights / weights.sum(1, keepdim=True)
    out, parts = {}, connected_parts(graph)
    for count in counts:
        u, rows = spread(graph, y, count, draws)
        even = torch.full((u.shape[2],), 1 / u.shape[2], dtype=u.dtype, device=u.device)
        errors = {"P": [], "R": [], "S": [], "train": []}
        for d, drawn in enumerate(rows):
            regions = [
                grow_regions(graph, parts, u[:, d], drawn, y[drawn], shares)
                for shares in (None, even)
            ]
            for name, scores in zip(("P", "R", "S"), (u[:, d], *regions), strict=True):
                new = (weights[:, :, None] * scores[found]).sum(1)
                errors[name].append(100 * float((new.argmax(1) != y_new).double().mean()))
            errors["train"].append(100 * float((regions[1].argmax(1) != y).double().mean()))
            if keep is not None:
                keep[count, d] = regions[1]
        out[count] = {
            name: f"{np.mean(each):.3f}±{np.std(each):.3f}" for name, each in errors.items()
        }
    return out


def svm_errors(
    z: Tensor,
    y: Tensor,
    z_new: Tensor,
    y_new: Tensor,
    counts=(100, 300, 1000, 3000),
    Cs=(1.0, 10.0),
    draws: int = 0,
    every: tuple = (),
) -> dict:
    """Errors in % of a linear SVM, mean over draws, by C; `every`: the values of C with all
    labels."""
    out, labels, truth = {}, y.cpu().numpy(), y_new.cpu().numpy()
    for count in counts if not TINY else (30, 100):
        out[count] = {}
        for C in Cs:
            errors = []
            for seed in range(draws or DRAWS):
                rows = torch.from_numpy(few_labels(labels, count, seed)).to(z.device)
                svm = fit_svm(z[rows], labels[rows.cpu().numpy()], C, device=DEVICE)
                errors.append(100 * float((svm.predict(z_new) != truth).mean()))
            out[count][C] = f"{np.mean(errors):.3f}±{np.std(errors):.3f}"
    if every:
        out["all"] = {
            C: f"{100 * float((fit_svm(z, labels, C, device=DEVICE).predict(z_new) != truth).mean()):.3f}"  # noqa: E501
            for C in every
        }
    return out


class Split:
    """Descriptors of one kind of images: rows that learn and rows that are judged."""

    def __init__(
        self, name: str, function, v: Tensor, y: np.ndarray, held: int, how: Distortions, log: Log
    ) -> None:
        start = time.perf_counter()
        self.name, self.function, self.v = name, function, v[:held]
        x = in_batches(function, v)
        self.x, self.x_new = x[:held], x[held:]
        self.y, self.y_new = (torch.from_numpy(part).to(DEVICE) for part in (y[:held], y[held:]))
        described = time.perf_counter() - start
        self.moments = moments_of(function, self.x, self.v, how)
        variances = self.moments.metric(rank=400).variances
        log.step(
            f"{name} described",
            lambda: {
                "columns": x.shape[1],
                "describing": round(described, 1),
                "moments": round(time.perf_counter() - start - described, 1),
                "variances": [
                    round(float(variances[min(i, len(variances) - 1)]), 6)
                    for i in (0, 5, 10, 50, 100, 399)
                ],
            },
        )

    def rows(
        self, moments: Moments | None = None, **settings
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        metric = (moments or self.moments).metric(**settings)
        return metric(self.x), self.y, metric(self.x_new), self.y_new

    def plain(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        x, x_new = self.x.float(), self.x_new.float()
        return unit_length(x), self.y, unit_length(x_new), self.y_new


def side_by_side(splits, **settings):
    """The rows of several kinds of descriptors, each by its own metric, side by side."""
    parts = [split.rows(**settings) for split in splits]
    first = parts[0]
    return (
        unit_length(torch.cat([p[0] for p in parts], 1)),
        first[1],
        unit_length(torch.cat([p[2] for p in parts], 1)),
        first[3],
    )


def again(rows, rounds: int = 2, count: int = 10, draws: int = 5) -> dict:
    """Once more: the classes that the graph finds give a covariance within classes, and that a
    metric and a graph."""
    z, y, z_new, y_new = rows
    out, keep = {}, {}
    graph_errors(z, y, z_new, y_new, (count,), draws=draws, keep=keep)
    for step in range(rounds):
        errors, svm = [], []
        for d in range(draws):
            sure, label = keep[count, d].max(1)
            use = sure > 0.9
            centres = torch.stack([z[use & (label == c)].mean(0) for c in range(10)])
            inside = z[use] - centres[label[use]]
            W = inside.T @ inside / len(inside)
            eps = W.diagonal().mean()
            L = torch.linalg.cholesky(
                (W + eps * torch.eye(len(W), device=W.device)).double()
            ).float()
            new = [
                unit_length(torch.linalg.solve_triangular(L, (part - z.mean(0)).T, upper=False).T)
                for part in (z, z_new)
            ]
            kept: dict = {}
            neighbours = Neighbours(new[0], DEVICE)
            squares, found = neighbours.others(10)
            graph = joined(weights_of(squares, found, ""), found, "either")
            drawn = torch.from_numpy(few_labels(y.cpu().numpy(), count, d)).to(y.device)
            even = torch.full((10,), 0.1, dtype=torch.float64, device=y.device)
            source = torch.zeros(len(y), 10, dtype=torch.float64, device=y.device)
            source[drawn] = torch.nn.functional.one_hot(y[drawn], 10).double() - 0.1
            scores = grow_regions(
                graph, connected_parts(graph), solve_poisson(graph, source), drawn, y[drawn], even
            )
            squares, found = neighbours.nearest(new[1], 10)
            weights = neighbour_weights(squares).double()
            guess = ((weights[:, :, None] * scores[found]).sum(1)).argmax(1)
            errors.append(100 * float((guess != y_new).double().mean()))
            if step == 0:
                pseudo = fit_svm(z[use], label[use].cpu().numpy(), 0.1, device=DEVICE)
                svm.append(100 * float((pseudo.predict(z_new) != y_new.cpu().numpy()).mean()))
            kept[count, d] = scores
            keep[count, d] = scores
        out[f"round {step + 1}"] = f"{np.mean(errors):.3f}±{np.std(errors):.3f}"
        if svm:
            out["svm of the graph's classes"] = f"{np.mean(svm):.3f}±{np.std(svm):.3f}"
    return out


# the searches -------------------------------------------------------------------------------------

DIGITS = Distortions()
CLOTHES = Distortions(rotation=5, shear=0.1, scale=0.1, shift=0.03, elastic=0.02, brightness=0.3)


def both(rows, counts=(10, 100), **options) -> dict:
    return {"graph": graph_errors(*rows, counts, **options)}


def search_settings(log: Log, s: Split, tag: str) -> None:
    """Settings of the metric, on one kind of descriptors."""
    log.step(
        f"{tag} as is",
        lambda: {**both(s.plain()), "svm": svm_errors(*s.plain(), (100, 1000), (10.0,), draws=5)},
    )
    for share in (0.3, 0.1, 1.0):
        for rank in (100, 200, 400):
            log.step(
                f"{tag} share {share} rank {rank}",
                lambda a=share, b=rank: both(s.rows(share=a, rank=b)),
            )
    log.step(f"{tag} share 0.03 rank 200", lambda: both(s.rows(share=0.03, rank=200)))
    log.step(f"{tag} share 0.3 rank 50", lambda: both(s.rows(share=0.3, rank=50)))
    log.step(f"{tag} share 0.3 rank 800", lambda: both(s.rows(share=0.3, rank=800)))
    log.step(
        f"{tag} share 0.3 rank 400 power 0.5", lambda: both(s.rows(share=0.3, rank=400, power=0.5))
    )
    for share, rank, power in ((0.3, 200, 0), (0.3, 800, 0), (0.1, 800, 0.5), (0.1, 800, 1)):
        name = f"{tag} svm share {share} rank {rank} power {power}"
        log.step(
            name,
            lambda a=share, b=rank, p=power: {
                "svm": svm_errors(
                    *s.rows(share=a, rank=b, power=p), (100, 1000), (1.0, 10.0), draws=5
                )
            },
        )


def search_graph(log: Log, rows, tag: str) -> None:
    for k in (5, 7, 15, 20, 30):
        log.step(f"{tag} k {k}", lambda k=k: both(rows, k=k))
    for kind, rule in (
        ("own scale", "mean"),
        ("cosine cubed", "mean"),
        ("one", "either"),
        ("", "mean"),
    ):
        log.step(
            f"{tag} weights {kind or 'as they are'}, {rule}",
            lambda a=kind, b=rule: both(rows, kind=a, rule=b),
        )
    log.step(f"{tag} mutual 20", lambda: both(rows, k=20, rule="mutual"))
    log.step(f"{tag} 50 and 300 labels", lambda: both(rows, (50, 300)))
    log.step(f"{tag} again", lambda: again(rows))


def search_distortions(log: Log, s: Split, tag: str, base: Distortions) -> None:
    """Each kind of distortion alone, all but one, and all weaker or stronger."""
    kinds = ("rotation", "shear", "scale", "shift", "elastic", "brightness")
    nothing = dict.fromkeys(kinds, 0.0)
    trials = {
        f"{f:g} times": replace(base, **{k: f * getattr(base, k) for k in kinds})
        for f in (0.5, 1.5, 2.0)
    }
    trials |= {f"without {k}": replace(base, **{k: 0.0}) for k in kinds if getattr(base, k)}
    trials |= {f"only {k}": replace(base, **{**nothing, k: getattr(base, k) or 0.3}) for k in kinds}
    trials |= {f"copies {c}": replace(base, copies=c) for c in (2, 8)}

    def measure(how: Distortions, images: int = 10_000) -> dict:
        some = torch.linspace(0, len(s.v) - 1, min(images, len(s.v)), dtype=torch.float64).long()
        moments = replace(s.moments, within=within_of(s.function, s.v[some], how), how=how)
        return both(s.rows(moments, share=0.3, rank=200))

    for name, how in trials.items():
        log.step(f"{tag} distortions {name}", lambda how=how: measure(how))
    for images in (1000, 3000):
        log.step(f"{tag} {images} images", lambda images=images: measure(base, images))


def search_blocks(log: Log, splits: dict[str, Split], tag: str) -> None:
    """Kinds of descriptors alone and side by side."""
    own = [name for name in splits if name not in PEERS]
    for name in splits:
        for rank in (200, 400) if name in PEERS else (200,):
            log.step(
                f"{tag} {name} rank {rank}",
                lambda n=name, r=rank: both(splits[n].rows(share=0.3, rank=r)),
            )
    sets = [tuple(own[: i + 1]) for i in range(1, len(own))]
    sets += [
        tuple(n for n in own if "upright" not in n),
        tuple(own[i] for i in (0, 2) if i < len(own)),
    ]
    for chosen in sets:
        for rank in (100, 200, 400) if chosen == tuple(own) else (200,):
            log.step(
                f"{tag} {' + '.join(chosen)} rank {rank}",
                lambda c=chosen, r=rank: both(
                    side_by_side([splits[n] for n in c], share=0.3, rank=r)
                ),
            )
    for chosen in (tuple(own), tuple(n for n in own if "upright" not in n), ("scattering",)):
        for share, rank, power in ((0.3, 200, 0), (0.1, 800, 0.5)):
            log.step(
                f"{tag} svm {' + '.join(chosen)} share {share} rank {rank} power {power}",
                lambda c=chosen, a=share, b=rank, p=power: {
                    "svm": svm_errors(
                        *side_by_side([splits[n] for n in c], share=a, rank=b, power=p),
                        (100, 1000),
                        (1.0, 10.0),
                        draws=5,
                        every=(1.0,),
                    )
                },
            )


PEERS = ("pixels", "scattering")


def make(
    log: Log, folder: Path, name: str, v: Tensor, y: np.ndarray, held: int, how: Distortions, models
) -> dict:
    """All kinds of descriptors of a data set, as far as time allows: the first of `models` on both
    views."""
    splits: dict[str, Split] = {}

    def add(key: str, function, need: float) -> None:
        if log.left() > need:
            try:
                splits[key] = Split(f"{name} {key}", function(), v, y, held, how, log)
            except Exception:
                print(
                    json.dumps(
                        {"failed": f"{name} {key}", "error": traceback.format_exc()[-2500:]}
                    ),
                    flush=True,
                )

    for key, layers, stage in models:

        def model(key=key, layers=layers, stage=stage):
            return stream_model(f"{name} {key}", v[:held], folder, layers, **stage)

        add(key, lambda model=model: Describer(model(), (1, 2)), 30)
        if key == "image":
            add(f"{key} upright", lambda model=model: Describer(model(), (1, 2), upright=True), 30)
    add("scattering", scattering, 20)
    add("pixels", lambda: lambda v: v.to(DEVICE).flatten(1), 10)
    return splits


ONOFF = {"kind": "onoff", "contrast": 1.0}
SETS = {
    "mnist": (SMALL, DIGITS),
    "fashion-mnist": (MIDDLE, CLOTHES),
}


def stages(layers) -> tuple:
    return (
        ("image", layers, {}),
        ("sigma 4", layers, {**ONOFF, "sigma": 4.0}),
        ("sigma 2", layers, {**ONOFF, "sigma": 2.0}),
    )


def search(log: Log, data: Path, out: Path) -> None:
    held, kinds = 300 if TINY else 50_000, {}
    for name, (layers, how) in SETS.items():
        v, y = read(data / name, "train")
        kinds[name] = make(log, out, name, v, y, held, how, stages(layers))
        search_blocks(log, kinds[name], name)
    for name in SETS:
        search_settings(log, kinds[name]["image"], name)
    for name, (_, how) in SETS.items():
        search_graph(log, kinds[name]["image"].rows(share=0.3, rank=200), name)
        search_distortions(log, kinds[name]["image"], name, how)


def averaged(function, copies: int, how: Distortions):
    """The mean descriptor of an image and of some distorted copies of it."""

    def rows(v: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(7)
        v = v.to(DEVICE)
        total = function(v)
        for _ in range(copies):
            total = total + function(distort(v, how, generator))
        return unit_length(total)

    return rows


def refine(log: Log, data: Path, out: Path) -> None:
    """Around the best settings: partly whitened columns, more blocks, averaged views; neighbours
    are kept in files."""
    held = 300 if TINY else 50_000
    weak = {
        name: replace(
            how,
            **{k: getattr(how, k) / 2 for k in ("rotation", "shear", "scale", "shift", "elastic")},
        )
        for name, (_, how) in SETS.items()
    }
    for name, (layers, how) in SETS.items():
        v, y = read(data / name, "train")
        models = {
            key: stream_model(f"{name} {key}", v[:held], out, given, **stage)
            for key, given, stage in stages(layers)
        }
        kinds = {
            key: Split(f"{name} {key} refined", Describer(model, (1, 2)), v, y, held, how, log)
            for key, model in models.items()
            if name == "mnist" or key != "sigma 2"
        }
        if name == "mnist":
            upright = Describer(models["image"], (1, 2), upright=True)
            kinds["upright"] = Split(f"{name} upright refined", upright, v, y, held, how, log)
        kinds["scattering"] = Split(
            f"{name} scattering refined", scattering(), v, y, held, how, log
        )
        own = [key for key in kinds if key != "scattering"]
        first = ("image", "upright") if name == "mnist" else ("image", "sigma 4")
        options = {"draws": 10 if name == "mnist" else 4}
        settings = [
            (a, r, p) for a, r in ((1.0, 200), (3.0, 200), (1.0, 400)) for p in (0.0, -0.3, -0.6)
        ]
        settings += [(0.3, 200, -0.3), (1.0, 100, -1.0)]
        for share, rank, power in settings:
            for chosen in (first, ("scattering",), *((own,) if share == 1 and rank == 200 else ())):
                log.step(
                    f"{name} {' + '.join(chosen)} share {share} rank {rank} power {power}",
                    lambda c=chosen, a=share, r=rank, p=power, k=kinds, o=options: both(
                        side_by_side([k[each] for each in c], share=a, rank=r, power=p), **o
                    ),
                )
        for power in (0.0, -0.3):
            rows = side_by_side([kinds[k] for k in first], share=1.0, rank=200, power=power)
            squares, found = Neighbours(rows[0], DEVICE).others(min(20, held - 1))
            near, numbers = Neighbours(rows[0], DEVICE).nearest(rows[2], 10)
            torch.save(
                [squares.half().cpu(), found.int().cpu(), near.half().cpu(), numbers.int().cpu()],
                log.file.parent / f"{name}_{power}.pt",
            )
        for copies, strength in ((4, weak[name]),):
            if log.left() < 25:
                continue
            mean = []
            for key in first:
                split = kinds[key]
                x = in_batches(averaged(split.function, copies, strength), v)
                total = DenseCovariance(1024)
                for part in x[:held].split(4096):
                    total.add(part.float())
                split = replace_split(
                    split,
                    x[:held],
                    x[held:],
                    replace(split.moments, total=total, mean=x[:held].float().mean(0)),
                )
                mean.append(split)
            for power in (0.0, -0.3):
                tag = f"{name} {' + '.join(first)} mean of {copies} power {power}"
                log.step(
                    tag,
                    lambda p=power, m=mean, o=options: both(
                        side_by_side(m, share=1.0, rank=200, power=p), **o
                    ),
                )


# by `search`, `refine` and reproduction/studies/ten_labels_ideas.py
CHOSEN = {
    "share": 1.0,
    "rank": 400,
}
VIEWS = ("", " upright")
TESTED = {
    "mnist": {
        "three models, both views": [
            key + view for key in ("image", "sigma 4", "sigma 2") for view in VIEWS
        ],
        "one model, both views": ["image", "image upright"],
        "scattering, both views": ["scattering", "scattering upright"],
    },
    "fashion-mnist": {"two models": ["image", "sigma 4"], "scattering": ["scattering"]},
}


def describer(folder: Path, name: str, key: str, images: Tensor):
    """The function for a kind of descriptors by its name; its model learns from `images` if it is
    not in the folder."""
    stage_name = key.removesuffix(" upright")
    upright = key != stage_name
    if stage_name == "scattering":
        rows = scattering()
        return (lambda v: rows(deskew(v.to(DEVICE)))) if upright else rows
    layers, stage = next(
        (layers, stage) for each, layers, stage in stages(SETS[name][0]) if each == stage_name
    )
    return Describer(
        stream_model(f"{name} {stage_name}", images, folder, layers, **stage),
        (1, 2),
        upright=upright,
    )


def classes_errors(
    z: Tensor, y: Tensor, z_new: Tensor, y_new: Tensor, counts=(10, 50, 100), C: float = 0.3
) -> dict:
    """Errors in % of neighbours, and of a linear SVM that is fitted to the classes that the graph
    finds."""
    neighbours, out, even = (
        Neighbours(z, DEVICE),
        {},
        torch.full((10,), 0.1, dtype=torch.float64, device=z.device),
    )
    squares, found = neighbours.others(10)
    graph = symmetric_graph(neighbour_weights(squares), found)
    squares, found = neighbours.nearest(z_new, 10)
    weights, parts = neighbour_weights(squares).double(), connected_parts(graph)
    for count in counts:
        u, rows = spread(graph, y, count, DRAWS)
        errors: dict[str, list[float]] = {}
        for d, drawn in enumerate(rows):
            for prior, shares in {"uniform": even, "no prior": None}.items():
                scores = grow_regions(graph, parts, u[:, d], drawn, y[drawn], shares)
                classes = scores.argmax(1)
                classes[drawn] = y[drawn]
                svm = fit_svm(z, classes.cpu().numpy(), C, device=DEVICE)
                nearest = (weights[:, :, None] * scores[found]).sum(1).argmax(1).cpu().numpy()
                for kind, guess in {"graph": nearest, "svm": svm.predict(z_new)}.items():
                    wrong = 100 * float((guess != y_new.cpu().numpy()).mean())
                    errors.setdefault(f"{kind} {prior}", []).append(round(wrong, 2))
        out[count] = {
            kind: {"mean": f"{np.mean(e):.3f}±{np.std(e):.3f}", "draws": e}
            for kind, e in errors.items()
        }
    return out


def test(log: Log, data: Path, out: Path) -> None:
    """The chosen settings, once, on the test images; they join the graph of the training images as
    new rows."""
    for name, (_, how) in SETS.items():
        v, y = read(data / name, "train")
        v_new, y_new = read(data / name, "t10k")
        held, v, y = len(v), torch.cat([v, v_new]), np.concatenate([y, y_new])
        keys = {key for kinds in TESTED[name].values() for key in kinds}
        splits = {
            key: Split(
                f"{name} {key} test",
                describer(out, name, key, v[: held * 5 // 6]),
                v,
                y,
                held,
                how,
                log,
            )
            for key in sorted(keys)
        }
        for title, kinds in TESTED[name].items():
            rows = side_by_side([splits[key] for key in kinds], **CHOSEN)
            log.step(
                f"{name} test svm {title}",
                lambda r=rows: {"svm": svm_errors(*r, Cs=(1.0,), every=(1.0,))},
            )
            log.step(f"{name} test graph {title}", lambda r=rows: both(r, (10, 50, 100)))
            log.step(
                f"{name} test svm of the graph's classes {title}", lambda r=rows: classes_errors(*r)
            )


def replace_split(split: Split, x: Tensor, x_new: Tensor, moments: Moments) -> Split:
    import copy

    new = copy.copy(split)
    new.x, new.x_new, new.moments = x, x_new, moments
    return new


def main() -> None:
    global TINY, DRAWS, BATCH
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--models", type=Path, help="folder of models that are there already; default: OUT"
    )
    parser.add_argument("--part", choices=("search", "refine", "test"), default="search")
    parser.add_argument("--seconds", type=float, default=450.0)
    parser.add_argument(
        "--tiny", action="store_true", help="few images and draws, to see that it runs"
    )
    given = parser.parse_args()
    if given.tiny:
        TINY, DRAWS, BATCH = True, 2, 100
    given.out.mkdir(parents=True, exist_ok=True)
    {"search": search, "refine": refine, "test": test}[given.part](
        Log(given.out / f"ten_labels_{given.part}.jsonl", given.seconds),
        given.data,
        given.models or given.out,
    )


if __name__ == "__main__":
    main()
