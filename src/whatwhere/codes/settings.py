"""The settings of `encode`."""

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, CountOrZero, NonNegative


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
