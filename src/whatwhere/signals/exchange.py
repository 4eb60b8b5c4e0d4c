"""Events in the forms of other programs: SpikeInterface, Phy, and WFDB. `Events.to_mne` is that of
MNE."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from whatwhere.errors import ImageError, MissingExtra
from whatwhere.files import claim, disk_errors, write_atomic, write_result
from whatwhere.model import DeconvNet
from whatwhere.model.events import Events

if TYPE_CHECKING:
    from spikeinterface.core import NumpySorting

_REMEDY = "free some disk space, or choose another folder"


def to_spikeinterface(events: Events, rate: float) -> NumpySorting:
    """Return the events of the first signal as a sorting of SpikeInterface; a waveform is a unit.

    Parameters
    ----------
    events
        as `find_events` returns them
    rate
        samples per second

    Examples
    --------
    >>> sorting = ww.signals.to_spikeinterface(events, rate=30_000)    # doctest: +SKIP
    """
    try:
        from spikeinterface.core import NumpySorting
    except ImportError:
        raise MissingExtra("spikeinterface", "a sorting of events") from None
    samples, waveforms = _samples_of(events)
    return NumpySorting.from_samples_and_labels([samples], [waveforms], rate)


def write_wfdb(
    folder: Path, record: str, events: Events, rate: float, *, overwrite: bool = False
) -> Path:
    """Write the events of the first signal as an annotation file of WFDB, and return its path,
    FOLDER/RECORD.ww; the note of each is its waveform.

    Parameters
    ----------
    folder
        of the file
    record
        name of the record, as WFDB calls it
    events
        as `find_events` returns them
    rate
        samples per second
    overwrite
        replace a file that exists

    Examples
    --------
    >>> ww.signals.write_wfdb("annotations", "100", events, rate=360)  # doctest: +SKIP
    """
    try:
        import wfdb
    except ImportError:
        raise MissingExtra("wfdb", "an annotation file of events") from None
    samples, waveforms = _samples_of(events)
    if not len(samples):
        raise ImageError("There are no events to write; WFDB has no empty annotation files.")
    path = folder / f"{record}.ww"
    claim([path], overwrite=overwrite)
    with disk_errors(f"writing to {folder}", _REMEDY), tempfile.TemporaryDirectory() as temporary:
        folder.mkdir(parents=True, exist_ok=True)
        wfdb.wrann(
            record,
            "ww",
            samples,
            symbol=['"'] * len(samples),
            aux_note=[f"waveform {number}" for number in waveforms],
            fs=rate,
            write_dir=temporary,
        )
        write_atomic(path, Path(temporary, path.name).read_bytes())
    return path


def write_phy(
    folder: Path, events: Events, model: DeconvNet, rate: float, *, overwrite: bool = False
) -> None:
    """Write the events of the first signal as a folder that Phy opens; it has the waveforms, not
    the recording.

    Parameters
    ----------
    folder
        to write. What this function wrote there before is replaced
    events
        as `find_events` returns them
    model
        of signals, whose filters of layer 1 are the waveforms
    rate
        samples per second
    overwrite
        also replace files of others, such as those of a spike sorter

    Examples
    --------
    >>> ww.signals.write_phy("phy", events, model, rate=30_000)        # doctest: +SKIP
    """
    samples, waveforms = _samples_of(events)
    own = events[(events["layer"] == 1) & (events["signal"] == 0)]
    f = model.filters[0][:, :, 0].permute(1, 2, 0).detach().cpu().numpy()  # [B, K, C]
    channels = f.shape[2]
    flat = f.reshape(len(f), -1)
    size = np.linalg.norm(flat, axis=1)
    similarity = flat @ flat.T / np.maximum(size[:, None] * size, 1e-30)
    arrays = {
        "spike_times": samples,
        "spike_clusters": waveforms.astype(np.int32),
        "spike_templates": waveforms.astype(np.int32),
        "amplitudes": own["amplitude"][np.argsort(own["sample"], kind="stable")],
        "templates": f.astype(np.float32),
        "similar_templates": similarity.astype(np.float32),
        "channel_map": np.arange(channels, dtype=np.int32),
        "channel_positions": np.stack([np.zeros(channels), np.arange(channels)], 1),
        "whitening_mat": np.eye(channels),
        "whitening_mat_inv": np.eye(channels),
    }
    settings = (
        "dat_path = []\n"
        f"n_channels_dat = {channels}\n"
        "dtype = 'float32'\n"
        "offset = 0\n"
        f"sample_rate = {rate!r}\n"
        "hp_filtered = True\n"
    )
    files = {f"{name}.npy": _npy(values) for name, values in arrays.items()}
    files["params.py"] = settings.encode()
    claim([folder / name for name in files], folder=folder, overwrite=overwrite)
    for name, content in files.items():
        write_result(folder, folder / name, content, _REMEDY)


def _npy(values: np.ndarray) -> bytes:
    """Return the content of an .npy file."""
    content = io.BytesIO()
    np.save(content, values)
    return content.getvalue()


def _samples_of(events: Events) -> tuple[np.ndarray, np.ndarray]:
    """Return the samples of the events of the first signal, in order, and their waveforms."""
    own = events[(events["layer"] == 1) & (events["signal"] == 0)]
    order = np.argsort(own["sample"], kind="stable")
    return np.rint(own["sample"][order]).astype(np.int64), own["waveform"][order]
