"""Finding pictures, and places in them, that are unlike normal ones."""

from whatwhere.tasks.anomaly import (
    AnomalyDetector,
    Detection,
    Threshold,
    open_pictures,
    pictures_needed,
)

__all__ = ["AnomalyDetector", "Detection", "Threshold", "open_pictures", "pictures_needed"]
