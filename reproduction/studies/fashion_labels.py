"""Few labels of Fashion-MNIST: rows, graphs and linear rules compared on validation images; the best is tested once.

    python -m reproduction.studies.fashion_labels --data FOLDER --models FOLDER --out FOLDER [--strength 0.5] [--tiny]

Models learn from the first 50,000 training images. Validation: these are in the graph, the last 10,000 join it as new
rows. Test: all 60,000 are in the graph, and the test images join it. The rule for the test is the one whose errors with
10 and 100 labels, divided by our targets, have the smallest sum on validation images. Names of rules:

    P τ          potentials of Poisson learning; τ ends walks (1e-5 where none is given), so that labels reach less far
    R            regions that grow from P; R1, R5: rounds of growing, from P 0.01
    linear       ridge regression on the labels alone
    smooth       its scores, smoothed over the graph
    ridge of X   ridge regression on the classes that X gives to all images of the graph
    … + near     the sum of its scores and of those of the neighbours
    turn n of X  P 0.01 and the smoothed scores of the ridge regression of before
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from reproduction.studies import ten_labels as study
from reproduction.studies.ten_labels import CHOSEN, CLOTHES, Log, Moments, svm_errors, within_of
from reproduction.studies.ten_labels_ideas import times
from whatwhere.classification import poisson
from whatwhere.classification.descriptors import unit_length
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.poisson import connected_parts, degrees, grow_regions, solve_poisson
from whatwhere.data import few_labels
from whatwhere.spec.tasks import Distortions

TARGETS = {10: 31.0, 100: 18.5}
OWN = ("image", "sigma 4", "sigma 2")
TAUS = (1e-5, 3e-3, 1e-2, 3e-2, 1e-1)
Rows = tuple[Tensor, Tensor, Tensor, Tensor]  # and classes: of the images in the graph, and of new ones


def unit(scores: Tensor) -> Tensor:
    """Scores [N, draws, K] with a deviation of 1 in every draw."""
    return scores / scores.std((0, 2), keepdim=True).clamp(min=1e-300)


class Task:
    """Rows with their graph; scores [N, draws, K] are those of all draws of labels at once."""

    def __init__(self, rows: Rows, k: int = 10, kind: str = "") -> None:
        self.z, self.y, self.z_new, self.y_new = rows
        neighbours = Neighbours(self.z, study.DEVICE)
        squares, found = neighbours.others(k)
        self.graph = study.joined(study.weights_of(squares, found, kind), found, "either")
        squares, self.found = neighbours.nearest(self.z_new, k)
        weights = neighbour_weights(squares).double()
        self.weights = weights / weights.sum(1, keepdim=True)
        self.parts, self.degree = connected_parts(self.graph), degrees(self.graph)[:, None]
        self.classes, self.mean = int(self.y.max()) + 1, self.z.mean(0)
        centred = self.z - self.mean
        self.gram = (centred.T @ centred).double() / len(centred)

    def near(self, scores: Tensor) -> Tensor:
        """The scores of new rows: the mean of their neighbours."""
        return (self.weights[:, :, None, None] * scores[self.found]).sum(1)

    def potentials(self, source: Tensor, tau: float) -> Tensor:
        before, poisson.TAU = poisson.TAU, tau
        try:
            return unit(solve_poisson(self.graph, source.flatten(1)).view_as(source))
        finally:
            poisson.TAU = before

    def regions(self, u: Tensor, drawn: list[Tensor], rounds: int) -> Tensor:
        before, poisson.ROUNDS = poisson.ROUNDS, rounds
        try:
            each = [grow_regions(self.graph, self.parts, u[:, d], r, self.y[r], None) for d, r in enumerate(drawn)]
        finally:
            poisson.ROUNDS = before
        return torch.stack(each, 1)

    def smooth(self, scores: Tensor, alpha: float = 0.9, steps: int = 30) -> Tensor:
        first = s = scores.flatten(1)
        for _ in range(steps):
            s = alpha * (self.graph @ s) / self.degree + (1 - alpha) * first
        return unit(s.view_as(scores))

    def ridge(self, scores: Tensor, drawn: list[Tensor], share: float = 0.1) -> Callable[[Tensor], Tensor]:
        """Ridge regression on the classes with the largest scores, as a function of rows."""
        classes = scores.argmax(2)
        for d, rows in enumerate(drawn):
            classes[rows, d] = self.y[rows]
        targets = F.one_hot(classes, self.classes).double()
        targets = (targets - targets.mean(0)).flatten(1)
        one = torch.eye(len(self.gram), dtype=torch.float64, device=targets.device)
        products = (self.z - self.mean).T.double() @ targets / len(targets)
        W = torch.linalg.solve(self.gram + share * self.gram.diagonal().mean() * one, products)
        return lambda z: ((z - self.mean).double() @ W).view(len(z), len(drawn), self.classes)

    def linear(self, drawn: list[Tensor], z: Tensor) -> Tensor:
        """Ridge regression on the labels alone, of rows z."""
        scores = []
        for r in drawn:
            labelled = (self.z[r] - self.mean).double()
            kernel = labelled @ labelled.T
            one = torch.eye(len(r), dtype=torch.float64, device=z.device)
            targets = F.one_hot(self.y[r], self.classes).double() - 1 / self.classes
            a = torch.linalg.solve(kernel + 0.1 * kernel.diagonal().mean() * one, targets)
            scores.append((z - self.mean).double() @ (labelled.T @ a))
        return torch.stack(scores, 1)

    def errors(self, count: int, draws: int) -> dict[str, list[float]]:
        """The errors in % of every draw on new rows, by the name of a rule."""
        drawn = [torch.from_numpy(few_labels(self.y.cpu().numpy(), count, s)).to(self.y.device) for s in range(draws)]
        source = torch.zeros(len(self.y), draws, self.classes, dtype=torch.float64, device=self.y.device)
        for d, r in enumerate(drawn):
            source[r, d] = F.one_hot(self.y[r], self.classes).double() - 1 / self.classes
        P = {tau: self.potentials(source, tau) for tau in TAUS}
        S = self.smooth(unit(self.linear(drawn, self.z)))
        base = {"P" + f" {tau:g}" * (tau != TAUS[0]): u for tau, u in P.items()}
        base |= {"R": self.regions(P[1e-5], drawn, 5)} | {f"R{n} 0.01": self.regions(P[1e-2], drawn, n) for n in (1, 5)}
        base |= {f"P + {c:g} smooth": P[1e-5] + c * S for c in (0.5, 1.0, 2.0)}
        base |= {f"P 0.01 + {c:g} smooth": P[1e-2] + c * S for c in (0.25, 0.5, 1.0)}
        new = {"linear": self.linear(drawn, self.z_new), "smooth": self.near(S)}
        for name, scores in base.items():
            rule = self.ridge(scores, drawn)
            new |= {name: self.near(scores), f"ridge of {name}": rule(self.z_new)}
            new[f"ridge + near of {name}"] = unit(rule(self.z_new)) + unit(self.near(scores))
            for turn in (2, 3) if name == "P 0.01" else ():
                scores = P[1e-2] + self.smooth(unit(rule(self.z)))
                rule = self.ridge(scores, drawn)
                new |= {
                    f"turn {turn} of {name}": self.near(scores),
                    f"ridge of turn {turn} of {name}": rule(self.z_new),
                }
        wrong = {name: (scores.argmax(2) != self.y_new[:, None]).double().mean(0) for name, scores in new.items()}
        return {name: [round(100 * float(share), 2) for share in shares] for name, shares in wrong.items()}


class Kind:
    """Descriptors of one kind of all images, and their moments for validation and for the test."""

    def __init__(self, function, v: Tensor, y: np.ndarray, how: Distortions) -> None:
        held, trained = (300, 400) if study.TINY else (50_000, 60_000)
        self.function, self.v, self.x = function, v, study.in_batches(function, v)
        self.y = torch.from_numpy(y).to(study.DEVICE)
        self.some = torch.linspace(0, held - 1, min(10_000, held), dtype=torch.float64).long()
        self.parts = {"validation": (slice(held), slice(held, trained)), "test": (slice(trained), slice(trained, None))}
        within, self.moments = self.within(how), {}
        for part, (learned, _) in self.parts.items():
            total = study.DenseCovariance(1024)
            for rows in self.x[learned].split(4096):
                total.add(rows.float())
            self.moments[part] = Moments(within, total, self.x[learned].float().mean(0), how)

    def within(self, how: Distortions, mirrored: bool = False):
        """The covariance under distortions; `mirrored`: every second image is mirrored, too."""
        generator = torch.Generator().manual_seed(5)

        def rows(v: Tensor) -> Tensor:
            turned = (torch.rand(len(v), generator=generator) < 0.5).to(v.device)
            return self.function(torch.where(turned[:, None, None, None], v.flip(3), v) if mirrored else v)

        return within_of(rows, self.v[self.some], how)

    def rows(self, part: str, within=None, **settings) -> Rows:
        learned, new = self.parts[part]
        moments = self.moments[part] if within is None else replace(self.moments[part], within=within)
        metric = moments.metric(**{**CHOSEN, **settings})
        return metric(self.x[learned]), self.y[learned], metric(self.x[new]), self.y[new]


def beside(parts: list[Rows]) -> Rows:
    """Rows of several kinds, side by side."""
    joined = [unit_length(torch.cat([part[i] for part in parts], 1)) for i in (0, 2)]
    return joined[0], parts[0][1], joined[1], parts[0][3]


def neighbours_as_copies(rows: Rows, k: int = 5) -> Rows:
    """Rows in a metric in which directions between nearest neighbours count less."""
    z, y, z_new, y_new = rows
    _, found = Neighbours(z, study.DEVICE).others(k)
    W = sum((z - z[found[:, i]]).T @ (z - z[found[:, i]]) for i in range(k)).double() / (k * len(z))
    values, vectors = torch.linalg.eigh(W)
    M = ((vectors * (values + values.mean()) ** -0.5) @ vectors.T).float()
    mean = z.mean(0)
    return unit_length((z - mean) @ M), y, unit_length((z_new - mean) @ M), y_new


def summary(errors: dict[str, list[float]], draws: bool) -> dict:
    means = {name: f"{np.mean(each):.2f}±{np.std(each):.2f}" for name, each in errors.items()}
    return {name: {"mean": means[name], "draws": each} for name, each in errors.items()} if draws else means


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "models", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--strength", type=float, default=1.0, help="of the distortions but brightness")
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument("--tiny", action="store_true", help="few images and draws, to see that it runs")
    given = parser.parse_args()
    if given.tiny:
        study.TINY, study.DRAWS, study.BATCH = True, 2, 100
    given.out.mkdir(parents=True, exist_ok=True)
    log = Log(given.out / "fashion_labels.jsonl", given.seconds)
    v, y = (
        join([study.read(given.data / "fashion-mnist", part)[i] for part in ("train", "t10k")])
        for i, join in enumerate((torch.cat, np.concatenate))
    )
    how, best = times(CLOTHES, given.strength), []
    kinds = {
        key: Kind(study.describer(given.models, "fashion-mnist", key, v[: 5 * len(v) // 7]), v, y, how)
        for key in (*OWN, "scattering")
    }

    def trial(name: str, make: Callable[[str], Rows], **options) -> None:
        def measured() -> dict:
            task = Task(make("validation"), **options)
            found = {count: task.errors(count, study.DRAWS) for count in TARGETS}
            if "scattering" not in name:
                for rule in found[10]:
                    score = sum(np.mean(found[count][rule]) / target for count, target in TARGETS.items())
                    best.append((score, rule, make, options))
            return {count: summary(errors, draws=False) for count, errors in found.items()}

        log.step(f"fashion-mnist validation {name}, distortions {given.strength:g} times", measured)

    def three(part: str, **settings) -> Rows:
        return beside([kinds[key].rows(part, **settings) for key in OWN])

    def scattering(part: str) -> Rows:
        return kinds["scattering"].rows(part)

    def other(how: Distortions, mirrored: bool = False) -> Callable[[str], Rows]:
        return lambda part: kinds["image"].rows(part, kinds["image"].within(how, mirrored))

    trial("three models", three)
    trial("three models, neighbours as copies", lambda part: neighbours_as_copies(three(part)))
    trial("three models, k 20", three, k=20)
    trial("three models, k 20, own scale", three, k=20, kind="own scale")
    trial("scattering", scattering)
    for settings in ({"power": -0.3}, {"share": 0.3}, {"share": 3.0}, {"rank": 800}):
        trial(f"three models, {settings}", lambda part, s=settings: three(part, **s))
    for brightness in (0.0, 0.6):
        trial(f"one model, brightness {brightness}", other(replace(how, brightness=brightness)))
    trial("one model", lambda part: kinds["image"].rows(part))
    trial("one model, mirrored", other(how, mirrored=True))

    _, rule, make, options = min(best, key=lambda each: each[0])
    for name, rows in {"three models": make, "scattering": scattering}.items():

        def tested(rows: Callable[[str], Rows] = rows) -> dict:
            task, wanted = Task(rows("test"), **options), {rule, "P", "R", "linear"}
            found = {count: task.errors(count, study.DRAWS) for count in TARGETS}
            errors = {count: {n: e for n, e in each.items() if n in wanted} for count, each in found.items()}
            return {"rule": rule, **{count: summary(each, draws=True) for count, each in errors.items()}}

        log.step(f"fashion-mnist test {name}", tested)
        log.step(
            f"fashion-mnist test svm {name}", lambda r=rows: {"svm": svm_errors(*r("test"), Cs=(1.0,), every=(1.0,))}
        )


if __name__ == "__main__":
    main()
