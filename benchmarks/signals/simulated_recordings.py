"""Twenty simulated recordings with known events, as people have them: drift, hum of the mains,
gaps, overlapping events, one and four channels, sampling rates from 250 Hz to 30 kHz.

`recording(name)` draws one. A waveform has its largest value at its peak, and an event's time is
the sample of that peak, with a fraction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

QUIET = 1 / 15  # standard deviation of the noise; the largest waveform has a peak of 1
NOISY = 1 / 7
MAINS = 50.0  # Hz
SPREAD = 0.1  # of the amplitudes of one waveform, as a share


@dataclass(frozen=True)
class Scene:
    """What a recording is made of.

    rate       samples per second
    kind       of the waveforms: 'spikes', 'beats' or 'slow' (see `draw_waveforms`)
    length     of the waveforms, in samples
    noise      standard deviation of white noise, in peaks
    channels   the recording's; every waveform has its own share of each
    drift      standard deviation of a slow part, in peaks
    hum        amplitude of 50 Hz, in peaks; its third harmonic has a fifth of it
    overlaps   events at random times; otherwise they are 1.5 lengths apart
    gaps       share of the samples that are missing
    file       how the recording is given to the commands: '.npy', '.wav' or '.csv'
    """

    rate: float
    kind: str = "spikes"
    length: int = 40
    noise: float = QUIET
    channels: int = 1
    drift: float = 0.0
    hum: float = 0.0
    overlaps: bool = False
    gaps: float = 0.0
    file: str = ".npy"


SCENES = {
    "quiet": Scene(30_000, file=".wav"),
    "noisy": Scene(30_000, noise=NOISY),
    "drift": Scene(30_000, drift=3),
    "drift, noisy": Scene(20_000, length=30, noise=NOISY, drift=3, file=".wav"),
    "hum": Scene(30_000, hum=1),
    "hum, noisy": Scene(10_000, length=24, noise=NOISY, hum=1),
    "drift and hum": Scene(24_000, drift=3, hum=1),
    "gaps": Scene(20_000, gaps=0.05, drift=1),
    "four channels": Scene(30_000, channels=4),
    "four channels, drift, noisy": Scene(30_000, channels=4, noise=NOISY, drift=3, file=".wav"),
    "four channels, hum and gaps": Scene(25_000, channels=4, hum=1, gaps=0.05),
    "short spikes": Scene(8_000, length=14, drift=1),
    "beats": Scene(250, "beats", 50, file=".csv"),
    "beats, drift": Scene(250, "beats", 50, drift=1, file=".csv"),
    "beats, drift and hum, noisy": Scene(500, "beats", 90, NOISY, drift=1, hum=0.3, file=".csv"),
    "slow waves": Scene(250, "slow", 120, drift=1),
    "slow waves, four channels": Scene(1_000, "slow", 160, NOISY, channels=4, drift=1, hum=0.3),
    "overlaps": Scene(30_000, overlaps=True, file=".wav"),
    "overlaps, drift, noisy": Scene(20_000, noise=NOISY, overlaps=True, drift=3),
    "overlaps, four channels, hum": Scene(30_000, channels=4, overlaps=True, hum=1, drift=1),
}
EVENTS = 400  # of each recording, of all waveforms together


class Truth(NamedTuple):
    """The events: the waveform and the sample of the peak of each, sorted by time; and the
    waveforms [n, C, length]."""

    waveform: np.ndarray
    sample: np.ndarray
    shapes: np.ndarray


class Recording(NamedTuple):
    """Samples [C, T], NaN where they are missing, and what is in them."""

    name: str
    scene: Scene
    values: np.ndarray
    truth: Truth


def recordings(names: list[str] | None = None) -> Iterator[Recording]:
    for name in names or SCENES:
        yield recording(name)


def recording(name: str, seed: int = 0) -> Recording:
    """Draw one recording; the same name and seed give the same one."""
    scene = SCENES[name]
    rng = np.random.default_rng([seed, list(SCENES).index(name)])
    waveforms = [shape_of(scene, number) for number in range(waveform_count(scene))]
    samples, waveform = draw_events(scene, len(waveforms), rng)
    length = int(samples[-1]) + 2 * scene.length
    shares = channel_shares(scene, len(waveforms), rng)
    values = np.zeros((scene.channels, length))
    for at, number in zip(samples, waveform, strict=True):
        add_event(values, waveforms[number], at, shares[number] * rng.normal(1, SPREAD))
    values += scene.noise * rng.standard_normal(values.shape)
    time = np.arange(length) / scene.rate
    if scene.drift:
        values += scene.drift * np.stack([slow_part(scene, length, rng) for _ in values])
    if scene.hum:
        values += scene.hum * hum(time, rng)
    missing = gaps(scene, length, rng)
    values[:, missing] = np.nan
    known = ~missing[np.rint(samples).astype(int)]
    shapes = np.stack([shape(np.arange(scene.length) - scene.length / 2) for shape in waveforms])
    truth = Truth(waveform[known], samples[known], shares[:, :, None] * shapes[:, None])
    return Recording(name, scene, values.astype(np.float32), truth)


# The waveforms ------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """A waveform as a sum of bumps: heights, places and widths as shares of its length. It is
    called with samples since its peak."""

    length: int
    heights: tuple[float, ...]
    places: tuple[float, ...]
    widths: tuple[float, ...]

    def __call__(self, t: np.ndarray) -> np.ndarray:
        total = np.zeros(len(t))
        for height, place, width in zip(self.heights, self.places, self.widths, strict=True):
            total += height * np.exp(-(((t / self.length - place) / width) ** 2) / 2)
        return total


BUMPS = {
    "spikes": [
        ((-1.0, 0.4), (0.0, 0.2), (0.045, 0.09)),
        ((0.9, -0.45, -0.2), (0.0, 0.13, -0.13), (0.06, 0.06, 0.06)),
        ((-0.7, 0.35, 0.2), (0.0, 0.22, -0.2), (0.1, 0.12, 0.07)),
    ],
    "beats": [
        ((1.0, -0.2, -0.25, 0.2), (0.0, -0.07, 0.07, 0.35), (0.028, 0.025, 0.03, 0.07)),
        ((-0.8, 0.5), (0.0, 0.2), (0.07, 0.08)),
    ],
    "slow": [
        ((1.0,), (0.0,), (0.14,)),
        ((-0.8, 0.4), (0.0, 0.28), (0.08, 0.1)),
    ],
}


def waveform_count(scene: Scene) -> int:
    return len(BUMPS[scene.kind])


def shape_of(scene: Scene, number: int) -> Shape:
    return Shape(scene.length, *BUMPS[scene.kind][number])


def channel_shares(scene: Scene, count: int, rng: np.random.Generator) -> np.ndarray:
    """The share of each waveform in each channel, [n, C]; its largest is 1."""
    if scene.channels == 1:
        return np.ones((count, 1))
    shares = rng.uniform(0.1, 0.7, (count, scene.channels))
    shares[np.arange(count), np.arange(count) % scene.channels] = 1
    return shares


def add_event(values: np.ndarray, shape: Shape, at: float, share: np.ndarray) -> None:
    """Add a waveform with its peak at a sample, to all channels."""
    first = max(0, int(at) - shape.length)
    last = min(values.shape[1], int(at) + shape.length + 1)
    values[:, first:last] += share[:, None] * shape(np.arange(first, last) - at)


# What else is in a recording ----------------------------------------------------------------------


def draw_events(
    scene: Scene, waveforms: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The samples of all peaks, and the waveform of each."""
    waveform = rng.integers(waveforms, size=EVENTS)
    if scene.kind == "beats":  # a rhythm, in which one beat in eight is of the second kind
        waveform = (rng.random(EVENTS) < 1 / 8).astype(int)
        distance = rng.normal(4 * scene.length, 0.3 * scene.length, EVENTS)
    elif scene.overlaps:  # a fifth of the events begin before the one before them has ended
        distance = rng.exponential(4.5 * scene.length, EVENTS)
    else:
        distance = 1.5 * scene.length + rng.exponential(3 * scene.length, EVENTS)
    return 2 * scene.length + np.cumsum(distance), waveform


