"""Labels back-propagated through unrolled steps of inference: a sparse code as the first layer of a
classifier.

    python examples/finetuning.py            (half a minute on one core)

Layer 1 of the model `mnist` becomes `SparseCode2d`. Its filters and step sizes were trained without
labels; this script trains them further, together with a linear head, on 500 labels. The script fits
the head as a linear SVM on the code, before and after this training, so that the errors compare
only the codes. The last line of the output is the baseline: the same SVM on 50 plain steps of
inference, which use no label.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, normalize, one_hot

import whatwhere as ww
from whatwhere.classification import fit_svm

STEPS, UPDATES, BATCH, LABELS, TEST, C = 2, 40, 25, 500, 500, 10.0


def describe(features: Tensor) -> Tensor:
    """Features [N, 16, 16, 16] → the root mean square of every 2 × 2 positions, scaled to unit
    length, [N, 1024]."""
    return normalize((avg_pool2d(features.square(), 2) + 1e-6).sqrt().flatten(1))


@torch.no_grad()
def fit_head(head: nn.Linear, rows: Tensor, labels: Tensor) -> None:
    """Set the head to the linear SVM of rows [N, 1024]."""
    svm = fit_svm(rows, labels.numpy(), C)
    head.weight.copy_(torch.from_numpy(svm.weights))
    head.bias.copy_(torch.from_numpy(svm.intercepts))


def squared_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """The loss of the SVM: Σ_k max(0, 1 - t_k s_k)², t = ±1 for the true class and the others."""
    signs = 2.0 * one_hot(labels, 10) - 1
    return (1 - signs * scores).clamp(min=0).square().sum(1).mean()


def main() -> None:
    torch.manual_seed(0)
    shipped, train, test = (
        ww.load("mnist"),
        ww.data.load("digits"),
        ww.data.load("digits", split="test"),
    )
    spec = replace(shipped.spec, layers=shipped.spec.layers[:1])
    model = ww.DeconvNet.from_parts(spec, shipped.filters[:1], shipped.connectivity[:1])
    code, head = ww.nn.SparseCode2d.from_model(model, STEPS), nn.Linear(1024, 10)
    images, labels = train[:LABELS], torch.from_numpy(train.labels[:LABELS])
    test_images, test_labels = test[:TEST], torch.from_numpy(test.labels[:TEST])

    @torch.no_grad()
    def svm_error(rows: Tensor, test_rows: Tensor) -> float:
        fit_head(head, rows, labels)
        return (head(test_rows).argmax(1) != test_labels).double().mean().item()

    @torch.no_grad()
    def code_error() -> float:
        return svm_error(describe(code(images)), describe(code(test_images)))

    print(f"SVM on {STEPS} steps, as they are:       {code_error():.1%}")
    optimizer = torch.optim.Adam([*code.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(UPDATES):
        batch = torch.randperm(LABELS)[:BATCH]
        loss = squared_hinge(head(describe(code(images[batch]))), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        code.project_()  # filters stay non-negative and of unit length
    print(f"SVM on {STEPS} steps, labels in them:    {code_error():.1%}")
    plain = [
        describe(ww.infer(model, x, ww.InferenceSpec(steps=50)).features)
        for x in (images, test_images)
    ]
    print(f"SVM on 50 plain steps, no labels: {svm_error(*plain):.1%}")


if __name__ == "__main__":
    main()
