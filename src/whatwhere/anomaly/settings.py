"""The settings of `AnomalyDetector`."""

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Count, CountOrZero, Within


@dataclass(frozen=True, kw_only=True)
class AnomalySpec(Checked):
    """Settings of `AnomalyDetector`, chosen on validation pictures of magnetic tiles.

    Parameters
    ----------
    aligned
        compare each place with the same place of normal pictures, for objects in a fixed position
        in pictures of one size. By default, the detector compares each place with all places, for
        surfaces
    false_alarms
        share of normal pictures that may count as anomalies; sets the threshold
    false_area
        share of the area of normal pictures that may lie inside outlines
    contamination
        share of the given pictures that may be anomalies. The detector leaves out the least normal
        ones and learns again from the rest
    trusted
        every given picture is normal: those that score far above the others count in the threshold,
        too. By default they do not, because two or three pictures with a defect would raise it
        above most defects
    memory
        MB of memory that `fit` may use. If the normal pictures need more, it keeps a random sample
        of them
    seed
        seed of the random sample
    """

    aligned: bool = False
    false_alarms: Annotated[float, Within(0, 0.5, above=True)] = 0.05
    false_area: Annotated[float, Within(0, 0.5, above=True)] = 0.002
    contamination: Annotated[float, Within(0, 0.5)] = 0.0
    trusted: bool = False
    memory: Count = 1000
    seed: CountOrZero = 0
