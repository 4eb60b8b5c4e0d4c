"""Find digits of a kind that was not known, and show what is odd about them:  python examples/anomaly.py"""

from pathlib import Path

import whatwhere as ww
from whatwhere.model.picture import png, tiles

UNKNOWN = 7
digits, test = ww.data.load("digits"), ww.data.load("digits", split="test")
normal = digits[digits.labels != UNKNOWN][:1000]

detector = ww.AnomalyDetector().fit(normal)  # learns a model of the normal digits, in a stream
images = test[:200]
scores, maps = detector.decision_and_map(images)
worst = scores.argsort()[:20]

print("the 20 least normal of 200 digits:", test.labels[worst].tolist())
print(f"of them {UNKNOWN}s, of which none was known:", int((test.labels[worst] == UNKNOWN).sum()))
sheet = tiles(images[worst.copy()], 20, 0, 1), tiles(maps[worst.copy()][:, None], 20, 0, 6)
for name, picture in zip(("digits.png", "maps.png"), sheet, strict=True):
    Path(name).write_bytes(png(picture))
