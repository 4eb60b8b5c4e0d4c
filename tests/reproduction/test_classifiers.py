"""The SVMs of jobs: a Gaussian kernel's width and C without test images, virtual samples from support vectors."""

import numpy as np
import pytest
import torch

from whatwhere.classification import fit_kernel_svm, fit_svm
from whatwhere.classification.virtual_samples import Move, moved, support_rows
from whatwhere.data import Images
from whatwhere.reproduction import classifiers
from whatwhere.reproduction.baselines import RawPixels
from whatwhere.reproduction.classifiers import evaluate_job
from whatwhere.reproduction.evaluation import LabelledRows
from whatwhere.reproduction.jobs import ClassifierSpec, DataSpec, EvaluationJob
from whatwhere.reproduction.records import job_table, parse_job

CPU = torch.device("cpu")


def images(count: int, seed: int) -> Images:
    """Bars in two directions, with noise: 6×6 pixels, two classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % 2
    pixels = rng.uniform(0, 1.0, (count, 1, 6, 6)).astype(np.float32)
    pixels[y == 0, :, 2] += 0.8
    pixels[y == 1, :, :, 2] += 0.8
    return Images(pixels, y, "bars")


def rows_of(training: Images, test: Images) -> LabelledRows:
    assert training.labels is not None
    assert test.labels is not None
    return LabelledRows(training[:].flatten(1).numpy(), training.labels, test[:].flatten(1).numpy(), test.labels)


def job(C: tuple[float, ...], **classifier: object) -> EvaluationJob:
    return EvaluationJob(DataSpec("digits"), RawPixels(), C, ClassifierSpec(**classifier))  # type: ignore[arg-type]


def not_described(wanted: object) -> np.ndarray:
    raise AssertionError("no virtual samples were asked for")


def test_virtual_samples_are_the_support_vectors_moved() -> None:
    training, test = images(60, 0), images(40, 1)
    rows, seen = rows_of(training, test), []

    def describe(wanted):
        seen.append(wanted(training))
        return seen[-1][:].flatten(1).numpy()

    plain = evaluate_job(rows, job((10.0, 100.0)), CPU, not_described)
    found = evaluate_job(rows, job((10.0, 100.0), virtual_shift=1, virtual_turn=10.0), CPU, describe)
    assert found["trials"] == plain["trials"]
    C = plain["score"].C
    support = support_rows(fit_svm(rows.x, rows.y, C, solver="newton"), rows.x, rows.y)
    assert 0 < len(support) < 60
    assert found["virtual_samples"] == 6 * len(support) == len(seen[0])
    assert torch.equal(seen[0][:][: len(support)], moved(training[support], Move(down=1)))
    x = np.concatenate([rows.x, seen[0][:].flatten(1).numpy()])
    y = np.concatenate([rows.y, np.tile(rows.y[support], 6)])
    expected = fit_svm(x, y, C, solver="newton").predict(rows.x_test)
    assert found["score"].errors == (expected != rows.y_test).sum()


def test_a_gaussian_kernel_is_chosen_on_the_last_sixth_and_tested_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, sizes = rows_of(images(60, 0), images(40, 1)), []
    fit = classifiers.fit_kernel_svm
    monkeypatch.setattr(classifiers, "fit_kernel_svm", lambda x, *rest: (sizes.append(len(x)), fit(x, *rest))[1])
    found = evaluate_job(rows, job((0.1, 10.0), widths=(0.5, 2.0)), CPU, not_described)
    assert sizes == [50, 50, 50, 50, 60]
    trials = {(trial.C, trial.width): trial.error for trial in found["trials"]}
    x = torch.from_numpy(rows.x)
    for (C, width), error in trials.items():
        predicted = fit_kernel_svm(x[:50], rows.y[:50], C, width).predict(x[50:])
        assert error == (predicted != rows.y[50:]).mean()
    C, width = min(trials, key=lambda pair: trials[pair])
    predicted = fit_kernel_svm(x, rows.y, C, width).predict(torch.from_numpy(rows.x_test))
    assert found["score"].errors == (predicted != rows.y_test).sum()
    sizes.clear()
    evaluate_job(rows, job((10.0,), widths=(2.0,)), CPU, not_described)
    assert sizes == [60], "what was chosen before is not chosen again"


def test_the_classifier_of_a_job_is_in_its_file() -> None:
    wanted = job((1.0,), widths=(0.5,), virtual_shift=1)
    assert parse_job(job_table(wanted)) == wanted
    table = job_table(job((1.0,)))
    assert parse_job({key: value for key, value in table.items() if key != "classifier"}) == job((1.0,))
