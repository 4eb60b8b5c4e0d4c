"""
Ten labels
==========

With one labelled digit of each class (top row), the graph assigns a class to 5,000 digits. This
works because neighbours mostly share a class, in a metric in which small distortions count little.
The bottom row shows the digits that the classifier is least sure of, and the class that it gives
them.
"""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

import whatwhere as ww
from whatwhere.classification import describe_images, fit_svm
from whatwhere.classification.metric import learn_metric
from whatwhere.inference.learned_steps import resolve_steps

digits = ww.data.load("digits")
model, inference = resolve_steps(ww.load("mnist"), "learned")
recipe = replace(ww.Recipe.paper(), inference=inference, plan=())
metric = learn_metric(model, digits.subset(np.arange(0, len(digits), 4)), recipe)  # without labels
rows = metric(describe_images(model, digits, recipe)).numpy()


def spread(labelled):
    y = np.full(len(digits), -1)  # no label
    y[labelled] = digits.labels[labelled]
    return ww.GraphClassifier(class_prior="uniform").fit(rows, y)


hundred = spread(ww.data.few_labels(digits.labels, 100, seed=0))
classifier = spread(labelled := ww.data.few_labels(digits.labels, 10, seed=0))
others = ww.data.load("digits", split="test")
new = metric(describe_images(model, others, recipe)).numpy()
# the graph's classes
found = [fit_svm(rows, each.transduction_, C=0.3).predict(new) for each in (classifier, hundred)]
errors = [np.mean(each != others.labels) for each in found]
unsure = np.argsort(classifier.label_distributions_.max(1))[:10]
figure, axes = plt.subplots(2, 10, figsize=(10, 2.8), layout="constrained")
for axis, row in zip(axes.flat, [*labelled, *unsure], strict=True):
    axis.imshow(digits[int(row)][0], cmap="gray_r")
    axis.set_title(classifier.transduction_[row], fontsize=9)
    axis.axis("off")
figure.suptitle(
    f"{errors[0]:.1%} errors on other digits with ten labels, {errors[1]:.1%} with a hundred"
)
