"""The settings of anomaly detection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from whatwhere.spec.checks import Checked, Count, CountOrZero, Within


@dataclass(frozen=True, kw_only=True)
class AnomalySpec(Checked):
    """Settings of `AnomalyDetector`, chosen on validation pictures of magnetic tiles.

    aligned       pictures of objects in a fixed position: a place is compared with the same place of normal pictures.
                  Otherwise, for surfaces, with all places
    false_alarms  share of normal pictures that may be taken for anomalies: sets the threshold
    memory        MB that `fit` may use; of normal pictures that need more, a random sample is kept
    seed          of the sample
    """

    aligned: bool = False
    false_alarms: Annotated[float, Within(0, 0.5, above=True)] = 0.05
    memory: Count = 1000
    seed: CountOrZero = 0
