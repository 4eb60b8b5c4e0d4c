"""Ten labels: ideas for the graph and for its use on new images, on validation images of MNIST.

    python -m reproduction.studies.ten_labels_ideas --data FOLDER --models FOLDER --out FOLDER
    [--tiny]

The rows are those of `ten_labels` in the chosen metric; so are the split and the log. Compared:
numbers of neighbours, the nearest of distorted copies, scores of an SVM that are smoothed over the
graph, a linear SVM on the classes that the graph finds, and distortions one by one.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reproduction.studies import ten_labels as study
from reproduction.studies.ten_labels import (
    CHOSEN,
    Log,
    Split,
    both,
    graph_errors,
    side_by_side,
    spread,
    svm_errors,
)
from whatwhere.classification.descriptors import unit_length
from whatwhere.classification.linear_svm import fit_svm
from whatwhere.classification.metric import distort
from whatwhere.classification.neighbour_graph import symmetric_graph
from whatwhere.classification.neighbours import Neighbours, neighbour_weights
from whatwhere.classification.settings import Distortions

KINDS = ("rotation", "shear", "scale", "shift", "elastic")


def times(how: Distortions, factor: float) -> Distortions:
    return replace(how, **{kind: factor * getattr(how, kind) for kind in KINDS})


def copies(splits: list[Split], how: Distortions, count: int = 4) -> Tensor:
    """Rows [count, N, r] of distorted copies of the images that learn, the same copies for every
    kind of rows."""
    parts = []
    for split in splits:
        metric, generator = split.moments.metric(**CHOSEN), torch.Generator().manual_seed(11)
        parts.append(
            torch.stack(
                [
                    torch.cat(
                        [
                            metric(split.function(distort(v.to(study.DEVICE), how, generator)))
                            for v in split.v.split(study.BATCH)
                        ]
                    )
                    for _ in range(count)
                ]
            )
        )
    return unit_length(torch.cat(parts, 2))


class NearestCopies:
    """Neighbours by the smallest distance to a row or one of its copies, with the methods of
    `Neighbours`."""

    def __init__(self, rows: Tensor, copies: Tensor) -> None:
        self.rows, self.every = rows, [rows, *copies]

    def others(self, count: int) -> tuple[Tensor, Tensor]:
        squares, found = self.nearest(self.rows, count + 1)
        itself = found == torch.arange(len(found), device=found.device)[:, None]
        itself[:, -1] |= ~itself.any(1)
        return squares[~itself].view(-1, count), found[~itself].view(-1, count)

    def nearest(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        parts = []
        for q in queries.split(2000):
            cosines = torch.stack([(q @ rows.T) for rows in self.every]).amax(0)
            parts.append(cosines.topk(count))
        cosines, found = (
            torch.cat([getattr(part, name) for part in parts]) for name in ("values", "indices")
        )
        return (2 - 2 * cosines).clamp(min=1e-9), found


def smoothed(rows, count: int, alpha: float = 0.99, steps: int = 100, draws: int = 5) -> dict:
    """Errors in % of the scores of an SVM on the labels, smoothed over the graph."""
    z, y, z_new, y_new = rows
    neighbours, errors = Neighbours(z, study.DEVICE), []
    squares, found = neighbours.others(10)
    graph = symmetric_graph(neighbour_weights(squares), found)
    degree = graph @ torch.ones(len(z), 1, dtype=graph.dtype, device=z.device)
    squares, found = neighbours.nearest(z_new, 10)
    weights = neighbour_weights(squares).double()
    for drawn in spread(graph, y, count, draws)[1]:
        svm = fit_svm(z[drawn], y[drawn].cpu().numpy(), 1.0, device=study.DEVICE)
        first = (4 * torch.from_numpy(svm.decision(z)).to(z.device).double()).softmax(1)
        first[drawn] = torch.nn.functional.one_hot(y[drawn], 10).double()
        scores = first
        for _ in range(steps):
            scores = alpha * (graph @ scores) / degree + (1 - alpha) * first
        guess = (weights[:, :, None] * scores[found]).sum(1).argmax(1)
        errors.append(100 * float((guess != y_new).double().mean()))
    return {"errors": f"{np.mean(errors):.3f}±{np.std(errors):.3f}"}


def ideas(log: Log, data: Path, models: Path) -> None:
    v, y = study.read(data / "mnist", "train")
    held, how = (300 if study.TINY else 50_000), Distortions()
    kinds = study.TESTED["mnist"]
    splits = {
        key: Split(
            f"mnist {key}", study.describer(models, "mnist", key, v[:held]), v, y, held, how, log
        )
        for key in sorted({key for keys in kinds.values() for key in keys})
    }
    for title, keys in kinds.items():
        rows = side_by_side([splits[key] for key in keys], **CHOSEN)
        log.step(
            f"mnist rule {title}",
            lambda r=rows: {
                **both(r, (10, 50, 100)),
                "svm": svm_errors(*r, Cs=(1.0,), every=(1.0,)),
            },
        )
        log.step(
            f"mnist svm of the graph's classes {title}", lambda r=rows: study.classes_errors(*r)
        )
        for k in (5, 7, 15, 20):
            log.step(f"mnist k {k} {title}", lambda r=rows, k=k: both(r, k=k))
        for count in (10, 100):
            log.step(f"mnist smooth {title} {count} labels", lambda r=rows, c=count: smoothed(r, c))
        for strength in (0.5, 1.0):
            log.step(
                f"mnist nearest of copies, {strength:g} times, {title}",
                lambda r=rows, k=keys, f=strength: {
                    "graph": graph_errors(
                        *r,
                        neighbours=NearestCopies(
                            r[0], copies([splits[x] for x in k], times(how, f))
                        ),
                    )
                },
            )
    one = splits["image"]
    trials = {"all": how, **{f"{f:g} times": times(how, f) for f in (0.5, 2.0)}}
    trials |= {
        f"only {kind}": replace(times(how, 0.0), **{kind: getattr(how, kind)}) for kind in KINDS
    }
    trials |= {f"without {kind}": replace(how, **{kind: 0.0}) for kind in KINDS}
    trials |= {f"copies {count}": replace(how, copies=count) for count in (2, 8)}
    for name, trial in trials.items():

        def measure(trial: Distortions = trial) -> dict:
            rows = one.rows(study.moments_of(one.function, one.x, one.v, trial), **CHOSEN)
            return {**both(rows), "svm": svm_errors(*rows, (100, 1000), (1.0,))}

        log.step(f"mnist distortions {name}", measure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--models",
        type=Path,
        required=True,
        help="folder of models; those that are missing are learned",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=900.0)
    parser.add_argument(
        "--tiny", action="store_true", help="few images and draws, to see that it runs"
    )
    given = parser.parse_args()
    if given.tiny:
        study.TINY, study.DRAWS, study.BATCH = True, 2, 100
    given.out.mkdir(parents=True, exist_ok=True)
    ideas(Log(given.out / "ten_labels_ideas.jsonl", given.seconds), given.data, given.models)


if __name__ == "__main__":
    main()
