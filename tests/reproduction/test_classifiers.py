"""The SVMs of jobs: by support vectors as in the primal, a kernel's width without test images,
virtual samples."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from reproduction.baselines import RawPixels
from reproduction.classifiers import LabelledRows, evaluate_few_labels, evaluate_job
from reproduction.few_labels import draw_errors, t_interval
from reproduction.jobs import ClassifierSpec, DataSpec, EvaluationJob, FewLabelJob
from reproduction.records import job_table, parse_job
from reproduction.svm.kernel_svm import kernel_rows, solve, targets_of
from reproduction.svm.virtual_samples import Move, moved
from reproduction.whitening import fit_whitening
from whatwhere.classification import fit_svm, protocol
from whatwhere.data import Images
from whatwhere.data.images import few_labels

CPU = torch.device("cpu")


def kernel_predictions(x, y, C, width, x_test):
    """The classes of the test rows by an SVM that is solved for all rows at once."""
    classes = np.unique(y)
    a = solve(kernel_rows(x, x, width), targets_of(y, classes, CPU), C)
    return classes[(kernel_rows(x_test, x, width) @ a.to(x)).argmax(1).numpy()]


def images(count: int, seed: int, strength: float = 0.8) -> Images:
    """Bars in two directions, with noise: 6×6 pixels, two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    pixels = rng.uniform(0, 1.0, (count, 1, 6, 6)).astype(np.float32)
    pixels[y == 0, :, 2] += strength
    pixels[y == 1, :, :, 2] += strength
    return Images(pixels, y, "bars")


def rows_of(training: Images, test: Images) -> LabelledRows:
    assert training.labels is not None
    assert test.labels is not None
    return LabelledRows(
        training[:].flatten(1).numpy(), training.labels, test[:].flatten(1).numpy(), test.labels
    )


def job(C: tuple[float, ...], **classifier: object) -> EvaluationJob:
    return EvaluationJob(DataSpec("digits"), RawPixels(), C, ClassifierSpec(**classifier))  # type: ignore[arg-type]


def not_described(wanted: object) -> np.ndarray:
    raise AssertionError("no virtual samples were asked for")


def test_a_dual_solution_is_that_of_the_primal_problem() -> None:
    rows = rows_of(images(120, 0, 0.2), images(80, 1, 0.2))
    primal = evaluate_job(rows, job((0.01, 3.0)), CPU, not_described)
    dual = evaluate_job(rows, job((0.01, 3.0), dual=True), CPU, not_described)
    assert dual["trials"] == primal["trials"]
    assert (dual["score"].errors, dual["score"].C) == (primal["score"].errors, primal["score"].C)
    assert primal["score"].errors > 0


def test_virtual_samples_are_the_support_vectors_moved() -> None:
    training, test = images(60, 0), images(40, 1)
    rows, seen = rows_of(training, test), []

    def describe(wanted):
        seen.append(wanted(training, test))
        return seen[-1][:].flatten(1).numpy()

    plain = evaluate_job(rows, job((10.0, 100.0), dual=True), CPU, not_described)
    found = evaluate_job(
        rows, job((10.0, 100.0), dual=True, virtual_shift=1, virtual_turn=10.0), CPU, describe
    )
    assert found["trials"] == plain["trials"]
    C, svm = plain["score"].C, fit_svm(rows.x, rows.y, plain["score"].C)
    support = np.flatnonzero(
        (np.where(rows.y[:, None] == svm.classes, 1, -1) * svm.decision(rows.x) < 1).any(1)
    )
    assert 0 < len(support) < 60
    assert found["virtual_samples"] == 6 * len(support) == len(seen[0])
    assert torch.equal(seen[0][:][: len(support)], moved(training[support], Move(down=1)))
    x = np.concatenate([rows.x[support], seen[0][:].flatten(1).numpy()])
    expected = fit_svm(x, np.tile(rows.y[support], 7), C).predict(rows.x_test)
    assert found["score"].errors == (expected != rows.y_test).sum()


