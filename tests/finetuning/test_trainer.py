"""Fine-tuning: the loss falls, on images it has not seen too, constraints hold, and a seed repeats it."""

import numpy as np
import pytest
import torch

from tiny_finetuning import RECIPE, bars, model, settings
from whatwhere.classification.linear_svm import fit_svm
from whatwhere.errors import ImageError, RunError
from whatwhere.finetuning import FinetunedModel, FinetuneEpoch, FinetuneSpec, finetune
from whatwhere.finetuning.trainer import (
    fit_head,
    measured_schedule,
    passes,
    rate,
    squared_hinge,
    start_network,
    train,
)
from whatwhere.inference import infer


def test_it_lowers_the_loss_of_the_svm_it_begins_with_and_keeps_the_constraints() -> None:
    images, labels = bars(48)
    seen: list[FinetuneEpoch] = []
    spec = settings(epochs=12, dropout=0.0, C=3.0)
    tuned = finetune(model(), images, labels, spec, recipe=RECIPE, device="cpu", progress=seen.append)
    assert [epoch.epoch for epoch in seen] == list(range(1, 13))
    assert tuple(seen) == tuned.history
    assert hinge(tuned, images, labels) < 0.5 * svm_hinge(images, labels, spec)
    score = tuned.score(*bars(60, seed=1))
    assert score.classes == (3, 7)
    assert score.error <= 0.15
    for old, new, connected in zip(model().filters, tuned.model.filters, tuned.model.connectivity, strict=True):
        assert (new != old).any()
        assert (new >= 0).all()
        assert (new[~connected] == 0).all()
        length = new.square().sum((2, 3)).sqrt()
        assert torch.allclose(length[length > 0], torch.ones_like(length[length > 0]), atol=1e-5)
    for used, parameter in zip(tuned.model.filters, tuned.network.coder.filters, strict=True):
        assert torch.allclose(used, parameter, atol=1e-6), "projected after every update"


def hinge(tuned: FinetunedModel, images: torch.Tensor, labels: np.ndarray) -> float:
    signs = np.where(labels[:, None] == tuned.classes, 1, -1)
    return float((np.maximum(0, 1 - signs * tuned.decision(images)) ** 2).sum(1).mean())


def svm_hinge(images: torch.Tensor, labels: np.ndarray, spec: FinetuneSpec) -> float:
    """The loss of scikit-learn's linear SVM on the features of the model as it was."""
    network = start_network(model(), images, 2, spec, RECIPE)
    with torch.no_grad():
        x = network.describe(network.coder.code(images)).numpy()
    svm = fit_svm(x, labels, spec.C, solver="liblinear")
    signs = np.where(labels[:, None] == svm.classes, 1, -1)
    return float((np.maximum(0, 1 - signs * svm.decision(x)) ** 2).sum(1).mean())


def test_the_head_begins_as_the_linear_svm() -> None:
    images, labels = bars(48)
    network = start_network(model(), images, 2, settings(), RECIPE)
    fit_head(network, images, torch.from_numpy((labels == 7).astype(int)), 3.0)
    with torch.no_grad():
        x = network.describe(network.coder.code(images)).numpy()
    svm = fit_svm(x, labels, 3.0, solver="liblinear")
    assert np.allclose(FinetunedModel(network.eval(), np.array([3, 7])).decision(images), svm.decision(x), atol=1e-2)


def test_the_head_ends_as_the_linear_svm_of_the_learned_features() -> None:
    images, labels = bars(48)
    tuned = finetune(model(), images, labels, settings(epochs=2, C=3.0), recipe=RECIPE, device="cpu")
    with torch.no_grad():
        x = tuned.network.describe(tuned.network.coder.code(images)).numpy()
    svm = fit_svm(x, labels, 3.0, solver="liblinear")
    assert np.allclose(tuned.decision(images), svm.decision(x), atol=1e-2)
    assert not np.allclose(FinetunedModel(tuned.start, tuned.classes).decision(images), svm.decision(x), atol=1e-2)


@pytest.mark.parametrize(
    ("fixed", "parts"),
    [
        ("head_rate", ("head.weight", "head.bias")),
        ("size_rate", ("coder.log_sizes", "coder.momentum", "coder.log_scales")),
    ],
)
def test_each_part_has_its_learning_rate(fixed: str, parts: tuple[str, ...]) -> None:
    images, labels = bars(12)
    spec = settings(epochs=1, **{fixed: 0.0})
    network, targets = start_network(model(), images, 2, spec, RECIPE), torch.from_numpy((labels == 7).astype(int))
    fit_head(network, images, targets, 0.1)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    train(network, images, targets, spec, lambda epoch: None)
    same = {name for name, value in network.state_dict().items() if torch.equal(value, before[name])}
    assert same & dict(network.named_parameters()).keys() == set(parts)


