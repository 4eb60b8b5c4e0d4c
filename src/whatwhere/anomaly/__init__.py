"""Finding pictures, and places in them, that are unlike normal ones."""

from whatwhere.anomaly.detector import AnomalyDetector, Detection
from whatwhere.anomaly.pictures import open_pictures
from whatwhere.anomaly.threshold import Threshold, pictures_needed

__all__ = ["AnomalyDetector", "Detection", "Threshold", "open_pictures", "pictures_needed"]
