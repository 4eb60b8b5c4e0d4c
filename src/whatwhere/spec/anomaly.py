"""The settings of anomaly detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Count, CountOrZero, Within, require


@dataclass(frozen=True, kw_only=True)
class AnomalySpec(Checked):
    """Settings of `AnomalyDetector`, chosen on validation pictures of magnetic tiles.

    aligned       pictures of objects in a fixed position: a place is compared with the same place of normal pictures.
                  Otherwise, for surfaces, with all places
    false_alarms  share of normal pictures that may be taken for anomalies: sets the threshold
    scales        at which features are looked for: pixels of the picture for a pixel of a feature, powers of 2.
                  Default: 1 for pictures of less than 96 × 96 pixels, otherwise 2 and 4
    memory        MB that `fit` may use; of normal pictures that need more, a random sample is kept
    seed          of the sample
    """

    aligned: bool = False
    false_alarms: Annotated[float, Within(0, 0.5, above=True)] = 0.05
    scales: tuple[int, ...] = ()
    memory: Count = 1000
    seed: CountOrZero = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        powers = all(scale >= 1 and scale & (scale - 1) == 0 for scale in self.scales)
        near = not self.scales or max(self.scales) <= 4 * min(self.scales)
        require(powers and near, f"scales = {self.scales}", "powers of 2, the largest at most 4 times the smallest")