def test_scores_are_averaged_over_an_image_and_its_moves() -> None:
    """By SVMs in the primal, whose decision functions are averaged one by one."""
    training, test = images(60, 0, 0.2), images(80, 1, 0.2)
    rows = rows_of(training, test)
    options = {"dual": True, "virtual_shift": 1, "virtual_turn": 10.0}

    def describe(wanted):
        return wanted(training, test)[:].flatten(1).numpy()

    single = evaluate_job(rows, job((1.0,), **options), CPU, describe)
    found = evaluate_job(rows, job((1.0,), **options, average_views=True), CPU, describe)
    first = fit_svm(rows.x, rows.y, 1.0)
    support = np.flatnonzero(
        (np.where(rows.y[:, None] == first.classes, 1, -1) * first.decision(rows.x) < 1).any(1)
    )
    ways = [
        Move(down=1),
        Move(down=-1),
        Move(right=1),
        Move(right=-1),
        Move(degrees=10),
        Move(degrees=-10),
    ]
    turned = [moved(training[support], way) for way in ways]
    x = torch.cat([training[support], *turned]).flatten(1).numpy()
    svm = fit_svm(x, np.tile(rows.y[support], 7), 1.0)
    views = [test[:], *(moved(test[:], way) for way in ways)]
    f = np.mean([svm.decision(view.flatten(1).numpy()) for view in views], 0)
    expected = protocol.score_predictions(svm.classes[f.argmax(1)], rows.y_test, solver="")
    assert found["score"].confusion == expected.confusion != single["score"].confusion
    assert found["virtual_samples"] == single["virtual_samples"]


def test_a_gaussian_kernel_is_chosen_on_the_last_sixth() -> None:
    rows = rows_of(images(60, 0), images(40, 1))
    found = evaluate_job(rows, job((0.1, 10.0), dual=True, widths=(0.5, 2.0)), CPU, not_described)
    trials = {(trial.C, trial.width): trial.error for trial in found["trials"]}
    assert list(trials) == [(0.1, 0.5), (10.0, 0.5), (0.1, 2.0), (10.0, 2.0)]
    x = torch.from_numpy(rows.x)
    for (C, width), error in trials.items():
        predicted = kernel_predictions(x[:50], rows.y[:50], C, width, x[50:])
        assert error == (predicted != rows.y[50:]).mean()
    C, width = min(trials, key=lambda pair: trials[pair])
    predicted = kernel_predictions(x, rows.y, C, width, torch.from_numpy(rows.x_test))
    assert found["score"].errors == (predicted != rows.y_test).sum()
    shuffled = LabelledRows(rows.x, rows.y, rows.x_test, rows.y_test[::-1].copy())
    assert (
        evaluate_job(shuffled, job((0.1, 10.0), dual=True, widths=(0.5, 2.0)), CPU, not_described)[
            "trials"
        ]
        == found["trials"]
    )


@pytest.mark.parametrize(
    "options", [{}, {"dual": True, "widths": (0.7,)}, {"dual": True, "virtual_shift": 1}]
)
def test_whitened_rows_are_whitened_for_every_kind_of_svm(options: dict[str, object]) -> None:
    """By NumPy on all training images, before anything else; virtual samples by the same map."""
    training, test = images(90, 0, 0.2), images(80, 1, 0.2)
    rows = replace(rows_of(training, test), blocks=(12, 24))

    def white(x: np.ndarray) -> np.ndarray:
        parts = []
        for part, seen in zip(np.split(x, [12], 1), np.split(rows.x, [12], 1), strict=True):
            covariance = np.cov(seen.T.astype(np.float64), bias=True)
            values, vectors = np.linalg.eigh(
                covariance + 0.5 * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
            )
            made = (part - seen.mean(0)) @ (vectors / np.sqrt(values))
            parts.append(made / np.linalg.norm(made, axis=1, keepdims=True) / np.sqrt(2))
        return np.concatenate(parts, 1).astype(np.float32)

    def pixels(wanted):  # type: ignore[no-untyped-def]
        return wanted(training, test)[:].flatten(1).numpy()

    expected = evaluate_job(
        replace(rows, x=white(rows.x), x_test=white(rows.x_test)),
        job((0.3, 3.0), **options),
        CPU,
        lambda w: white(pixels(w)),
    )
    found = evaluate_job(rows, job((0.3, 3.0), whiten=0.5, **options), CPU, pixels)
    plain = evaluate_job(rows, job((0.3, 3.0), **options), CPU, pixels)
    assert found == expected
    assert found != plain


