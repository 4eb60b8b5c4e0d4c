"""
Few labels against pixels
=========================

The figure shows the test error of a linear SVM against the number of labelled digits: on pixels,
and on features that were learned without labels.
"""

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww
from whatwhere.classification import describe_images, fit_svm

model = ww.load("mnist")
recipe = ww.override(ww.Recipe.paper(), {"inference": {"steps": 20}})
train = ww.data.load("digits").subset(np.arange(800))
test = ww.data.load("digits", split="test").subset(np.arange(300))
views = {
    "pixels": [images[:].flatten(1).numpy() for images in (train, test)],
    "features": [describe_images(model, images, recipe) for images in (train, test)],
}
labels = [10, 30, 100, 300]
for name, (x, x_test) in views.items():
    rows = [ww.data.few_labels(train.labels, n, seed=0) for n in labels]
    errors = [
        100 * np.mean(fit_svm(x[r], train.labels[r], C=10).predict(x_test) != test.labels)
        for r in rows
    ]
    plt.loglog(labels, errors, "o-", label=name)
plt.minorticks_off()
plt.xticks(labels, map(str, labels))
plt.yticks([5, 10, 20, 50], ["5", "10", "20", "50"])
plt.xlabel("labelled digits")
plt.ylabel("test error in %, 300 digits")
plt.legend()
