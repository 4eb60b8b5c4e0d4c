"""Signals from arrays and files, read in windows."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from raising import raises
from whatwhere.errors import BeyondRange, ImageError
from whatwhere.signals.files import encode
from whatwhere.signals.recording import Signals, cut_windows, training_windows, unknown_gaps


@pytest.fixture
def recording() -> np.ndarray:
    """Two channels of 500 samples."""
    return np.random.default_rng(0).uniform(-0.9, 0.9, (2, 500)).astype(np.float32)


@pytest.mark.parametrize("shape", [(1000,), (2, 500), (1, 2, 500)])
def test_arrays(recording: np.ndarray, shape: tuple[int, ...]) -> None:
    signals = ww.data.load(recording.reshape(shape), signals=True)
    assert isinstance(signals, Signals)
    expected = recording.reshape((1,) * (3 - len(shape)) + shape)
    assert torch.equal(signals[:], torch.from_numpy(expected))
    assert torch.equal(signals[0], signals[:][0])
    assert torch.equal(signals.as_images()[:], signals[:][:, :, None])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".wav"])
def test_files_hold_the_same_signal(recording: np.ndarray, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"recording{suffix}"
    if suffix == ".npy":
        np.save(path, recording)
    elif suffix == ".npz":
        np.savez(path, signals=recording[None], labels=[7])
    elif suffix == ".csv":
        np.savetxt(path, recording.T, delimiter=",", header="left,right", comments="", fmt="%.9g")
    else:
        pytest.importorskip("scipy.io.wavfile").write(path, 1000, recording.T)
    signals = ww.data.load(path, signals=suffix in (".npy", ".npz"))
    assert torch.equal(signals[0], torch.from_numpy(recording))
    assert signals.labels is None or signals.labels.tolist() == [7]
    window = signals.recording(0)[:, 0:1, 20:30]
    assert torch.equal(window, torch.from_numpy(recording[:, None, 20:30]))


@pytest.mark.parametrize(("kind", "largest"), [("int16", 32768), ("int32", 2**31), ("uint8", 128)])
def test_whole_numbers_of_a_wav_file_are_scaled(
    recording: np.ndarray, kind: str, largest: int, tmp_path: Path
) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    values = np.rint(recording.T.astype(float) * largest) + (128 if kind == "uint8" else 0)
    wavfile.write(tmp_path / "a.wav", 1000, values.astype(kind))
    found = ww.data.load(tmp_path / "a.wav")[0]
    assert float((found - torch.from_numpy(recording)).abs().max()) <= 0.51 / largest + 1e-6


def test_empty_fields_of_a_table_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2\n;3\n4;5\n")
    signals = ww.data.load(tmp_path / "a.csv")
    np.testing.assert_array_equal(signals[0], [[1, np.nan, 4], [2, 3, 5]])
    (tmp_path / "a.csv").write_text("1;2\ninf;3\n4;5\n")
    with raises(BeyondRange, given={"from": 0.0, "to": np.inf}):
        ww.data.load(tmp_path / "a.csv")


def test_an_empty_line_of_one_channel_is_an_unknown_sample(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("volt\n1\n\n\n4\n\n")
    signals = ww.data.load(tmp_path / "a.csv", allow_nan=True)
    np.testing.assert_array_equal(signals[0], [[1, np.nan, np.nan, 4]])


@pytest.mark.parametrize("text", ["", "time,value\n", "1,2\n3,x\n", "1,2\n3\n"])
def test_what_is_wrong_with_a_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ImageError, match="a column for each channel"):
        ww.data.load(tmp_path / "a.csv")


def test_what_is_wrong_with_arrays_and_wav_files(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="complex"):
        ww.data.load(np.zeros(5, complex), signals=True)
    with pytest.raises(ImageError, match=r"expected signals \[T\]"):
        ww.data.load(np.zeros((1, 1, 1, 5)), signals=True)
    with pytest.warns(UserWarning, match="500 × 2 values. Reading 2 channels of 500 samples"):
        ww.data.load(np.zeros((500, 2)), signals=True)
    with pytest.raises(ImageError, match=r"looks like a recording of 2.*signals=True"):
        ww.data.load(np.zeros((2, 500)))
    pytest.importorskip("scipy")
    (tmp_path / "a.wav").write_bytes(b"RIFF1234WAVEnothing")
    with pytest.raises(ImageError, match=r"not a usable \.wav file"):
        ww.data.load(tmp_path / "a.wav")


def test_windows_cover_every_sample_and_read_no_others(tmp_path: Path) -> None:
    values = np.arange(2 * 3 * 1050, dtype=np.float32).reshape(2, 3, 1050)
    np.save(tmp_path / "a.npy", values)
    signals = ww.data.load(tmp_path / "a.npy", signals=True)
    windows = cut_windows(signals, 100)
    assert windows[:].shape == (22, 3, 100)
    assert torch.equal(
        windows[:][[0, 10, 21]],
        torch.from_numpy(values[[0, 0, 1], :, :][:, :, :]).gather(
            2, torch.tensor([0, 950, 950])[:, None, None] + torch.arange(100).expand(3, 3, 100)
        ),
    )
    assert set(windows[:].flatten().tolist()) == set(values.flatten().tolist())
    assert training_windows(signals) is signals  # short ones are kept whole
    with pytest.raises(ImageError, match="has 1,050"):
        cut_windows(signals, 2000)


def test_windows_without_a_known_sample_are_left_out() -> None:
    values = np.arange(1000, dtype=np.float32)
    values[150:420] = np.nan
    signals = ww.data.load(values, signals=True, allow_nan=True)
    windows = cut_windows(signals, 100)
    assert windows[:][:, 0, 0].nan_to_num(-1).tolist() == [0, 100, -1, 500, 600, 700, 800, 900]
    values[:] = np.nan
    with pytest.raises(ImageError, match="no known sample"):
        cut_windows(ww.data.load(values, signals=True, allow_nan=True), 100)


# Tables as other programs write them


def written(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "a.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_heading(encoding: str, tmp_path: Path) -> None:
    path = written(tmp_path, "1.5,2\n3,4\n5,6\n".encode(encoding))
    np.testing.assert_array_equal(ww.data.load(path)[0], [[1.5, 3, 5], [2, 4, 6]])


@pytest.mark.parametrize(
    ("encoding", "heading"),
    [("utf-8", "µV,電圧"), ("utf-8-sig", "µV,b"), ("latin-1", "µV,b"), ("utf-16", "µV,電圧")],
)
def test_headings_keep_their_encoding(encoding: str, heading: str, tmp_path: Path) -> None:
    content = f"{heading}\r\n1.5,2\r\n3,4\r\n".encode(encoding)
    path = written(tmp_path, content)
    values = ww.data.load(path)[:].numpy()
    assert encode(values, path) == content


def test_an_empty_line_of_several_channels_is_an_unknown_sample(tmp_path: Path) -> None:
    signals = ww.data.load(written(tmp_path, "a,b\n1,2\n\n5,6\n \n7,8\n\n"), allow_nan=True)
    expected = [[1, np.nan, 5, np.nan, 7], [2, np.nan, 6, np.nan, 8]]
    np.testing.assert_array_equal(signals[0], expected)


def test_columns_that_are_numbered_have_names(tmp_path: Path) -> None:
    path = written(tmp_path, "0,1\n0.5,0.25\n1.5,2.5\n")
    with pytest.warns(UserWarning, match="as the names of the columns"):
        signals = ww.data.load(path)
    np.testing.assert_array_equal(signals[0], [[0.5, 1.5], [0.25, 2.5]])
    with pytest.warns(UserWarning, match="as a sample"):
        signals = ww.data.load(written(tmp_path, "0\n0.5\n0.25\n"))
    np.testing.assert_array_equal(signals[0], [[0, 0.5, 0.25]])
    signals = ww.data.load(written(tmp_path, "0,1\n3,4\n5,6\n"))  # counts: nothing is unusual
    np.testing.assert_array_equal(signals[0], [[0, 3, 5], [1, 4, 6]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0,5;1,25\n-2,0;3,5\n", [[0.5, -2], [1.25, 3.5]]),
        ("a, b;c\n0,5;1,25\n-2,0;3,5\n", [[0.5, -2], [1.25, 3.5]]),
        ("0,5\t1,25\n-2,0\t3,5\n", [[0.5, -2], [1.25, 3.5]]),
        ("volt\n0,5\n1,25\n", [[0.5, 1.25]]),
        ("0,5\n0,05\n1,25\n", [[0.5, 0.05, 1.25]]),
        ("0,5\n-0,5\n1,25\n", [[0.5, -0.5, 1.25]]),
    ],
)
def test_decimal_commas(text: str, expected: list[list[float]], tmp_path: Path) -> None:
    path = written(tmp_path, text)
    values = ww.data.load(path)[:].numpy()
    np.testing.assert_array_equal(values[0], np.float32(expected))
    copy = written(tmp_path, encode(values, path))
    np.testing.assert_array_equal(ww.data.load(copy)[:], values)


def test_whole_numbers_that_may_be_decimal_commas_are_reported(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="two columns of whole numbers"):
        signals = ww.data.load(written(tmp_path, "1,523\n2,871\n"))
    np.testing.assert_array_equal(signals[0], [[1, 2], [523, 871]])


@pytest.mark.parametrize("kind", ["int16", "int64", "float32"])
def test_a_wav_file_without_samples(kind: str, tmp_path: Path) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    wavfile.write(tmp_path / "a.wav", 1000, np.zeros(0, kind))
    with pytest.raises(ImageError, match="it has no samples"):
        ww.data.load(tmp_path / "a.wav")


def test_a_wav_file_of_64_bits(recording: np.ndarray, tmp_path: Path) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    path = tmp_path / "a.wav"
    wavfile.write(path, 1000, (recording.T.astype(float) * 2.0**63).astype(np.int64))
    values = ww.data.load(path)[:]
    torch.testing.assert_close(values[0], torch.from_numpy(recording))
    copy = tmp_path / "b.wav"
    copy.write_bytes(encode(2 * values.numpy(), path))  # beyond the largest
    torch.testing.assert_close(ww.data.load(copy)[:], (2 * values).clamp(-1, 1))


def test_a_wav_file_that_ends_early_is_no_shorter_recording(
    recording: np.ndarray, tmp_path: Path
) -> None:
    wavfile = pytest.importorskip("scipy.io.wavfile")
    path = tmp_path / "a.wav"
    for kind in (np.int16, np.float32):
        wavfile.write(path, 1000, (recording.T * 100).astype(kind))
        content = path.read_bytes()
        for missing in (1, 4, 100, 1900):
            path.write_bytes(content[:-missing])
            with pytest.raises(ImageError, match="bytes of samples, but only"):
                ww.data.load(path)


@pytest.mark.parametrize(
    ("kind", "place", "value", "words"),
    [
        (np.float32, 24, bytes(4), "0 samples per second"),
        (np.float32, 24, b"\0\0\0\x80", "2,147,483,648 samples per second"),
        (np.uint8, 34, bytes(2), "samples of int8"),
    ],
)
def test_a_wav_file_that_nobody_could_write_again(
    kind: type, place: int, value: bytes, words: str, tmp_path: Path
) -> None:
    """It would be an error after the work."""
    wavfile = pytest.importorskip("scipy.io.wavfile")
    path = tmp_path / "a.wav"
    wavfile.write(path, 1000, np.zeros((60, 2), kind))
    content = bytearray(path.read_bytes())
    content[place : place + len(value)] = value
    path.write_bytes(bytes(content))
    with pytest.raises(ImageError, match=rf"a\.wav is not a usable \.wav file: .*{words}"):
        ww.data.load(path)


# Files that MNE reads -----------------------------------------------------------------------------


def write_edf(path: Path, values: np.ndarray, rate: int) -> None:
    """An .edf file of channels [C, T] in µV, of records of a second; values are steps of 0.1 µV."""
    channels, samples = values.shape
    records = samples // rate

    def fields(width: int, *texts: object) -> bytes:
        return b"".join(str(text).ljust(width).encode("ascii") for text in texts)

    header = fields(8, 0) + fields(80, "X X X X", "Startdate X X X X")
    header += fields(8, "01.01.20", "00.00.00", 256 * (channels + 1)) + fields(44, "")
    header += fields(8, records, 1) + fields(4, channels)
    header += fields(16, *(f"EEG C{c}" for c in range(channels))) + fields(80, *[""] * channels)
    for limit in ("uV", -3276.8, 3276.7, -32768, 32767):
        header += fields(8, *[limit] * channels)
    header += fields(80, *[""] * channels) + fields(8, *[rate] * channels)
    header += fields(32, *[""] * channels)
    steps = np.rint(values[:, : records * rate] * 10).astype("<i2")
    blocks = steps.reshape(channels, records, rate).transpose(1, 0, 2)
    path.write_bytes(header + blocks.tobytes())


def test_an_edf_file_by_mne(tmp_path: Path) -> None:
    mne = pytest.importorskip("mne")
    microvolts = 50 * np.random.default_rng(0).standard_normal((2, 500))
    path = tmp_path / "a.edf"
    write_edf(path, microvolts, rate=250)
    signals = ww.data.load(path)
    assert isinstance(signals, ww.data.Signals)
    assert signals.shape == (2, 1, 500)
    assert signals.rate == 250
    assert signals.unit == "V"
    assert signals.channel_names is not None
    assert [name.removeprefix("EEG ") for name in signals.channel_names] == ["C0", "C1"]
    np.testing.assert_allclose(signals[0].numpy(), 1e-6 * microvolts, atol=0.06e-6)
    raw = mne.io.read_raw(path, verbose="error")
    of_raw = ww.data.load(raw)
    assert isinstance(of_raw, ww.data.Signals)
    torch.testing.assert_close(of_raw[0], signals[0])
    assert of_raw.rate == 250


def test_an_edf_file_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("mne")
    path = tmp_path / "a.edf"
    path.write_bytes(b"no recording")
    with pytest.raises(ImageError, match=r"a\.edf"):
        ww.data.load(path)


def test_a_file_that_needs_mne_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mne", None)
    path = tmp_path / "a.edf"
    path.write_bytes(b"0")
    with pytest.raises(ImageError, match="pip install mne"):
        ww.data.load(path)


def lines_of(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_a_column_that_never_changes_stays_a_channel(tmp_path: Path) -> None:
    """A trigger that was never used; a gap of the only other channel is a gap of the recording."""
    file = tmp_path / "recording.csv"
    lines = [f"{n / 100},{'' if 20 <= n < 60 else n % 7},0" for n in range(100)]
    file.write_text("\n".join(["time (s),ECG (mV),Trigger", *lines]) + "\n")
    loaded = ww.data.load(file)
    assert isinstance(loaded, Signals)
    assert loaded.channel_names == ("ECG", "Trigger")
    assert unknown_gaps(loaded, 10) == [slice(20, 60)]
    written = encode(np.nan_to_num(loaded[:].numpy()) + 1, file).decode().splitlines()
    assert [written[0], written[1], written[31]] == [lines_of(file)[0], "0.0,1,1", "0.3,1,1"]


@pytest.mark.filterwarnings("ignore:Settings chosen from the recording")
def test_a_lead_that_came_off_leaves_a_recording_fit_for_its_model(tmp_path: Path) -> None:
    """A model of two leads finds the same events in the other lead alone."""
    rng = np.random.default_rng(3)
    wave = np.exp(-(np.linspace(-3, 3, 24) ** 2))
    values = 0.02 * rng.standard_normal((2, 6000))
    times = np.arange(100, 5900, 200) + rng.integers(-60, 60, 29)
    for at in times:
        values[:, at - 12 : at + 12] += wave
    off = values.copy()
    off[1] = 0
    files = [tmp_path / "both.csv", tmp_path / "off.csv"]
    for file, two in zip(files, (values, off), strict=True):
        np.savetxt(file, two.T, "%.5f", ",", header="I,II", comments="")
    loaded = [ww.data.load(file, signals=True, rate=1000) for file in files]
    run = ww.train(loaded[0], waveforms=1)
    found = [ww.find_events(run.model, one, run.recipe.inference)["sample"] for one in loaded]
    assert len(found[0]) == len(found[1]) == len(times)
    np.testing.assert_allclose(found[0], found[1], atol=2)


@pytest.mark.parametrize(("name", "separator"), [("a.tsv", "\t"), ("a.txt", "  "), ("b.txt", "\t")])
def test_tables_with_tabs_or_spaces(tmp_path: Path, name: str, separator: str) -> None:
    file = tmp_path / name
    rows = [f"{n / 100:.2f}{separator}{n % 7}{separator}{-n}" for n in range(50)]
    file.write_text("\n".join([separator.join(["time", "a", "b"]), *rows]) + "\n")
    loaded = ww.data.load(file)
    assert isinstance(loaded, Signals)
    assert (loaded.rate, loaded.channel_names) == (100, ("a", "b"))
    assert loaded[0][1].tolist() == [-n for n in range(50)]
    written = encode(loaded[:].numpy() + 1, file).decode().splitlines()
    assert written[1].split() == ["0.00", "1", "1"]


@pytest.mark.filterwarnings("ignore:Settings chosen from the recording")
@pytest.mark.parametrize("dtype", ["int16", "uint16", "int32", "int64", "uint32"])
def test_heights_of_whole_numbers_are_counts(dtype: str) -> None:
    """The event of 1,000 counts that a recording has is one of 1,000, whatever its type."""
    x = np.full((1, 4000), 3000.0)
    x += 20 * np.random.default_rng(0).standard_normal(x.shape)
    wave = 1000 * np.hanning(31)
    for at in range(200, 3800, 100):
        x[0, at - 15 : at + 16] += wave
    signals = ww.data.load(np.rint(x).astype(dtype), signals=True, rate=100)
    run = ww.train(signals, waveforms=1)
    events = ww.find_events(run.model, signals, run.recipe.inference)
    assert len(events) == 36
    assert np.median(events["peak"]) == pytest.approx(1000, rel=0.05)


def test_a_part_of_a_recording_keeps_its_times(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 1000)).astype(np.float32)
    np.save(tmp_path / "a.npy", x)
    stored = ww.data.load(tmp_path / "a.npy", signals=True, rate=100)
    for whole in (stored, ww.data.load(x, signals=True, rate=100)):
        assert isinstance(whole, Signals)
        part = replace(whole, start=50.0).between(52.5, 53)
        np.testing.assert_array_equal(part[0], x[:, 250:300])
        assert (part.start, part.first) == (52.5, 250)
        assert part.between(52.6, None).first == 260
        for wrong in ((60, 61), (55, 54)):
            with pytest.raises(ImageError):
                part.between(*wrong)
    with pytest.raises(ImageError):
        replace(part, rate=None).between(0, 1)
