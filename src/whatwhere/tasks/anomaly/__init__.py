"""Find pictures that are unlike normal ones, and the places where they differ."""

from whatwhere.tasks.anomaly.detector import AnomalyDetector, Detection, Patch
from whatwhere.tasks.anomaly.evidence import Threshold, pictures_needed
from whatwhere.tasks.anomaly.pictures import open_pictures

__all__ = ["AnomalyDetector", "Detection", "Patch", "Threshold", "open_pictures", "pictures_needed"]
