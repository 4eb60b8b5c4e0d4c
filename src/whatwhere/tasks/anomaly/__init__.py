"""Finding pictures, and places in them, that are unlike normal ones."""

from whatwhere.tasks.anomaly.detector import AnomalyDetector, Detection
from whatwhere.tasks.anomaly.evidence import Threshold, pictures_needed
from whatwhere.tasks.anomaly.pictures import open_pictures

__all__ = ["AnomalyDetector", "Detection", "Threshold", "open_pictures", "pictures_needed"]