def test_the_loss_is_the_squared_hinge_of_every_class() -> None:
    scores, targets = torch.tensor([[0.5, -2.0, 0.0], [0.0, 3.0, -0.25]]), torch.tensor([0, 1])
    expected = ((1 - 0.5) ** 2 + 0 + 1.0**2 + 1.0**2 + 0 + 0.75**2) / 2
    assert squared_hinge(scores, targets).item() == pytest.approx(expected)


def test_infer_gives_the_features_that_the_head_sees() -> None:
    images, labels = bars(12)
    tuned = finetune(model(), images, labels, settings(epochs=1), recipe=RECIPE, device="cpu")
    solution = infer(tuned.model, images, tuned.inference, engine="reference")
    with torch.no_grad():
        scores = tuned.network.scores(solution.latents)
    assert np.allclose(scores.numpy(), tuned.decision(images), atol=1e-5)
    assert tuned.cost(images) == pytest.approx(float(solution.stats.cost[-1].mean()), rel=1e-5)


def test_steps_that_are_learned_first_start_nearer_to_plain_features_and_have_their_own_filters_up() -> None:
    images, labels = bars(12)
    plain = infer(model(), images, RECIPE.inference, engine="reference").features
    distances = []
    for batches in (1, 15):
        network = start_network(model(), images, 2, settings(distill=batches), RECIPE)
        with torch.no_grad():
            distances.append(float((network.coder.code(images).p - plain).norm()))
    assert distances[1] < distances[0]
    tuned = finetune(model(), images, labels, settings(epochs=1, distill=2), recipe=RECIPE, device="cpu")
    assert not tuned.model.tied
    assert not torch.equal(tuned.model.upward[1], tuned.start.coder.model.upward[1].detach())
    with torch.no_grad():
        scores, cost = tuned.network.scores_and_cost(images)
    assert np.allclose(tuned.decision(images), scores.numpy(), atol=1e-4), "by another engine"
    assert tuned.cost(images) == pytest.approx(float(cost.mean()), rel=1e-4)


def test_steps_can_be_learned_from_images_without_labels() -> None:
    (images, _), (others, _) = bars(8), bars(12, seed=1)
    spec, networks = settings(distill=2, dropout=0.3), []
    for source in (None, images, others):
        networks.append(start_network(model(), images, 2, spec, RECIPE, source))
    sizes = [network.coder.log_sizes for network in networks]
    assert torch.equal(sizes[0], sizes[1])
    assert not torch.equal(sizes[0], sizes[2])
    assert networks[0].dropout == 0.3


def test_a_seed_repeats_it_and_another_differs() -> None:
    first, again, other = (
        finetune(model(), *bars(), settings(epochs=1, seed=seed), recipe=RECIPE, device="cpu") for seed in (0, 0, 1)
    )
    assert torch.equal(first.network.head.weight, again.network.head.weight)
    assert not torch.equal(first.network.head.weight, other.network.head.weight)


def test_reconstruction_in_the_loss_keeps_the_cost_lower() -> None:
    images, labels = bars()
    costs = []
    for weight in (0.0, 10.0):
        tuned = finetune(model(), images, labels, settings(reconstruction=weight), recipe=RECIPE, device="cpu")
        costs.append(tuned.cost(images))
        assert (tuned.history[-1].cost is None) == (weight == 0)
    assert costs[1] < costs[0]
    assert costs[1] < tuned.cost_before(images)


def test_the_first_sizes_are_those_of_the_line_search() -> None:
    images, _ = bars(7)
    schedule = measured_schedule(model(), images, RECIPE.inference, 2).schedule
    steps = infer(model(), images, RECIPE.inference, engine="reference").stats.step
    assert schedule[0].size == pytest.approx(np.quantile(steps[0].numpy(), 0.1), rel=1e-4)
    assert len(schedule) == 2


def test_few_images_get_more_passes_and_the_rate_ends_at_zero() -> None:
    assert passes(1000, settings(batch_size=100, epochs=3)) == (10, 3)
    assert passes(20, settings(batch_size=100, epochs=3, least_updates=50)) == (1, 50)
    rates = [rate(update, 100) for update in range(100)]
    assert max(rates) == 1
    assert rates[0] < 0.5
    assert rates[-1] < 0.01


def test_what_cannot_be_learned_from_is_an_error() -> None:
    images, labels = bars(4)
    with pytest.raises(ImageError, match="images without labels"):
        finetune(model(), images, device="cpu")
    with pytest.raises(ImageError, match="expected at least two classes"):
        finetune(model(), images, np.ones(4, int), device="cpu")
    with pytest.raises(ImageError, match="expected one label per image"):
        finetune(model(), images, labels[:3], device="cpu")
    with pytest.raises(ImageError, match="values down to"):
        finetune(model(), -images, labels, device="cpu")
    with pytest.raises(RunError, match=r"choose a learning rate below 1e\+20"):
        finetune(model(), images, labels, settings(learning_rate=1e20), recipe=RECIPE, device="cpu")
