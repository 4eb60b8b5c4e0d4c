from whatwhere.signals.figures import RecordingFigures as RecordingFigures
from whatwhere.signals.find import find_events as find_events
