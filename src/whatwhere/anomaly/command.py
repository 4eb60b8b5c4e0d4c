"""`whatwhere anomaly fit`, `score` and `odd`: how much pictures differ from normal ones, and
where."""

import json
import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from whatwhere.anomaly.settings import AnomalySpec
from whatwhere.commands.builder import Settings, UsageError, app, command
from whatwhere.commands.inputs import SHARD, open_shard
from whatwhere.commands.old_forms import model_first
from whatwhere.errors import ImageError, SpecError
from whatwhere.errors import command as shell_line
from whatwhere.files import check_distinct
from whatwhere.spec.checks import Checked, Within

if TYPE_CHECKING:
    from torch import Tensor

    from whatwhere.anomaly import AnomalyDetector
    from whatwhere.anomaly.marks import Marks
    from whatwhere.anomaly.pictures import PictureList
    from whatwhere.commands.outputs import Stages

NAMED = 5  # pictures in a sentence
EXPECTED = 0.01  # share of pictures with a defect, if nobody says otherwise
_USUAL = "usual"  # the word for the usual features
_UNSORTED = 0.1  # share of an unsorted folder that counts as odd by default


class _AnomalyCommands(TyperGroup):
    """Says what to write where a folder stands in the place of a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, or raise an error with a line to type."""
        if args[0] not in self.commands and not args[0].startswith("-"):
            line = shell_line("whatwhere", "anomaly", "odd", args[0], "--out", "odd")
            raise UsageError(
                f"Got {args[0]!r}; expected fit, score or odd. To find the odd"
                f" pictures of a folder, run: {line}"
            )
        return super().resolve_command(ctx, args)


group = typer.Typer(
    name="anomaly",
    cls=_AnomalyCommands,
    help="Find defects and odd pictures, and show where they are.",
    no_args_is_help=True,
)
app.add_typer(group)


