"""From features to labels: descriptors, a linear SVM, and the protocol that measures them."""

from whatwhere.classification.descriptors import Matrix, describe, describe_images
from whatwhere.classification.linear_svm import LinearSVM, fit_svm

__all__ = ["LinearSVM", "Matrix", "describe", "describe_images", "fit_svm"]
