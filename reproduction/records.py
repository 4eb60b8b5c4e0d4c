"""Result files: one for each scale, a line of JSON for each result, found again by the job that it
holds.

    reproduction/results/paper/results.jsonl

A line holds its `name` (table, row, column, seed), its `job` (images, recipe, seed, all settings),
the `result`, the `seconds` it took and the `machine` (processor, GPU, versions, commit, time).
Names are for people. The program compares jobs: a setting that it gets later, with a default that
changes nothing, does not orphan a result.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, overload

from benchmarks.machine import machine
from reproduction.baselines import BASELINES, Baseline
from reproduction.jobs import (
    ClassifierSpec,
    DataSpec,
    EvaluationJob,
    FewLabelJob,
    Job,
    MeasurableJob,
    ModelFeatures,
    RecordedJob,
    TrainingJob,
)
from reproduction.results import (
    EvaluationResult,
    FewLabelResult,
    RecordedResult,
    Result,
    TrainingResult,
)
from whatwhere.errors import RunError, UnknownName, WhatwhereError
from whatwhere.spec import Recipe, build

R = TypeVar("R", bound=Result)
RESULTS = "results.jsonl"
MODELS = (  # what the names of trainings begin with; the archive of the models that are published
    "models"
)
FIGURES = "figures"  # folder of the drawn curves
MODEL_METHOD = "model"
RECORDED = ("fine-tuning",)  # methods that the project no longer has
RESULT_TYPES: dict[str, tuple[type[MeasurableJob], type[Result]]] = {
    "training": (TrainingJob, TrainingResult),
    "evaluation": (EvaluationJob, EvaluationResult),
    "few labels": (FewLabelJob, FewLabelResult),
}


@dataclass(frozen=True)
class Record(Generic[R]):
    """One result with what made it. `name`: of its table, a slash, and its own."""

    job: Job
    result: R
    seconds: float
    machine: Mapping[str, Any]
    name: str


class ResultStore:
    """The results in one scale's folder; `names` gives a new result its name."""

    def __init__(self, folder: Path, names: Callable[[Job], str]) -> None:
        self.folder = folder
        self.names = names
        self.records: dict[Job, Record[Any]] = {}
        if (path := folder / RESULTS).exists():
            self.records = {record.job: record for record in read_records(path)}

    @overload
    def find(self, job: TrainingJob) -> Record[TrainingResult] | None: ...
    @overload
    def find(self, job: EvaluationJob) -> Record[EvaluationResult] | None: ...
    @overload
    def find(self, job: FewLabelJob) -> Record[FewLabelResult] | None: ...
    @overload
    def find(self, job: RecordedJob) -> Record[RecordedResult] | None: ...
    def find(self, job: Job) -> Record[Any] | None:
        """The record of a job, or None where it has not been measured yet."""
        return self.records.get(job)

    def name_of(self, job: Job) -> str:
        """The name of a job's result: that of its file, or the one its file will have."""
        if (record := self.records.get(job)) is not None:
            return record.name
        name, number = self.names(job), 1
        taken = {record.name for record in self.records.values()}
        while (unique := name if number == 1 else f"{name}-{number}") in taken:
            number += 1
        return unique

    def put(self, job: MeasurableJob, result: R, seconds: float) -> Record[R]:
        """Add a result to the file; of two lines with one job, the last counts."""
        record = Record(job, result, round(seconds, 3), machine(), self.name_of(job))
        content = {
            "name": record.name,
            "job": job_table(job),
            "result": without_none(asdict(result)),
            "seconds": record.seconds,
            "machine": record.machine,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / RESULTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(content, ensure_ascii=False) + "\n")
        self.records[job] = record
        return record


