"""Finding images, and places in them, that are unlike normal ones."""

from whatwhere.anomaly.detector import AnomalyDetector

__all__ = ["AnomalyDetector"]