def slow_part(scene: Scene, length: int, rng: np.random.Generator) -> np.ndarray:
    """A wandering line of standard deviation 1: eight sines with periods from 25 waveforms to all
    of the recording."""
    periods = np.exp(rng.uniform(np.log(25 * scene.length), np.log(length), 8))
    phases = rng.uniform(0, 2 * np.pi, 8)
    t = np.arange(length)[:, None]
    total = np.sin(2 * np.pi * t / periods + phases).sum(1)
    return total / total.std()


def hum(time: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The mains, whose frequency is a little off, and the third harmonic."""
    frequency = MAINS + rng.uniform(-0.05, 0.05)
    phases = rng.uniform(0, 2 * np.pi, 2)
    first = np.sin(2 * np.pi * frequency * time + phases[0])
    third = np.sin(6 * np.pi * frequency * time + phases[1])
    return first + 0.2 * third


def gaps(scene: Scene, length: int, rng: np.random.Generator) -> np.ndarray:
    """Missing samples [T]: gaps of a quarter of a waveform to four of them."""
    missing = np.zeros(length, bool)
    while scene.gaps and missing.mean() < scene.gaps:
        at = rng.integers(length)
        missing[at : at + rng.integers(scene.length // 4, 4 * scene.length)] = True
    return missing