def read_records(path: Path) -> Iterator[Record[Any]]:
    """The results of a file; an error names a line that is none."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            content = json.loads(line)
            job, result = (
                parse_job(content["job"]),
                parse_result(content["job"]["kind"], content["result"]),
            )
            yield Record(job, result, content["seconds"], content["machine"], content["name"])
        except (KeyError, TypeError, ValueError, WhatwhereError) as error:
            raise NoResult(path, number, error) from error


class UnknownMethod(UnknownName, RunError):
    """A name that no method of describing images has."""


class OtherFiles(RunError):
    """A record of other files than the catalogue has.

    name  the data set
    """

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"its checksums are not those of {name!r} in the catalogue: it was measured on other"
            " files"
        )


class NoResult(RunError):
    """A line of a file of results that is not one.

    path  the file
    line  the number of the line, from 1
    """

    def __init__(self, path: Path, line: int, error: Exception) -> None:
        self.path = path
        self.line = line
        super().__init__(f"{path}, line {line} is not a result: {error!r} (put the right one back)")


def job_table(job: MeasurableJob) -> dict[str, Any]:
    """A job as plain values, with the checksums of its data set."""
    kind = next(kind for kind, (job_type, _) in RESULT_TYPES.items() if isinstance(job, job_type))
    data = {**asdict(job.data), "sha256": job.data.checksums()}
    if isinstance(job, TrainingJob):
        return {"kind": kind, "data": data, "recipe": asdict(job.recipe)}
    method = job.features.name if isinstance(job.features, Baseline) else MODEL_METHOD
    features = {"method": method, **asdict(job.features)}
    own = (
        {"labels": job.labels, "dual": job.dual, "whiten_choices": list(job.whiten_choices)}
        if isinstance(job, FewLabelJob)
        else {"classifier": asdict(job.classifier)}
    )
    return {"kind": kind, "data": data, "features": features, "C": list(job.C), **own}


def parse_job(table: Mapping[str, Any]) -> Job:
    """The job of a file. Its recipe is read by today's spec, so a setting that was added since has
    its default."""
    kind = table["kind"]
    data_table = dict(table["data"])
    checksums = data_table.pop("sha256")
    data = build(DataSpec, data_table)
    if checksums != data.checksums():
        raise OtherFiles(data.name)
    if kind == "training":
        return TrainingJob(data, build(Recipe, table["recipe"]))
    if kind in RECORDED:  # its settings stay in the file
        return RecordedJob(data, kind, table["labels"], table["recipe"]["seed"])
    features, C = parse_features(table["features"]), tuple(map(float, table["C"]))
    if kind == "evaluation":
        return EvaluationJob(data, features, C, build(ClassifierSpec, table.get("classifier", {})))
    if kind == "few labels":
        choices = tuple(map(float, table.get("whiten_choices", (0.0,))))
        return FewLabelJob(data, features, C, table["labels"], table.get("dual", False), choices)
    raise RunError(f"Got kind {kind!r}; expected one of {', '.join(map(repr, RESULT_TYPES))}")


def parse_result(kind: str, table: Mapping[str, Any]) -> Result:
    """The result of a file; of a method that is gone, only what a table shows."""
    if kind in RECORDED:
        shown = {field.name: table[field.name] for field in fields(RecordedResult)}
        return build(RecordedResult, shown)
    return build(RESULT_TYPES[kind][1], dict(table))


def parse_features(table: Mapping[str, Any]) -> ModelFeatures | Baseline:
    settings = dict(table)
    method = settings.pop("method")
    if method == MODEL_METHOD:
        recipes = [settings["recipe"], *settings.get("other_recipes", ())]
        for recipe in recipes:  # measured before this setting existed, or with it
            recipe["descriptor"] = {"where": "keep", **recipe.get("descriptor", {})}
        return build(ModelFeatures, settings)
    if method not in BASELINES:
        raise UnknownMethod("method", method, [MODEL_METHOD, *BASELINES])
    return build(BASELINES[method], settings)


def without_none(value: Any) -> Any:
    """Plain values without the entries that were not recorded."""
    if isinstance(value, dict):
        return {key: without_none(item) for key, item in value.items() if item is not None}
    return [without_none(item) for item in value] if isinstance(value, list | tuple) else value
