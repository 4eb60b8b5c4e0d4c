"""The metric of distortions against a dense solve, streams against everything at once, files,
errors."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from whatwhere.classification.metric import (
    Covariance,
    Metric,
    MetricSettings,
    distort,
    fit_metric,
    metric_of,
    whitening_of,
)
from whatwhere.classification.settings import Distortions
from whatwhere.errors import ImageError, SpecError

HOW = Distortions(copies=3, seed=4)


def images(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 1, 5, 4, generator=torch.Generator().manual_seed(seed))


def describe(v: Tensor) -> Tensor:
    """Some function of images, [N, 20]."""
    mix = torch.randn(20, 20, generator=torch.Generator().manual_seed(1))
    return (v.flatten(1) @ mix).tanh()


def dense_metric(v: Tensor, rank: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """The mean [D] and the map [r, D] of the metric, by eigenvectors of full matrices in
    float64."""
    generator = torch.Generator().manual_seed(HOW.seed)
    x = describe(v).double().numpy()
    copies = np.stack(
        [describe(distort(v, HOW, generator)).double().numpy() for _ in range(HOW.copies)], 1
    )
    inside = (copies - copies.mean(1, keepdims=True)).reshape(-1, x.shape[1])
    W = inside.T @ inside / (len(v) * (HOW.copies - 1))
    values, vectors = np.linalg.eigh(W)
    B = vectors @ np.diag((values.clip(0) + share * np.trace(W) / len(W)) ** -0.5) @ vectors.T
    T = np.cov(x.T, bias=True)
    U = np.linalg.eigh(B @ T @ B).eigenvectors[:, ::-1][:, :rank]
    return x.mean(0), U.T @ B


@pytest.mark.parametrize("share", [0.05, 3.0])
@pytest.mark.parametrize("rank", [6, 20])
def test_the_metric_is_that_of_full_matrices(share: float, rank: int) -> None:
    v = images(80)
    mean, matrix = dense_metric(v, rank, share)
    wanted = (describe(v).double().numpy() - mean) @ matrix.T
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    settings = MetricSettings(rank=rank, share=share, batch=80)
    found = fit_metric(describe, v, HOW, settings=settings)(describe(v)).double().numpy()
    # the sign of a column is free
    np.testing.assert_allclose(found @ found.T, wanted @ wanted.T, atol=2e-4)


def test_few_directions_have_their_own_variance_and_the_others_the_mean_of_theirs() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 12, generator=rng) * torch.linspace(5, 0.1, 12)
    within = Covariance(4)
    within.add(rows)
    W = (rows.T @ rows / 500).double()
    values, vectors = torch.linalg.eigh(W)
    kept = values.clone()
    kept[:-4] = values[:-4].mean()
    epsilon = 0.2 * values.mean()
    B = vectors @ torch.diag((kept + epsilon) ** -0.5) @ vectors.T
    x = torch.randn(7, 12, generator=rng)
    wanted = (x.double() @ B) * (kept[0] + epsilon).sqrt()
    torch.testing.assert_close(whitening_of(within, 0.2)(x).double(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_stream_of_small_batches_has_the_same_second_moments(batch: int) -> None:
    rows = torch.randn(200, 9, generator=torch.Generator().manual_seed(0))
    stream = Covariance(9)
    for part in rows.split(batch):
        stream.add(part)
    kept = stream.rows()
    assert len(kept) <= 9
    torch.testing.assert_close(kept.T @ kept, rows.T @ rows / 200, rtol=1e-4, atol=1e-4)


def test_a_stream_keeps_the_large_directions_of_more_columns_than_it_has_room_for() -> None:
    rows = torch.randn(600, 30, generator=torch.Generator().manual_seed(0)) * 0.7 ** torch.arange(
        30
    )
    stream = Covariance(10)
    for part in rows.split(25):
        stream.add(part)
    found = torch.linalg.svdvals(stream.rows()).square()
    wanted = torch.linalg.svdvals(rows).square() / 600
    torch.testing.assert_close(found[:5], wanted[:5], rtol=0.01, atol=0)
    assert stream.squares == pytest.approx(float(rows.double().square().sum()), rel=1e-5)


def test_directions_that_distortions_move_count_less() -> None:
    """Column 0 tells images apart, column 1 is where an image is: only the second one changes in
    copies."""

    def moved_and_what(v: Tensor) -> Tensor:
        return torch.stack([v.amax((1, 2, 3)) * 3, v.flatten(1).argmax(1).float() % v.shape[3]], 1)

    spots = torch.zeros(60, 1, 9, 9)
    generator = torch.Generator().manual_seed(0)
    spots[range(60), 0, torch.randint(2, 7, (60,), generator=generator), 4] = (
        torch.rand(60, generator=generator) + 0.5
    )
    shifts = Distortions(rotation=0, shear=0, scale=0, elastic=0, shift=0.3)
    metric = fit_metric(moved_and_what, spots, shifts, settings=MetricSettings(rank=2, share=1e-3))
    assert float(metric.matrix[0, 1].abs()) < 0.2 * float(metric.matrix[0, 0].abs())


def test_rows_may_be_arrays_or_tensors_and_come_out_of_unit_length() -> None:
    metric, x = (
        fit_metric(describe, images(30), HOW, settings=MetricSettings(rank=5)),
        describe(images(12, seed=3)),
    )
    found = metric(x)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(12))
    torch.testing.assert_close(metric(x.numpy()), found)
    assert metric(x[:0]).shape == (0, 5)


def test_images_are_used_up_to_a_number() -> None:
    seen: list[int] = []
    few = MetricSettings(rank=3, images=10, batch=4)
    fit_metric(describe, images(33), HOW, settings=few, progress=seen.append)
    assert seen == [4, 4, 2]


@pytest.mark.parametrize("kind", [torch.as_tensor, np.asarray])
def test_descriptors_that_are_known_are_not_computed_again(
    kind: Callable[[Tensor], Tensor | np.ndarray],
) -> None:
    few = MetricSettings(rank=5, images=20, batch=8)
    v = images(33)
    counts: list[int] = []

    def counted(v: Tensor) -> Tensor:
        counts.append(len(v))
        return describe(v)

    wanted = fit_metric(describe, v, HOW, settings=few)
    found = fit_metric(counted, v, HOW, described=kind(describe(v)), settings=few)
    assert sum(counts) == 20 * HOW.copies, "only the copies are described"
    torch.testing.assert_close(found(describe(v)), wanted(describe(v)))


def test_constant_images_and_one_image_give_finite_rows() -> None:
    for v in (torch.zeros(9, 1, 5, 4), images(1)):
        metric = fit_metric(lambda v: v.flatten(1), v, HOW, settings=MetricSettings(rank=3))
        assert metric(torch.rand(4, 20)).isfinite().all()


def test_a_metric_comes_back_from_its_tensors() -> None:
    metric, x = (
        fit_metric(describe, images(30), HOW, settings=MetricSettings(rank=5)),
        describe(images(8)),
    )
    again = Metric.from_tensors(metric.tensors(), HOW)
    assert torch.equal(again(x), metric(x))
    with pytest.raises(SpecError, match="the sizes of its tensors do not match"):
        Metric.from_tensors({**metric.tensors(), "metric.mean": torch.ones(3)}, HOW)


def test_wrong_rows_and_settings_raise() -> None:
    metric = fit_metric(describe, images(9), HOW, settings=MetricSettings(rank=2))
    with pytest.raises(ImageError, match="19 columns"):
        metric(torch.rand(2, 19))
    with pytest.raises(ImageError, match="empty"):
        fit_metric(describe, images(0))
    with pytest.raises(ImageError, match="8 descriptors of 9 images; expected one for each"):
        fit_metric(describe, images(9), described=torch.rand(8, 20))


def test_covariances_of_one_and_two_threads_give_the_same_metric() -> None:
    v, threads, found = images(40), torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        found.append(fit_metric(describe, v, HOW, settings=MetricSettings(rank=5))(describe(v)))
    torch.set_num_threads(threads)
    torch.testing.assert_close(*(x @ x.T for x in found), rtol=0, atol=1e-4)


def test_the_metric_of_moments_needs_no_images() -> None:
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    within, total = Covariance(6), Covariance(6)
    within.add(x[:20])
    total.add(x)
    assert metric_of(within, total, x.mean(0), HOW, MetricSettings(rank=4))(x).shape == (50, 4)