@command(AnomalySpec, flags="aligned false_alarms false_area contamination trusted", app=group)
def fit(
    normal: str,
    *,
    out: Path,
    report: Path | None = None,
    defects: str | None = None,
    marks: Path | None = None,
    cost: float = 100.0,
    expected: str | None = None,
    mask: str | None = None,
    features: str = _USUAL,
    tolerate: str | None = None,
    device: str = "auto",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Learn what normal pictures look like, from normal pictures alone.

    If some of the pictures may be odd, give their share: --contamination 0.1. The command names
    pictures that score far above the others, and chooses the threshold without them, unless you
    give --trusted. For objects in a
    fixed position, in pictures of one size, give --aligned.

    A few pictures with defects choose the threshold: --defects. The command says which share of new
    defects it expects to find.

    Parameters
    ----------
    normal
        a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX file
    out
        file for the detector
    report
        folder for a page and a table of the normal pictures, the oddest first. Default: none
    defects
        a folder of pictures with defects, or an .npy, .npz or IDX file. They choose the threshold
        that costs least
    marks
        the table marks.csv that the page of a report saves: pictures marked as false alarms become
        normal ones, and pictures marked as defects choose the threshold
    cost
        cost of a missed defect, in false alarms, for --defects and --marks
    expected
        share of new pictures that have a defect, such as 1%. The command says which share of the
        alarms is true. With --defects, it also sets the threshold (default there: 1%)
    mask
        the region of interest: a picture that is white where pixels count, for all pictures, or a
        folder with one for each. alpha: transparent pixels of the pictures do not count
    features
        which features to compare, with commas: own (learned from the pictures), colour, edges,
        network (pip install whatwhere[network]), or ONNX files. Several are joined. usual: own and,
        if it is installed, network; own alone for small pictures and with --aligned
    tolerate
        changes that must not raise alarms: degrees, pixels and pixels, such as
        rotation=2,shift=4,blur=1. Learning takes three times as long. A table says how many false
        alarms changes raise
    device
        auto, cpu or cuda: where places are compared with normal ones. auto: on a GPU if there is
        one

    Examples
    --------
    $ whatwhere anomaly fit normal/ --out detector
    $ whatwhere anomaly fit normal/ --out detector --aligned
    $ whatwhere anomaly fit normal/ --out detector --defects bad/ --cost 50 --expected 2%
    """
    from whatwhere.anomaly.report import learned_from
    from whatwhere.anomaly.threshold import in_percent, interval_in_percent, read_share
    from whatwhere.anomaly.tolerance import table_of
    from whatwhere.commands.outputs import Stages, claim
    from whatwhere.errors import printable

    spec = settings.override(AnomalySpec())
    share = None if expected is None else read_share(expected, "--expected")
    if cost <= 0:
        raise SpecError(f"Got --cost {cost:g}; expected a number above 0.")
    marked = None if marks is None else _read_marks(marks)
    read: list[str | Path | None] = [normal, defects, _mask_file(mask), marks]
    read += marked.sources if marked else []
    claim([out], *read, overwrite=overwrite)
    if report is not None:
        check_outside(report, normal, "--report")
        check_distinct([out, *report_files(report)])
        claim(report_files(report), *read, folder=report, overwrite=overwrite)
    stages = Stages(quiet)
    source = _open_marked(normal, mask, marked)
    detector = fitted(spec, source, stages, _Ways(features, tolerate, device))
    known = _known_defects(defects, marked)
    if known is not None:
        with stages.stage("choosing the threshold by defects", 1) as advance:
            detector.choose_threshold_by_defects(known, cost, share or EXPECTED)
            advance(1)
    save(detector, out, "--out")
    if report is not None:
        line = shell_line("whatwhere", "anomaly", "fit", normal, "--out", out)
        _report_on_normal(detector, source, normal, report, stages, share, line)
    threshold = detector.threshold_
    low, high = threshold.interval
    count = detector.sample_.seen
    changes = [] if detector.kind_.signals else detector.alarms_after(stage=stages.stage)
    if json_:
        facts = {
            "threshold": threshold.value,
            "false_alarms": threshold.false_alarms,
            "interval": [low, high],
            "odd": [] if detector.odd_pictures_ is None else detector.odd_pictures_.names,
            "alarms_after": {str(row.change): [row.alarms, row.of] for row in changes},
        }
        if detector.recall_ is not None:
            facts["recall"] = detector.recall_.value
            facts["recall_interval"] = list(detector.recall_.interval)
        typer.echo(json.dumps({"detector": str(out), "pictures": count, **facts}))
        return
    typer.echo(
        f"{printable(out)}: {learned_from(detector)}. Scores above {threshold.value:.2f} are"
        f" anomalies. About {in_percent(threshold.false_alarms)} of normal pictures score higher"
        f" (95 % interval: {interval_in_percent(threshold.interval)}).{_too_few(detector)}"
        f"{_counted_alike(detector)}"
        f"{_far_above_the_others(detector)}{_what_to_expect(detector, share)}"
    )
    if changes:
        typer.echo(table_of(changes))


def _far_above_the_others(model: "AnomalyDetector") -> str:
    """Make a sentence that names the pictures that were given as normal but score far above the
    others; empty without such pictures."""
    from whatwhere.errors import plural, printable

    odd = model.odd_pictures_
    if odd is None:
        return ""
    named = ", ".join(printable(name) for name in odd.names[:NAMED])
    more = len(odd.names) - NAMED
    if more > 0:
        named += f" and {plural(more, 'other picture')}"
    left_out = escape = ""
    if not model.trusted:
        left_out = (
            f", so the threshold is chosen from the others (all pictures give"
            f" {odd.threshold.value:.2f})"
        )
        escape = "; if not, give --trusted"
    score, verb, them = "score", "them", "they are"
    if len(odd.names) == 1:
        score, verb, them = "scores", "it", "it is"
    return (
        f" {named} {score} far above the other {odd.others:,}{left_out}. Look at {verb} (--report"
        f" FOLDER shows the oddest first). If {them} odd, take {verb} out or give --contamination"
        f" {odd.contamination:g}, so that the detector does not learn from {verb}{escape}."
    )


def _what_to_expect(model: "AnomalyDetector", expected: float | None) -> str:
    """Sentences on the share of defects found and of true alarms; empty if neither can be told."""
    from whatwhere.anomaly.threshold import in_percent, interval_in_percent, true_alarms

    words = ""
    recall = model.recall_
    if recall is not None:
        words += (
            f" Expect an alarm for {in_percent(recall.value)} of new defects (95 % interval:"
            f" {interval_in_percent(recall.interval)}; {recall.found} of the {recall.of} given"
            " ones, each judged by the threshold that the others choose)."
        )
    if expected is not None:
        rate = model.threshold_.false_alarms
        most = "at most" if recall is None else "about"
        share = true_alarms(rate, expected, 1.0 if recall is None else recall.value)
        words += (
            f" If {in_percent(expected)} of new pictures have a defect, {most}"
            f" {in_percent(share)} of the alarms are true."
        )
    return words


def _report_on_normal(
    model: "AnomalyDetector",
    pictures: "PictureList",
    folder: str,
    out: Path,
    stages: "Stages",
    expected: float | None,
    fit_line: str,
    *,
    json_: bool = False,
) -> str:
    """Write the report of the pictures that a detector learned from, each scored by what it learned
    from the others."""
    from whatwhere.anomaly.report import Commands, ReportSource, write_report

    by_others = zip(
        model.fitted_.tolist(), model.normal_scores_.tolist(), model.normal_evidence_, strict=True
    )
    # only the places come from the detector itself
    known = {number: (score, evidence) for number, score, evidence in by_others}
    source = ReportSource(pictures, _full_path(folder), known=known, expected=expected)
    commands = Commands(fit=f"{fit_line} --overwrite --marks marks.csv")
    return write_report(out, model, source, stages, commands, json_=json_)


def _full_path(source: str) -> str:
    """Return the whole path of a folder or file; the name of a data set stays."""
    return str(Path(source).resolve()) if Path(source).exists() else source


def _read_marks(file: Path) -> "Marks":
    """Return the marks in a table that the page saved."""
    from whatwhere.anomaly.marks import Marks

    return Marks.read(file)


def _open_marked(normal: str, mask: str | None, marks: "Marks | None") -> "PictureList":
    """Return the pictures to fit to: the normal ones, and those that are marked as false alarms."""
    from whatwhere.anomaly.pictures import open_pictures

    source = open_pictures(normal, mask=mask)
    return source if marks is None else marks.normal(source, normal)


def _known_defects(defects: str | None, marks: "Marks | None") -> "PictureList | None":
    """Return the pictures that are known to have a defect; None without any."""
    from whatwhere.anomaly.pictures import open_pictures, together

    given = [] if defects is None else [open_pictures(defects)]
    marked = None if marks is None else marks.defects()
    known = given if marked is None else [*given, marked]
    return together(known) if known else None


def report_files(out: Path) -> list[Path]:
    """Return the files of a report."""
    from whatwhere.anomaly.report import report_files

    return report_files(out)


@dataclass(frozen=True, kw_only=True)
class ScoreSpec(Checked):
    """Settings of `score`.

    Parameters
    ----------
    false_alarms
        share of normal pictures that may count as anomalies; the command chooses the threshold
        again from the scores of the normal pictures, without a new fit. Default: the setting of the
        fit
    """

    false_alarms: Annotated[float, Within(0, 0.5, above=True)] | None = None


@command(
    SHARD,
    ScoreSpec,
    app=group,
    flags="shard false_alarms",
    old=(model_first("pictures", "detector"),),
)
def score(
    pictures: str,
    detector: Path,
    *,
    out: Path,
    expected: str | None = None,
    mask: str | None = None,
    evaluate: str | None = None,
    compare: Path | None = None,
    device: str = "auto",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Find anomalies with a detector, and show where they are.

    The command writes to the folder. `index.html` shows the pictures, the least normal first, with
    maps of their anomalies: you can move the threshold, mark defects and false alarms, and save the
    marks for `whatwhere anomaly fit --marks`. `scores.csv` has a row for each picture: its name,
    its score, whether it is an anomaly (1 or 0), its least normal place (x, y), the share of its
    pixels above the threshold, and the evidence of each kind. `masks` has a PNG file for each
    anomaly with an outlined place, white inside.

    Do not score the pictures that the detector learned from, because their scores are too low. Use
    `odd` for them.

    Parameters
    ----------
    detector
        a file that `whatwhere anomaly fit` or `odd --detector` wrote
    pictures
        a picture, a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or
        IDX file
    out
        folder for the report. With --shard, each part writes to a sub-folder
    expected
        share of the pictures that have a defect, such as 1%. The report says which share of the
        alarms is true
    mask
        the region of interest, as in `whatwhere anomaly fit`
    evaluate
        the truth: a folder of masks with the names of the pictures (white where a defect is), or a
        folder with the folders good and others, such as bad. Writes `evaluation.json`: areas under
        curves of pictures and pixels, overlap of regions (PRO, AUPIMO), recall and false alarms at
        the threshold, with intervals
    compare
        a second detector, for --evaluate: which places only one of the two finds
    device
        as in `whatwhere anomaly fit`
    overwrite
        also replace files that whatwhere did not write, or that have changed since. The command
        replaces results of whatwhere in this folder without asking

    Examples
    --------
    $ whatwhere anomaly score new_pictures/ detector --out report
    $ whatwhere anomaly score test/ detector --out report --evaluate test/
    $ whatwhere anomaly score new_pictures/ detector --out report --false-alarms 0.1
    """
    from whatwhere.anomaly.threshold import read_share
    from whatwhere.commands.outputs import Stages, claim

    spec = settings.of(ScoreSpec)
    share = None if expected is None else read_share(expected, "--expected")
    if compare is not None and evaluate is None:
        raise SpecError("--compare needs --evaluate, which says where the defects are.")
    shard = open_shard(settings, out, quiet=quiet)
    out = shard.part_of(out)
    check_outside(out, pictures)
    stages = Stages(quiet)
    with stages.stage("loading the detector", 1) as advance:
        # imported after the check, so that its error is reported sooner
        from whatwhere.anomaly import AnomalyDetector
        from whatwhere.anomaly.pictures import open_pictures
        from whatwhere.anomaly.report import Commands, ReportSource, learned_from, write_report
        from whatwhere.data.parts import PartRecord, begin_part, end_part
        from whatwhere.files import file_checksum

        model = AnomalyDetector.load(detector, device=device)
        rival = None if compare is None else AnomalyDetector.load(compare, device=device)
        advance(1)
    note = ""
    if spec.false_alarms is not None:
        model.choose_threshold(spec.false_alarms)
        if few := _too_few(model):
            note = f" The detector {learned_from(model)}.{few}"
    read: list[str | Path | None] = [detector, pictures, _mask_file(mask), evaluate, compare]
    claim(report_files(out), *read, folder=out, overwrite=overwrite)
    source = open_pictures(pictures, shard, mask)
    record = PartRecord(file_checksum(detector), str(spec), source.all_pictures)
    begin_part(out, shard, record, overwrite=overwrite)
    fitted_to: set[int] = set()
    report = ReportSource(
        _watched(source, model, fitted_to),
        _full_path(pictures),
        model.normal_scores_,
        expected=share,
        truth=evaluate,
        rival=rival,
    )
    commands = Commands(
        score=shell_line("whatwhere", "anomaly", "score", pictures, detector, "--out", out),
        fit=shell_line("whatwhere", "anomaly", "fit", "normal/", "--out", detector)
        + " --overwrite --marks marks.csv",
    )
    words = write_report(out, model, report, stages, commands, json_=json_)
    end_part(out, shard)
    if not json_:
        words += note
    if fitted_to and not json_:
        words += (
            f" The detector learned from {len(fitted_to):,} of these pictures, so their scores are"
            " too low. For the pictures that it learned from, use `whatwhere anomaly odd`."
        )
    typer.echo(words)


@dataclass(frozen=True, kw_only=True)
class UnsortedSpec(AnomalySpec):
    """Settings of `odd`.

    Parameters
    ----------
    aligned
        compare each place with the same place of other pictures, for objects in a fixed position in
        pictures of one size. By default, the detector compares each place with all places, for
        surfaces
    false_alarms
        share of normal pictures that may count as anomalies; sets the threshold
    false_area
        share of the area of normal pictures that may lie inside outlines
    contamination
        share of the pictures that you expect to be odd
    trusted
        as in `whatwhere anomaly fit`
    memory
        MB of memory that learning may use. If the pictures need more, the command learns from a
        random sample
    seed
        seed of the random sample
    """

    contamination: Annotated[float, Within(0, 0.5)] = _UNSORTED


@command(UnsortedSpec, flags="aligned false_alarms contamination", app=group)
def odd(
    pictures: str,
    *,
    out: Path,
    detector: Path | None = None,
    expected: str | None = None,
    mask: str | None = None,
    features: str = _USUAL,
    device: str = "auto",
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Find the odd pictures of an unsorted folder, and show where they are odd.

    You do not need to know which pictures are normal. The command assumes that a tenth of the
    pictures is odd (--contamination changes that), leaves those out, and learns from the rest. It
    compares each picture with what it learned from the others. It writes the same files as `score`.

    Parameters
    ----------
    pictures
        a folder of pictures of any sizes, the name of a data set, or an .npy, .npz or IDX file
    out
        folder for the report
    detector
        file for the detector, with which `whatwhere anomaly score` scores new pictures. Default:
        the command does not keep the detector
    expected
        share of the pictures that have a defect, such as 1%. The report says which share of the
        alarms is true
    mask
        the region of interest, as in `whatwhere anomaly fit`
    features
        which features to compare, as in `whatwhere anomaly fit`
    device
        as in `whatwhere anomaly fit`
    overwrite
        also replace files that whatwhere did not write, or that have changed since. The command
        replaces results of whatwhere in this folder without asking

    Examples
    --------
    $ whatwhere anomaly odd pictures/ --out odd
    $ whatwhere anomaly odd pictures/ --out odd --contamination 0.2
    $ whatwhere anomaly odd pictures/ --out odd --detector detector
    """
    from whatwhere.anomaly.threshold import read_share
    from whatwhere.commands.outputs import Stages, claim

    spec = settings.of(UnsortedSpec)
    share = None if expected is None else read_share(expected, "--expected")
    check_outside(out, pictures)
    # imported after the check, so that its error is reported sooner
    from whatwhere.anomaly.pictures import open_pictures

    claim(report_files(out), pictures, _mask_file(mask), folder=out, overwrite=overwrite)
    if detector is not None:
        check_distinct([detector, *report_files(out)])
        claim([detector], pictures, _mask_file(mask), overwrite=overwrite)
    stages = Stages(quiet)
    source = open_pictures(pictures, mask=mask)
    model = fitted(spec, source, stages, _Ways(features, device=device))
    if detector is not None:
        save(model, detector, "--detector")
    line = shell_line("whatwhere", "anomaly", "fit", pictures, "--out", detector or "detector")
    words = _report_on_normal(model, source, pictures, out, stages, share, line, json_=json_)
    typer.echo(words if json_ else words + _too_few(model))


def save(model: "AnomalyDetector", file: Path, option: str) -> None:
    """Write a detector to a file; `option` is the one that gave its path."""
    from whatwhere.files import disk_errors

    remedy = f"free some disk space, or choose another path with {option}"
    with disk_errors(f"writing {file}", remedy):
        file.parent.mkdir(parents=True, exist_ok=True)
        model.save(file)


def _mask_file(mask: str | None) -> str | None:
    """Return the path of a mask, which is not replaced by an output."""
    return None if mask == "alpha" else mask


@dataclass(frozen=True)
class _Ways:
    """Options of `fit` and `odd` that are no settings of their own, as they are typed."""

    features: str = _USUAL
    tolerate: str | None = None
    device: str = "auto"


def fitted(
    spec: AnomalySpec, source: "PictureList", stages: "Stages", ways: _Ways
) -> "AnomalyDetector":
    """Make a detector with these settings, fitted to the pictures of a source."""
    from whatwhere.anomaly import AnomalyDetector
    from whatwhere.anomaly.features import usual_features
    from whatwhere.anomaly.likeness import TooAlike
    from whatwhere.anomaly.tolerance import Tolerance

    parameters = dict(vars(spec))
    words = [word.strip() for word in ways.features.split(",")]
    if words == [_USUAL]:
        words = usual_features(source.read(0), spec.aligned) if len(source) else ["own"]
    detector = AnomalyDetector(
        features=None if words == ["own"] else words,
        random_state=parameters.pop("seed"),
        tolerate=None if ways.tolerate is None else Tolerance.parse(ways.tolerate),
        device=ways.device,
        **parameters,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error", TooAlike)
        try:
            return detector.fit(source, stage=stages.stage)
        except TooAlike as warning:
            raise ImageError(str(warning)) from None


def _too_few(model: "AnomalyDetector") -> str:
    """Make a sentence that warns of too few pictures for the wanted rate of false alarms; empty if
    there are enough."""
    wanted = model.false_alarms
    fewest = math.ceil(1 / wanted) - 1
    if len(model.fitted_) >= fewest:
        return ""
    needed = fewest
    while needed - math.floor(model.contamination * needed) < fewest:
        needed += 1
    return (
        f" That is too few pictures for a false-alarm rate of {100 * wanted:.2g} %. To reach"
        f" {100 * wanted:.2g} %, give at least {needed:,} pictures."
    )


def _counted_alike(model: "AnomalyDetector") -> str:
    """Make a sentence on normal pictures that are alike; empty if most count on their own."""
    from whatwhere.anomaly.threshold import USUAL

    count = len(model.normal_scores_)
    alike = model.threshold_.alike
    if alike < USUAL.few_alike:
        return ""
    return (
        f" Pictures that follow each other have similar scores: in this interval, which holds for"
        f" other parts or places too, the {count:,} pictures count as about"
        f" {max(round(count / alike), 1):,}."
    )


def check_outside(out: Path, pictures: str, option: str = "--out") -> None:
    """Raise an error if the folder for the report is the folder of the pictures, or inside it."""
    from whatwhere.errors import SpecError, printable

    folder = Path(pictures).resolve()
    report = out.resolve()
    if not folder.is_dir() or not report.is_relative_to(folder):
        return
    place = (
        "is the folder of the pictures" if report == folder else "is inside the pictures' folder"
    )
    raise SpecError(
        f"{option} {printable(out)} {place}. The next command would read the report as pictures."
        " Choose a folder outside of it."
    )


def _watched(source: "PictureList", model: "AnomalyDetector", fitted_to: set[int]) -> "PictureList":
    """Return the same pictures. Reading one that the detector learned from adds its number to
    `fitted_to`."""
    from whatwhere.anomaly.pictures import PictureList, fingerprint, with_channels

    known = model.fingerprints()

    def read(number: int) -> "Tensor":
        picture = source.read(number)
        if fingerprint(with_channels(picture, model.sample_.channels)) in known:
            fitted_to.add(number)
        return picture

    return PictureList(source.names, read)
