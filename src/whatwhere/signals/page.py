"""The page of a recording: a zoomable view of its events and its residual, on which events are
accepted or rejected, without other files."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass

import numpy as np

from whatwhere.errors import ImageError, printable
from whatwhere.html import ASSETS, assemble, report_style
from whatwhere.inference.tiled import read_tile
from whatwhere.model import DeconvNet
from whatwhere.model.events import Events
from whatwhere.signals.find import pictures_of
from whatwhere.signals.recording import Signals


@dataclass(frozen=True)
class PageSettings:
    """What the page of a recording holds.

    Parameters
    ----------
    most
        values of all channels: with 2 bytes each, twice, a page of 22 MB
    tile
        samples that are read together
    doubtful
        share of the energy at its place; an event that explains less is doubtful
    """

    most: int = 4_000_000
    tile: int = 1 << 16
    doubtful: float = 0.5


class RecordingTooLong(ImageError):
    """A recording with more values than a page holds.

    Attributes
    ----------
    values
        of all channels
    most
        that a page holds
    """

    def __init__(self, values: int, most: int) -> None:
        self.values = values
        self.most = most
        super().__init__(
            f"The recording has {values:,} values; a page holds at most {most:,}. Take a part with"
            " --start and --end."
        )


class SeveralSignals(ImageError):
    """Several signals for a page, which shows one.

    Attributes
    ----------
    name
        of the file
    count
        of its signals
    """

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        super().__init__(
            f"{printable(name)} has {count:,} signals; a page shows one. Give each in a file of its"
            " own, or leave out the page."
        )


def require_page(signals: Signals, settings: PageSettings | None = None) -> None:
    """Raise an error unless a page can hold the recording."""
    most = (settings or PageSettings()).most
    channels, _, samples = signals.shape
    if len(signals) != 1:
        raise SeveralSignals(signals.name, len(signals))
    if channels * samples > most:
        raise RecordingTooLong(channels * samples, most)


def recording_page(
    model: DeconvNet, signals: Signals, events: Events, settings: PageSettings | None = None
) -> str:
    """Return the page of the events of a recording.

    Parameters
    ----------
    model
        of the waveforms
    signals
        the recording, one signal
    events
        its events, at samples of `signals`
    settings
        the limits and the rules of the page; None means `PageSettings()`

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.signals(maps=2, length=16))
    >>> noise = ww.data.load(np.random.default_rng(0).normal(size=5000), signals=True)
    >>> events = ww.find_events(model, noise, ww.InferenceSpec(lam=0.5), threshold=0, tile=1024)
    >>> "<canvas" in ww.signals.recording_page(model, noise, events)
    True
    """
    settings = settings or PageSettings()
    require_page(signals, settings)
    own = events[(events["layer"] == 1) & (events["signal"] == 0)]
    own = own[np.argsort(own["sample"], kind="stable")]
    of_file = own.copy()
    of_file["sample"] += signals.first
    of_file["onset"] += signals.first
    table = io.StringIO()
    of_file.to_csv(table, channel_names=signals.channel_names, seconds=signals.rate is not None)
    heading, *lines = table.getvalue().rstrip("\n").split("\n")
    f = model.filters[0][:, :, 0].transpose(0, 1).cpu().double().numpy()  # [B, C, K]
    names = signals.channel_names or [f"channel {c}" for c in range(signals.shape[0])]
    columns = ("sample", "waveform", "amplitude", "channel")
    doubtful = own["doubtful"] | (own["explained"] < settings.doubtful)
    data = {
        "title": f"Recording {signals.name}",
        "about": signals.describe(),
        "rate": signals.rate,
        "start": signals.start,
        "length": f.shape[2],
        "names": list(names),
        "channels": [_packed(row) for row in signals[0].numpy()],
        "targets": [_packed(row) for row in _target(model, signals, settings)],
        "waveforms": [
            {"peak": int(np.abs(one).max(0).argmax()), "channels": np.round(one, 5).tolist()}
            for one in f
        ],
        "heading": heading,
        "rows": [
            {**{name: row[name].item() for name in columns}, "doubtful": bool(doubt), "line": line}
            for row, line, doubt in zip(own, lines, doubtful, strict=True)
        ],
    }
    style = report_style() + (ASSETS / "recording.css").read_text(encoding="utf-8")
    return assemble(ASSETS / "recording.html", "recording", style, "img-src data:", data)


def _target(model: DeconvNet, signals: Signals, settings: PageSettings) -> np.ndarray:
    """Return the first signal after the input stage, [C, T]; NaN where it is unknown."""
    picture = next(pictures_of(signals, model.spec))
    length = picture.shape[2]
    parts = []
    for first in range(0, length, settings.tile):
        columns = slice(first, min(first + settings.tile, length))
        found = read_tile(model, picture, None, slice(0, 1), columns)
        v = found.v[0, :, 0].cpu().float()
        if found.mask is not None:
            v = v.masked_fill(found.mask[0, :, 0] == 0, float("nan"))
        parts.append(v.numpy())
    return np.concatenate(parts, 1)


def _packed(row: np.ndarray) -> dict[str, object]:
    """Return samples as whole numbers of 16 bits and their scale; the smallest is unknown."""
    scale = float(np.nanmax(np.abs(row), initial=0)) / 32767 or 1.0
    whole = np.where(np.isnan(row), -32768, np.rint(np.nan_to_num(row) / scale)).astype("<i2")
    return {"scale": scale, "values": base64.b64encode(whole.tobytes()).decode("ascii")}
