"""Find pictures that are unlike normal ones, and the places where they differ."""

from whatwhere.tasks.anomaly import (
    AnomalyDetector,
    Detection,
    Patch,
    Threshold,
    open_pictures,
    pictures_needed,
)

__all__ = ["AnomalyDetector", "Detection", "Patch", "Threshold", "open_pictures", "pictures_needed"]
