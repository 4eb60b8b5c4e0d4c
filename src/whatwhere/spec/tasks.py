"""The settings of tasks: distortions for a metric, anomaly detection, restoration."""

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Count, CountOrZero, NonNegative, Within, require

Share = Annotated[float, Within(0, 1)]


@dataclass(frozen=True)
class Distortions(Checked):
    """How much images are distorted. Each amount is the largest one, to either side; 0 leaves a
    kind out.

    rotation    in degrees
    shear       columns per row, and rows per column
    scale       share by which an image becomes larger or smaller, along each axis by itself
    shift       share of the height and of the width
    elastic     share of the height and of the width by which control points of a 4×4 grid move,
                each by itself
    brightness  share by which all values of an image become larger or smaller
    colour      the same for each channel by itself
    copies      distorted copies of an image
    seed        of the draws

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

    aligned       pictures of objects in a fixed position: a place is compared with the same place
                  of normal pictures. Otherwise, for surfaces, with all places
    false_alarms  share of normal pictures that may be taken for anomalies: sets the threshold
    contamination  share of the pictures given to `fit` that may be anomalies: the least normal ones
                  are left out, and the rest is fitted again
    memory        MB that `fit` may use; of normal pictures that need more, a random sample is kept
    seed          of the sample
    """

    aligned: bool = False
    false_alarms: Annotated[float, Within(0, 0.5, above=True)] = 0.05
    contamination: Annotated[float, Within(0, 0.5)] = 0.0
    memory: Count = 1000
    seed: CountOrZero = 0


@dataclass(frozen=True, kw_only=True)
class RestorationSpec(Checked):
    """Settings of `denoise` and `inpaint` with the trained denoiser.

    quality  8, 16, 32 or 64: how many shifts of its grid are averaged; time is proportional to it
             (docs/howto/restoration.md)
    tile     side of the tiles that a larger image is cut into, in pixels; the result does not
             depend on it
    learn    in `denoise`, adapt a dictionary to each image and denoise by it: for images unlike
             photographs, such as text and lattices (docs/howto/restoration.md)

    >>> ww.restoration.RestorationSpec(quality=32).tile
    640
    """

    quality: int = 16
    tile: Count = 640
    learn: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.quality in (8, 16, 32, 64), f"quality = {self.quality}", "8, 16, 32 or 64")


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Checked):
    """What `encode` writes, and how it cuts large pictures.

    where      also write the pooling variables, which decoding needs
    descriptors  write rows for a classifier instead, in a metric in which small distortions count
                 little
    exact      write values in 32 bits, exactly; the file is about ten times as large
    tile       side of the overlapping tiles that pictures are inferred in, in pixels; 0: never.
               Default: 256, for pictures of more than 1,048,576 pixels
    overlap    pixels that tiles next to each other share
    threshold  the least amplitude of an event, in units of the signals; 0 writes everything that
               inference found. Default: five standard deviations of what its waveform finds in the
               noise of the recording, and a fifth of the energy where the event lies
    """

    where: bool = False
    descriptors: bool = False
    exact: bool = False
    tile: CountOrZero | None = None
    overlap: CountOrZero = 64
    threshold: NonNegative | None = None
