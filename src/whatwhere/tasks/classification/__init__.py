"""From features to labels: descriptors, a linear SVM, and the evaluation protocol."""

from whatwhere.tasks.classification import protocol
from whatwhere.tasks.classification.descriptors import Matrix, describe, describe_images
from whatwhere.tasks.classification.linear_svm import LinearSVM, fit_svm

__all__ = [
    "LinearSVM",
    "Matrix",
    "describe",
    "describe_images",
    "fit_svm",
    "protocol",
]
