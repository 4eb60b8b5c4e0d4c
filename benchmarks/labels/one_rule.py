"""Few labels of digits and of clothes by one rule: rules compared on validation images of both
sets, the best tested.

    python -m benchmarks.labels.one_rule --data FOLDER --models FOLDER --out FOLDER [--tiny]

Models learn from the first 50,000 training images. Validation: these are in the graph, the last
10,000 join it as new rows. Test: all 60,000 are in the graph, and the test images join it. The rule
for the test is the one whose errors, divided by our targets, have the smallest mean over both sets
and all numbers of labels. Names of rules:

    P τ          potentials of Poisson learning; τ ends walks, so that labels reach less far
    R n of X     regions that grow from X in n rounds
    …, even      with offsets, so that no class has far more or fewer images than others
    near of X    new images: the mean of their neighbours' scores
    ridge of X   new images: ridge regression on the classes that X gives to all images of the graph
    both of X    the sum of the two, scaled
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.labels import ten_labels as study
from benchmarks.labels.ten_labels import CHOSEN, CLOTHES, DIGITS, Log, Moments, within_of
from whatwhere.classification.descriptors import unit_length
from whatwhere.classification.neighbour_graph import connected_parts, symmetric_graph
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.poisson import (
    RegionSettings,
    grow_regions,
    share_offsets,
    solve_poisson,
)
from whatwhere.classification.settings import Distortions
from whatwhere.data import few_labels

TARGETS = {"mnist": {10: 1.2, 50: 1.1, 100: 1.0}, "fashion-mnist": {10: 31.0, 100: 18.5}}
FEATURES = {"three models": ("image", "sigma 4", "sigma 2"), "scattering": ("scattering",)}
TAUS = (1e-5, 3e-3, 1e-2)
SLACKS = {"": None, ", even": 1.3}
ROUNDS = (1, 2, 5)
ROWS = {"mnist": (("", " upright"), DIGITS), "fashion-mnist": (("",), CLOTHES)}
# and classes: of the images in the graph, and of new ones
Rows = tuple[Tensor, Tensor, Tensor, Tensor]


def unit(scores: Tensor) -> Tensor:
    """Scores [N, draws, K] with a deviation of 1 in every draw."""
    return scores / scores.std((0, 2), keepdim=True).clamp(min=1e-300)


class Task:
    """Rows with their graph; scores [N, draws, K] are those of all draws of labels at once."""

    def __init__(self, rows: Rows, k: int = 10) -> None:
        self.z, self.y, self.z_new, self.y_new = rows
        neighbours = Neighbours(self.z, study.DEVICE)
        squares, found = neighbours.others(k)
        self.graph = symmetric_graph(neighbour_weights(squares), found)
        squares, self.found = neighbours.nearest(self.z_new, k)
        weights = neighbour_weights(squares).double()
        self.weights = weights / weights.sum(1, keepdim=True)
        self.parts = connected_parts(self.graph)
        self.classes, self.mean = int(self.y.max()) + 1, self.z.mean(0)
        centred = self.z - self.mean
        self.gram = (centred.T @ centred).double() / len(centred)
        self.even = torch.full(
            (self.classes,), 1 / self.classes, dtype=torch.float64, device=self.y.device
        )

    def near(self, scores: Tensor) -> Tensor:
        """The scores of new rows: the mean of their neighbours."""
        parts = zip(self.weights.split(1000), self.found.split(1000), strict=True)
        return torch.cat(
            [(weights[:, :, None, None] * scores[found]).sum(1) for weights, found in parts]
        )

    def potentials(self, source: Tensor, tau: float) -> Tensor:
        return unit(solve_poisson(self.graph, source.flatten(1), tau=tau).view_as(source))

    def balanced(self, scores: Tensor, slack: float | None) -> Tensor:
        if slack is None:
            return scores
        how = RegionSettings(slack=slack)
        return torch.stack([s + share_offsets(s, self.even, how) for s in scores.unbind(1)], 1)

    def regions(self, u: Tensor, drawn: list[Tensor], slack: float | None, rounds: int) -> Tensor:
        how = RegionSettings(rounds=rounds)
        shares = torch.zeros_like(self.even) if slack is None else self.even  # 0: no bound
        each = [
            grow_regions(self.graph, self.parts, u[:, d], r, self.y[r], shares, how)
            for d, r in enumerate(drawn)
        ]
        return torch.stack(each, 1)

    def ridge(self, scores: Tensor, drawn: list[Tensor], share: float = 0.1) -> Tensor:
        """New rows' scores by ridge regression on the classes with the largest scores."""
        classes = scores.argmax(2)
        for d, rows in enumerate(drawn):
            classes[rows, d] = self.y[rows]
        targets = F.one_hot(classes, self.classes).float()
        targets = (targets - targets.mean(0)).flatten(1)
        one = torch.eye(len(self.gram), dtype=torch.float64, device=targets.device)
        products = ((self.z - self.mean).T @ targets).double() / len(targets)
        W = torch.linalg.solve(self.gram + share * self.gram.diagonal().mean() * one, products)
        return ((self.z_new - self.mean).double() @ W).view(
            len(self.z_new), len(drawn), self.classes
        )

    def errors(self, count: int, only: str | None = None) -> dict[str, list[float]]:
        """The errors in % of every draw on new rows, by the name of a rule."""
        labels = self.y.cpu().numpy()
        drawn = [
            torch.from_numpy(few_labels(labels, count, s)).to(self.y.device)
            for s in range(study.DRAWS)
        ]
        source = torch.zeros(
            len(self.y), len(drawn), self.classes, dtype=torch.float64, device=self.y.device
        )
        for d, r in enumerate(drawn):
            source[r, d] = F.one_hot(self.y[r], self.classes).double() - 1 / self.classes
        P = {f"P {tau:g}": self.potentials(source, tau) for tau in TAUS}
        out = {}
        for name, u in P.items():
            for even, slack in SLACKS.items():
                for rounds in (0, *ROUNDS):
                    base = f"R {rounds} of {name}{even}" if rounds else name + even
                    if only and not only.endswith(f" of {base}"):
                        continue
                    scores = (
                        self.regions(u, drawn, slack, rounds) if rounds else self.balanced(u, slack)
                    )
                    near, ridge = self.near(scores), self.ridge(scores, drawn)
                    each = {"near": near, "ridge": ridge, "both": unit(near) + unit(ridge)}
                    out |= {f"{kind} of {base}": new for kind, new in each.items()}
        wrong = {
            name: (scores.argmax(2) != self.y_new[:, None]).double().mean(0)
            for name, scores in out.items()
        }
        return {
            name: [round(100 * float(share), 2) for share in shares]
            for name, shares in wrong.items()
        }


