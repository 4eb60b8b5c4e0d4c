"""From features to labels: descriptors, a linear SVM, and the evaluation protocol."""

from whatwhere.classification import protocol
from whatwhere.classification.descriptors import Matrix, describe, describe_images
from whatwhere.classification.linear_svm import LinearSVM, fit_svm

__all__ = [
    "LinearSVM",
    "Matrix",
    "describe",
    "describe_images",
    "fit_svm",
    "protocol",
]
