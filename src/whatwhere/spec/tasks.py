"""The settings of tasks: distortions for a metric, anomaly detection, restoration."""

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Count, CountOrZero, NonNegative, Within, require

Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True)
class Distortions(Checked):
    """How strongly images are distorted. Each amount is the largest change, in either direction; 0
    leaves a kind of distortion out.

    rotation    rotation of distorted copies, in degrees
    shear       shear, in columns per row and rows per column
    scale       change of size along each axis, as a share of the size
    shift       shift, as a share of the height and of the width
    elastic     shift of each control point of a 4×4 grid, as a share of the height and of the width
    brightness  change of all values of an image, as a share of them
    colour      change of the values of each channel, as a share of them
    copies      number of distorted copies of an image
    seed        seed of the random distortions

    >>> ww.Distortions(rotation=20, shift=0.0).copies
    4
    """

    rotation: Annotated[float, Within(0, 180)] = 15.0
    shear: Share = 0.2
    scale: Share = 0.15
    shift: Share = 0.03
    elastic: Share = 0.04
    brightness: Share = 0.0
    colour: Share = 0.0
    copies: Annotated[int, Within(2)] = 4  # they are compared with their mean
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class AnomalySpec(Checked):
    """Settings of `AnomalyDetector`, chosen on validation pictures of magnetic tiles.

    aligned       compare each place with the same place of normal pictures, for objects in a fixed
                  position in pictures of one size. By default, the detector compares each place
                  with all places, for surfaces
    false_alarms  share of normal pictures that may count as anomalies; sets the threshold
    contamination  share of the given pictures that may be anomalies. The detector leaves out the
                   least normal ones and learns again from the rest
    memory        MB of memory that `fit` may use. If the normal pictures need more, it keeps a
                  random sample of them
    seed          seed of the random sample
    """

    aligned: bool = False
    false_alarms: Annotated[float, Within(0, 0.5, above=True)] = 0.05
    contamination: Annotated[float, Within(0, 0.5)] = 0.0
    memory: Count = 1000
    seed: CountOrZero = 0


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint` with the trained denoiser.

    quality  number of shifted grids to average: 8, 16, 32 or 64. The time is proportional to it
             (docs/howto/restoration.md)
    tile     side of the tiles that larger images are cut into, in pixels; the result does not
             depend on it
    learn    let `denoise` adapt a dictionary to each image and use it in place of the trained
             denoiser; for images unlike photographs, such as text and lattices
             (docs/howto/restoration.md)
    baseline  keep the drift and the hum of a recording in the result; otherwise both are removed

    >>> ww.restoration.RestorationSpec(quality=32).tile
    640
    """

    quality: int = 16
    tile: Count = 640
    learn: bool = False
    baseline: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.quality in (8, 16, 32, 64), f"quality = {self.quality}", "8, 16, 32 or 64")


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Checked):
    """What `encode` writes, and how it cuts large pictures.

    where      also write the pooling variables, which `decode` needs
    descriptors  write rows for a classifier instead, in a metric that discounts small distortions
    exact      write exact values, in 32 bits, to a file that is about ten times as large
    tile       side of the overlapping tiles that large pictures are cut into, in pixels; 0 cuts
               none. Default: 256 for pictures of more than 1,048,576 pixels
    overlap    pixels that neighbouring tiles share
    threshold  the smallest amplitude of an event, in units of the signals; 0 writes everything that
               inference found. By default, an event must exceed five standard deviations of what
               its waveform finds in the noise of the recording, and have a fifth of the energy at
               its place
    """

    where: bool = False
    descriptors: bool = False
    exact: bool = False
    tile: CountOrZero | None = None
    overlap: CountOrZero = 64
    threshold: NonNegative | None = None
