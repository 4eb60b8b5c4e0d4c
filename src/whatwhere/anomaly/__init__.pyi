from whatwhere.anomaly.detector import AnomalyDetector as AnomalyDetector
from whatwhere.anomaly.detector import Detection as Detection
from whatwhere.anomaly.detector import Patch as Patch
from whatwhere.anomaly.evidence import Threshold as Threshold
from whatwhere.anomaly.evidence import pictures_needed as pictures_needed
from whatwhere.anomaly.pictures import open_pictures as open_pictures
