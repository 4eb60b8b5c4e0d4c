"""
Which picture to label next
===========================

A labelling session suggests the picture whose label helps most: one that is far from all labelled
pictures and whose class the graph is unsure of. Here, the true class answers each suggestion. The
pictures on top are the first ten suggestions. In `whatwhere label`, a person answers in the
browser.
"""

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww

digits = ww.data.load("digits").subset(range(1000))
rows = ww.Labelling(digits, run="mnist").rows  # described once, in the metric of small distortions


def errors(choose):
    """Errors after each of 40 labels, and which pictures were labelled."""
    session, found, asked = ww.Labelling(rows), [], []
    for _ in range(40):
        asked.append(choose(session, asked))
        session.label({asked[-1]: str(digits.labels[asked[-1]])})
        found.append(np.mean(session.predict().classes != digits.labels.astype(str)))
    return 100 * np.array(found), asked


order = np.random.default_rng(0).permutation(len(digits)).tolist()
random, _ = errors(lambda session, asked: order[len(asked)])
suggested, asked = errors(lambda session, asked: session.suggest(1)[0])

figure, axes = plt.subplot_mosaic(
    ";".join(["0123456789", *["c" * 10] * 3]), figsize=(8, 4), layout="constrained"
)
for place, row in enumerate(asked[:10]):
    axes[str(place)].imshow(digits[row][0], cmap="gray_r")
    axes[str(place)].axis("off")
axes["c"].plot(range(1, 41), random, label="labels at random")
axes["c"].plot(range(1, 41), suggested, label="labels of suggestions")
axes["c"].set(xlabel="labels", ylabel="errors on all pictures, %", yscale="log")
axes["c"].legend()
