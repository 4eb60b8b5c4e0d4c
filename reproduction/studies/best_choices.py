"""Two choices for the tables best and best_few, on validation images: scores averaged over moved
images, and whitening.

    python -m reproduction.studies.best_choices --out FOLDER --part moves|few [--results FOLDER]
    [--seconds S]

The models are those of seed 0 that the tables use, learned without labels from all 60,000 training
images, which are also whitened together, as in the tables' choice of C. SVMs are fitted to the
first 50,000, or to some of them; errors are those on the last 10,000. Test images are not
described. The logs of its runs: results/best.json, choices; the first is that of an earlier
version, with other values of C, in which steps failed for lack of memory.

  moves  class (b): errors of every C, of the image alone and averaged over it and its moves
  few    class (a) with few labels: mean error of some draws, by share of whitening (0: rows as they
         are) and C
  chosen the same, with the share and C chosen by cross-validation within the drawn labels, ten
  draws
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from reproduction import classifiers
from reproduction.classifiers import DualEvaluation, LabelledRows, dense
from reproduction.jobs import DataSpec, FewLabelJob
from reproduction.reproduce import RESULTS, ReproduceOptions, TimeLimit, open_evaluator
from reproduction.results import CTrial
from reproduction.scale import read_scale
from reproduction.studies.best_search import DEVICE, Log, Steps, targets
from reproduction.svm.few_label_svm import solve_batch
from reproduction.svm.kernel_svm import kernel_rows
from reproduction.svm.working_set import decision, fit_support_vectors
from reproduction.table import cells_of
from reproduction.whitening import fit_whitening, side_by_side
from whatwhere.data import few_labels

SHARES = (1000.0, 100.0, 30.0, 10.0, 3.0, 1.0, 0.0)
COUNTS = (100, 300, 1000, 3000)
GRID = (0.1, 0.3, 1.0, 3.0, 10.0)
SOME = 10  # draws


def unwhitened(parts):
    return dense(side_by_side(parts), torch.device(DEVICE))


class Choices(Steps):
    """The rows of the training images, in both views, and the errors of what is compared."""

    def __init__(self, log: Log, evaluator, cells, tiny: bool) -> None:
        self.log, self.evaluator, self.cells, self.name, self.tiny = (
            log,
            evaluator,
            cells,
            "mnist",
            tiny,
        )
        self.images, self.y, self.rows, self.blocks = {}, None, {}, {}

    def describe(self, row: str, name: str) -> None:
        """The rows of a method in the views that are still missing."""
        start, job = time.perf_counter(), self.cells[f"{row} / error"].jobs[0]
        for view in job.data.views():
            key = name, view.deskew
            if key in self.rows:
                continue
            training, _ = self.evaluator.images(view)
            self.images[view.deskew], self.y = training, training.labels
            if name == "this model":
                parts = [
                    self.evaluator._model_rows(*each)
                    for each in self.models(view, job.features, training)
                ]
                self.rows[key] = side_by_side(parts)
            else:
                self.rows[key] = torch.from_numpy(job.features.fit(training)[0]).to(DEVICE)
            self.blocks[key] = self.evaluator._blocks(view, job.features) or (
                self.rows[key].shape[1],
            )
        self.log.put(
            described=row,
            columns={str(k): x.shape[1] for k, x in self.rows.items()},
            seconds=round(time.perf_counter() - start, 2),
        )

    def models(self, view, features, images):
        return [(model, images, recipe) for model, recipe in self.evaluator._models(view, features)]

    def whitened(self, name: str, views: tuple[bool, ...], share: float):
        """The whitening of a method's rows, fitted to all training images: a function of the rows
        of every view."""
        fits = [
            fit_whitening(self.rows[name, v], share, self.blocks[name, v], device=DEVICE)
            for v in views
        ]
        return lambda parts: side_by_side([fit(x) for fit, x in zip(fits, parts, strict=True)])

    def describe_again(self, row: str, name: str) -> None:
        """Until there is room on the device: other programs may need it at first."""
        for _ in range(4):
            self.step(30, self.describe, row, name)
            if all(
                (name, view.deskew) in self.blocks
                for view in self.cells[f"{row} / error"].jobs[0].data.views()
            ):
                return
            time.sleep(10)

    # class (b) ------------------------------------------------------------------------------------

    def moves(self, row: str, grid: tuple[float, ...]) -> None:
        """Errors with virtual samples, of an image alone and averaged over it and its moves."""
        job = self.cells[f"{row} / error"].jobs[0]
        views, held = tuple(view.deskew for view in job.data.views()), len(self.y) * 5 // 6
        white = self.whitened("this model", views, job.classifier.whiten)
        x = white([self.rows["this model", v] for v in views])
        job = replace(job, data=replace(job.data, eval_split="validation"))
        rows = LabelledRows(x[:held], self.y[:held], x[held:], self.y[held:])
        svm, start = DualEvaluation(rows, job, torch.device(DEVICE)), None

        def describe(wanted):
            made = []
            for view in job.data.views():
                training = replace(view, eval_split="test"), job.features
                pictures = self.images[view.deskew]
                images = wanted(
                    pictures.subset(np.arange(held)), pictures.subset(np.arange(held, len(self.y)))
                )
                parts = [
                    self.evaluator._model_rows(*each) for each in self.models(*training, images)
                ]
                made.append(side_by_side(parts))
            return white(made)

        turned = None
        for C in grid:
            began = time.perf_counter()
            start = fit_support_vectors(svm.x, svm.t, C, None, start)
            f = decision(svm.x_test, svm.x[start.rows], start.a, None)
            support, found, virtual = svm.with_virtual_samples(
                start, CTrial(C=C, error=0.0), describe
            )
            if turned is None:
                turned = [
                    dense(describe(classifiers.moved_test(move)), svm.x.device)
                    for move in svm.moves
                ]
            scores = [decision(part, support, found.a, None) for part in (svm.x_test, *turned)]
            self.log.put(
                moves=row,
                C=C,
                support=len(start.rows),
                virtual=virtual,
                without_virtual=self.wrong(f, held),
                alone=self.wrong(scores[0], held),
                shifts=self.wrong(sum(scores[:5]), held),
                turns=self.wrong(sum([scores[0], *scores[5:]]), held),
                all=self.wrong(sum(scores), held),
                seconds=round(time.perf_counter() - began, 2),
            )

    def wrong(self, f: torch.Tensor, held: int) -> int:
        return int((f.argmax(1).cpu().numpy() != self.y[held:]).sum())

    # few labels -----------------------------------------------------------------------------------

    def few(
        self,
        name: str,
        views: tuple[bool, ...],
        shares=SHARES,
        counts=COUNTS,
        grid=GRID,
        draws=SOME,
    ) -> None:
        """Mean errors in % by share and C, all labels of a draw fitted at once."""
        held = len(self.y) * 5 // 6
        for share in shares:
            start = time.perf_counter()
            white = self.whitened(name, views, share) if share else unwhitened
            raw = [self.rows[name, v] for v in views]
            x_eval, errors = white([x[held:] for x in raw]), {}
            for count in counts:
                wrong = {C: [] for C in grid}
                for seed in range(draws):
                    drawn = few_labels(self.y[:held], count, seed)
                    x, t = white([rows[drawn] for rows in raw]), targets(self.y[drawn])
                    K, K_eval = kernel_rows(x, x).double(), kernel_rows(x_eval, x).double()
                    Cs = torch.tensor(grid, dtype=K.dtype, device=K.device).repeat_interleave(10)
                    use = torch.ones(count, len(Cs), dtype=torch.bool, device=K.device)
                    f = K_eval @ solve_batch(K, t.repeat(1, len(grid)), use, Cs)
                    for i, C in enumerate(grid):
                        wrong[C].append(
                            100 * self.wrong(f[:, 10 * i : 10 * i + 10], held) / len(x_eval)
                        )
                errors[count] = {C: round(float(np.mean(each)), 3) for C, each in wrong.items()}
            self.log.put(
                few=name,
                views=views,
                share=share,
                draws=draws,
                errors=errors,
                seconds=round(time.perf_counter() - start, 2),
            )

    def chosen(self, name: str, views: tuple[bool, ...], shares, grid, count: int) -> None:
        """The error where the share is chosen with C within the drawn labels."""
        start, held = time.perf_counter(), len(self.y) * 5 // 6
        x = side_by_side([self.rows[name, v] for v in views])
        blocks = tuple(width for v in views for width in self.blocks[name, v])
        rows = LabelledRows(x[:held], self.y[:held], x[held:], self.y[held:], blocks)
        job = FewLabelJob(
            DataSpec("mnist"),
            self.cells["(a) k-means / error"].jobs[0].features,
            grid,
            count,
            True,
            shares,
        )
        found = classifiers.evaluate_few_labels(rows, job, torch.device(DEVICE))
        self.log.put(
            chosen=name,
            views=views,
            labels=count,
            shares=shares,
            grid=grid,
            error=round(100 * found.mean, 3),
            errors=found.errors,
            chosen_shares=found.whitening,
            Cs=found.Cs,
            seconds=round(time.perf_counter() - start, 2),
        )


def moves(s: Choices) -> None:
    s.describe_again("(b) this model", "this model")
    s.step(60, s.moves, "(b) this model", (3.0, 0.3))


def few(s: Choices) -> None:
    counts = (20, 40) if s.tiny else COUNTS
    shares = (100.0, 30.0, 10.0, 3.0)
    for method, frames in (
        ("this model", ("a", "a, upright")),
        ("scattering", ("a", "a, upright")),
    ):
        if method == "scattering" and s.tiny:
            continue
        for frame, views in zip(frames, ((False,), (False, True)), strict=True):
            s.describe_again(f"({frame}) {method}", method)
            s.step(
                20, s.few, method, views, SHARES if method == "this model" else SHARES[:-1], counts
            )
            for count in counts:
                for grid in ((1.0,), (0.3, 1.0, 3.0)):
                    s.step(10, s.chosen, method, views, shares, grid, count)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--cache", type=Path, default=Path("runs/reproduce"))
    parser.add_argument("--seconds", type=float, default=500.0)
    parser.add_argument("--part", choices=("moves", "few"), required=True)
    parser.add_argument(
        "--tiny", action="store_true", help="some digits and small models, to see that it runs"
    )
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    scale = read_scale("quick" if given.tiny else "paper")
    if given.tiny:
        small = {
            "batch_size": 30,
            "model": {"layers": {"1": {"maps": 3}, "2": {"maps": 4, "fan_in": 2}}},
        }
        steps = {"learning": {"each": {"inference": {"steps": 2}}}, "inference": {"steps": 2}}
        scale = replace(
            scale, data=replace(scale.data, limit=90), changes=(*scale.changes, small, steps)
        )
    options = ReproduceOptions(given.results, given.cache)
    log = Log(given.out, given.seconds, f"best_choices_{given.part}.json")
    evaluator = open_evaluator(scale, options, TimeLimit(None), print)
    choices = Choices(
        log, evaluator, {cell.name: cell for cell in cells_of("best", scale)}, given.tiny
    )
    {"moves": moves, "few": few}[given.part](choices)


if __name__ == "__main__":
    main()