class Kind:
    """Descriptors of one kind of all images, and their metrics by the distortions."""

    def __init__(self, function, v: Tensor, y: np.ndarray) -> None:
        held, trained = (300, 400) if study.TINY else (50_000, 60_000)
        self.function, self.x = function, study.in_batches(function, v)
        self.y = torch.from_numpy(y).to(study.DEVICE)
        self.some = v[torch.linspace(0, held - 1, min(10_000, held), dtype=torch.float64).long()]
        self.parts = {
            "validation": (slice(held), slice(held, trained)),
            "test": (slice(trained), slice(trained, None)),
        }
        self.within: dict[Distortions, study.Covariance] = {}
        self.totals: dict[str, study.Covariance] = {}

    def rows(self, part: str, how: Distortions) -> Rows:
        learned, new = self.parts[part]
        if how not in self.within:
            self.within[how] = within_of(self.function, self.some, how)
        if part not in self.totals:
            self.totals[part] = study.DenseCovariance(1024)
            for rows in self.x[learned].split(4096):
                self.totals[part].add(rows.float())
        metric = Moments(
            self.within[how], self.totals[part], self.x[learned].float().mean(0), how
        ).metric(**CHOSEN)
        return metric(self.x[learned]), self.y[learned], metric(self.x[new]), self.y[new]


class DataSet:
    """The images of a set, and rows made from them."""

    def __init__(self, name: str, data: Path, models: Path) -> None:
        parts = [study.read(data / name, part) for part in ("train", "t10k")]
        self.name, self.models, self.kinds = name, models, {}
        self.v, self.y = torch.cat([v for v, _ in parts]), np.concatenate([y for _, y in parts])

    def kind(self, key: str) -> Kind:
        if key not in self.kinds:
            function = study.describer(self.models, self.name, key, self.v[: 5 * len(self.v) // 7])
            self.kinds[key] = Kind(function, self.v, self.y)
        return self.kinds[key]

    def rows(self, part: str, features: tuple[str, ...]) -> Rows:
        """The rows of several kinds, side by side."""
        views, how = ROWS[self.name]
        parts = [self.kind(key + view).rows(part, how) for key in features for view in views]
        joined = [unit_length(torch.cat([part[i] for part in parts], 1)) for i in (0, 2)]
        return joined[0], parts[0][1], joined[1], parts[0][3]


def validate(log: Log, sets: dict[str, DataSet]) -> list[tuple[float, str]]:
    """All rules by their mean error relative to our targets, the best first."""
    ratios: dict[str, list[float]] = {}
    for title, features in FEATURES.items():
        for name, data in sets.items():

            def measured(title=title, features=features, data=data) -> dict:
                task, out = Task(data.rows("validation", features)), {}
                for count, target in TARGETS[data.name].items():
                    errors = task.errors(count)
                    out[count] = {
                        rule: f"{np.mean(e):.2f}±{np.std(e):.2f}" for rule, e in errors.items()
                    }
                    for rule, each in errors.items() if title == "three models" else ():
                        ratios.setdefault(rule, []).append(np.mean(each) / target)
                return out

            log.step(f"{name} validation {title}", measured)
    return sorted((float(np.mean(each)), rule) for rule, each in ratios.items())


def test(log: Log, sets: dict[str, DataSet], rule: str) -> None:
    for title, features in FEATURES.items():
        for name, data in sets.items():

            def measured(features=features, data=data) -> dict:
                task, out = Task(data.rows("test", features)), {"rule": rule}
                for count in TARGETS[data.name]:
                    errors = task.errors(count, rule)
                    out[count] = {
                        n: {"mean": f"{np.mean(e):.3f}±{np.std(e):.3f}", "draws": e}
                        for n, e in errors.items()
                    }
                return out

            log.step(f"{name} test {title}", measured)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("data", "models", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument(
        "--tiny", action="store_true", help="few images and draws, to see that it runs"
    )
    given = parser.parse_args()
    if given.tiny:
        study.TINY, study.DRAWS, study.BATCH = True, 2, 100
    for folder in (given.out, given.models):
        folder.mkdir(parents=True, exist_ok=True)
    log = Log(given.out / "one_rule.jsonl", given.seconds)
    sets = {name: DataSet(name, given.data, given.models) for name in TARGETS}
    order = validate(log, sets)
    for score, rule in order:
        print(f"{score:.4f}  {rule}")
    test(log, sets, order[0][1])


if __name__ == "__main__":
    main()
