"""`whatwhere events`: the events of a recording as a table."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path

import typer

import whatwhere as ww
from whatwhere.commands.builder import Settings, command
from whatwhere.commands.inputs import (
    EXECUTION,
    ImageInput,
    open_run,
    read_recording,
    usual_preset,
    with_preset,
)
from whatwhere.commands.old_forms import model_first
from whatwhere.commands.outputs import Report, Stages, claim, write
from whatwhere.errors import listed, plural, printable
from whatwhere.spec import Recipe
from whatwhere.spec.checks import Checked
from whatwhere.spec.execution import Execution

_GAPS_SHOWN = 5  # gaps of a recording that are named


@dataclass(frozen=True, kw_only=True)
class EventOptions(Checked):
    """Which events are written.

    Parameters
    ----------
    threshold
        the smallest amplitude of an event, in units of the signals, or in standard deviations of
        what its waveform finds in the noise (4sd); 0 writes everything that inference found. By
        default, an event must exceed five deviations of the noise, and have a fifth of the energy
        at its place
    merge
        waveforms that count as one, such as 3,5: their events get the number of the first. Two
        groups are '3,5 7,8'
    drop
        waveforms whose events are left out, such as 4,6
    rhythm
        let the rhythm of a recording that has one, such as that of a heart, decide which events
        there are, unless a threshold is given
    """

    threshold: str | None = None
    merge: str | None = None
    drop: str | None = None
    rhythm: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.threshold is not None:
            from whatwhere.signals.find import Threshold

            Threshold.of(self.threshold)  # before the recording is read


@command(
    EventOptions,
    (ImageInput, "rate start end"),
    EXECUTION,
    (Recipe, "inference"),
    flags="threshold merge drop rhythm rate start end device",
    old=(model_first("recording"),),
)
def events(
    recording: str,
    run: Path,
    *,
    out: Path,
    quality: Path | None = None,
    page: Path | None = None,
    preset: str | None = None,
    settings: Settings,
    overwrite: bool = False,
    json_: bool = False,
    quiet: bool = False,
) -> None:
    """Find the events in a recording, and write them as a table: which waveform, when, and how
    strongly.

    Parameters
    ----------
    recording
        a file of a recording, such as .wav, .csv or .npy
    out
        the .csv file to write
    quality
        another .csv file to write: of each waveform the events, their rate, how many follow within
        the refractory period of a neuron (1.5 ms), the signal-to-noise ratio, the distance to the
        waveform most like it, and in how much of the recording it occurs
    page
        a page (.html) to write: the recording, its events and what they leave, zoomable; keys go to
        the doubtful events and accept or reject each, and a button saves the table without the
        rejected ones
    preset
        how to infer: events (50 steps, which show all events), or recipe, coding or learned, as for
        `encode`. Default: learned if the model has learned steps, and events if not

    Examples
    --------
    $ whatwhere events recording.wav runs/signals --out events.csv
    $ whatwhere events recording.wav runs/signals --out spikes.csv --merge 3,5 --quality units.csv
    $ whatwhere events recording.wav runs/signals --out events.csv --page events.html
    """
    execution = settings.of(Execution)
    opened = open_run(run, execution.device, execution.engine)
    recipe, model = _with_preset(*opened, preset, settings)
    files = [file for file in (out, quality, page) if file is not None]
    claim(files, run, recording, overwrite=overwrite)
    signals = read_recording(run, recording, settings.of(ImageInput))
    if page is not None:
        from whatwhere.signals.page import require_page

        require_page(signals)  # before the work
    stages = Stages(quiet)
    stages.note(signals.describe())
    trained = ww.TrainedRun(run.name, recipe, model)
    report = _write(out, trained, signals, settings, stages)
    if quality is not None:
        _write_quality(quality, out, trained, signals)
    if page is not None:
        _write_page(page, out, trained, signals)
    typer.echo(report.text(json_))


def _with_preset(
    recipe: Recipe, model: "ww.DeconvNet", preset: str | None, settings: Settings
) -> "tuple[Recipe, ww.DeconvNet]":
    """Return the recipe with the inference settings of a preset, and the model to use with them."""
    from whatwhere.signals.find import EventSettings

    if preset is None and usual_preset(model, settings) == "coding":
        preset = "events"
    if preset != "events":
        return with_preset(recipe, model, preset or "learned", settings)
    recipe = replace(recipe, inference=EventSettings().inference(recipe.inference))
    return settings.override(recipe), model


def _write(
    file: Path,
    run: "ww.TrainedRun",
    signals: "ww.data.Signals",
    settings: Settings,
    stages: Stages,
) -> Report:
    """Write the table of the events of signals."""
    from whatwhere.signals.event_table import write_events
    from whatwhere.signals.find import Rhythm, tile_count
    from whatwhere.signals.quality import Relabelling
    from whatwhere.signals.recording import unknown_gaps

    options = settings.of(EventOptions)
    engine = settings.of(Execution).engine
    rhythms: list[Rhythm] = []
    with stages.stage(
        f"finding events in {signals.name}", tile_count(run.model, signals)
    ) as advance:
        count = write_events(
            file,
            run.recipe,
            run.model,
            signals,
            options.threshold,
            engine,
            advance,
            in_rhythm=options.rhythm,
            relabelling=Relabelling(options.merge, options.drop),
            on_rhythm=rhythms.append,
        )
    length = run.model.spec.layers[0].filter_shape[1]
    gaps = unknown_gaps(signals, length)
    words = f"{printable(file)}: {plural(count, 'event')}"
    if gaps:
        words += (
            f"; events are unknown in {plural(len(gaps), 'gap')} longer than a waveform ({length}"
            f" samples): {_in_words(gaps, signals)}"
        )
    if count == 0:
        words += (
            ". Check that the recording has the rate and the unit of the one that the model"
            " learned from"
        )
    for rhythm in rhythms:
        words += f"; {rhythm.in_words(signals.rate)}"
    if signals.rate is None:
        words += "; no times in seconds, because the rate is not known (give --rate)"
    facts = {
        "file": str(file),
        "events": count,
        "rhythms": [rhythm._asdict() for rhythm in rhythms],  # period in samples
        "gaps": [[gap.start, gap.stop] for gap in gaps],  # samples
    }
    return Report(facts, words)


def _write_quality(
    file: Path, table: Path, run: "ww.TrainedRun", signals: "ww.data.Signals"
) -> None:
    """Write the quality of each waveform of a table of events."""
    from whatwhere.signals.event_table import events_within, read_events
    from whatwhere.signals.find import noise_of
    from whatwhere.signals.quality import WaveformQuality, waveform_quality

    rows = waveform_quality(
        events_within(read_events(table, signals.channel_names), signals),
        run.model,
        noise_of(run.model, signals),
        len(signals) * signals.shape[2],
        signals.rate,
    )
    names = [field.name for field in fields(WaveformQuality)]
    lines = [",".join(names)]
    lines += [",".join(f"{getattr(row, name):.6g}" for name in names) for row in rows]
    write(file, ("\n".join(lines) + "\n").encode(), file.parent)


def _write_page(file: Path, table: Path, run: "ww.TrainedRun", signals: "ww.data.Signals") -> None:
    """Write the page of a table of events."""
    from whatwhere.signals.event_table import events_within, read_events
    from whatwhere.signals.page import recording_page

    events = events_within(read_events(table, signals.channel_names), signals)
    write(file, recording_page(run.model, signals, events).encode(), file.parent)


def _in_words(gaps: list[slice], signals: "ww.data.Signals") -> str:
    """Return the first gaps, in seconds if the rate is known."""
    shown = [_in_time(gap, signals) for gap in gaps[:_GAPS_SHOWN]]
    more = len(gaps) - len(shown)
    if more:
        shown.append(f"{more:,} more")
    return listed(shown)


def _in_time(gap: slice, signals: "ww.data.Signals") -> str:
    """Describe a gap, from its first sample to the first one after it."""
    if signals.rate is None:
        return f"{gap.start:,} to {gap.stop:,}"
    digits = max(0, math.ceil(math.log10(signals.rate)))  # enough to tell samples apart
    first = signals.start + gap.start / signals.rate
    last = signals.start + gap.stop / signals.rate
    return f"{first:.{digits}f} to {last:.{digits}f} s"
