"""The settings of anomaly detection."""

from __future__ import annotations

from dataclasses import dataclass

from whatwhere.spec.checks import check_fields, require, require_count


@dataclass(frozen=True, kw_only=True)
class AnomalySpec:
    """Settings of `AnomalyDetector`, chosen on validation pictures of magnetic tiles (docs/howto/anomaly.md).

    aligned       pictures of objects in a fixed position: a place is compared with the same place of normal pictures.
                  Otherwise, for surfaces, with all places
    false_alarms  share of normal pictures that may be taken for anomalies: sets the threshold
    scales        at which features are looked for: pixels of the picture for a pixel of a feature; powers of 2
    cell          side of the squares whose features are compared, in pixels; a multiple of every scale
    memory        normal pictures that are kept, in MB; of more, a random sample is
    seed          of the sample

    >>> ww.anomaly.AnomalySpec(aligned=True).false_alarms
    0.05
    """

    aligned: bool = False
    false_alarms: float = 0.05
    scales: tuple[int, ...] = (2, 4)
    cell: int = 8
    memory: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("cell", "memory"):
            require_count(name, getattr(self, name))
        require_count("seed", self.seed, least=0)
        require(0 < self.false_alarms <= 0.5, f"false_alarms = {self.false_alarms}", "a number above 0, up to 0.5")
        fits = bool(self.scales) and all(s >= 1 and s & (s - 1) == 0 and self.cell % s == 0 for s in self.scales)
        require(
            fits,
            f"scales = {self.scales} with cell = {self.cell}",
            "powers of 2 that divide the cell, such as scales = (2, 4) with cell = 8",
        )