def test_few_labels_by_support_vectors_give_the_same_errors() -> None:
    rows = rows_of(images(120, 0, 0.2), images(80, 1, 0.2))
    wanted = [
        FewLabelJob(DataSpec("digits"), RawPixels(), (0.01, 3.0), 30, dual)
        for dual in (False, True)
    ]
    primal, dual = (evaluate_few_labels(rows, each, CPU, draws=4) for each in wanted)
    assert dual.Cs == primal.Cs
    assert len(set(dual.Cs)) == 2, "both values of C are chosen in some draw"
    np.testing.assert_allclose(dual.errors, primal.errors, atol=1.01 / 80)
    assert dual.interval == t_interval(dual.errors)


def test_a_share_of_whitening_is_chosen_within_the_drawn_labels() -> None:
    """By a cross-validation with separate SVMs in the primal, for every draw."""
    rows = rows_of(images(120, 0, 0.3), images(80, 1, 0.3))
    shares, C = (0.0, 100.0, 0.1), (0.3,)
    white = {
        0.0: lambda x: x,
        **{s: (lambda x, s=s: fit_whitening(rows.x, s)(x).numpy()) for s in shares[1:]},
    }
    chosen, errors = [], []
    for seed in range(5):
        drawn = few_labels(rows.y, 24, seed)
        y, fold, wrong = rows.y[drawn], protocol.folds(rows.y[drawn]), {}
        for share in shares:
            x = white[share](rows.x[drawn])
            fits = [fit_svm(x[fold != k], y[fold != k], C[0]) for k in range(6)]
            wrong[share] = sum(
                int((fits[k].predict(x[fold == k]) != y[fold == k]).sum()) for k in range(6)
            )
        chosen.append(min(shares, key=lambda share: wrong[share]))
        svm = fit_svm(white[chosen[-1]](rows.x[drawn]), y, C[0])
        errors.append(float((svm.predict(white[chosen[-1]](rows.x_test)) != rows.y_test).mean()))
    found = evaluate_few_labels(
        rows, FewLabelJob(DataSpec("digits"), RawPixels(), C, 24, True, shares), CPU, draws=5
    )
    assert found.whitening == tuple(chosen)
    assert len(set(chosen)) > 1, "the draws differ"
    np.testing.assert_allclose(found.errors, errors, atol=1.01 / 80)


def test_the_classifier_of_a_job_is_in_its_file() -> None:
    wanted = job((1.0,), dual=True, widths=(0.5,), virtual_shift=1, whiten=0.3, average_views=True)
    assert parse_job(job_table(wanted)) == wanted
    few = FewLabelJob(DataSpec("digits"), RawPixels(), (1.0,), 30, True, (0.0, 10.0))
    assert parse_job(job_table(few)) == few
    before = {key: value for key, value in job_table(few).items() if key != "whiten_choices"}
    assert parse_job(before) == replace(few, whiten_choices=(0.0,)), (
        "files from before have rows as they are"
    )
    table = job_table(job((1.0,)))
    assert parse_job({key: value for key, value in table.items() if key != "classifier"}) == job(
        (1.0,)
    )


def clouds(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes around three corners."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    return (np.eye(3)[y] + 0.5 * generator.normal(size=(count, 3))).astype(np.float32), y


def test_a_few_labels_are_drawn_anew_and_tested_alike() -> None:
    rows = *clouds(600, 0), *clouds(300, 1)
    few, many = (draw_errors(rows, count, draws=4, grid=(0.1, 1.0)) for count in (30, 300))
    assert len(few.errors) == len(few.Cs) == 4
    assert len(set(few.errors)) > 1
    assert few.mean == pytest.approx(np.mean(few.errors))
    assert few.interval[0] < few.mean < few.interval[1]
    assert many.mean < few.mean


def test_the_interval_of_a_mean() -> None:
    values = [0.1, 0.2, 0.4]
    theirs = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
    assert t_interval(values) == pytest.approx(theirs)
