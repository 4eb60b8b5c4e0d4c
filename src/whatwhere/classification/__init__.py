"""From features to labels: descriptors, a linear SVM, and the evaluation protocol."""

from whatwhere.classification import protocol
from whatwhere.classification.descriptors import describe, describe_images, layer_columns
from whatwhere.classification.linear_svm import LinearSVM, fit_svm
from whatwhere.classification.matrix import Matrix, side_by_side
from whatwhere.classification.whitening import Whitening, fit_whitening

__all__ = [
    "LinearSVM",
    "Matrix",
    "Whitening",
    "describe",
    "describe_images",
    "fit_svm",
    "fit_whitening",
    "layer_columns",
    "protocol",
    "side_by_side",
]
