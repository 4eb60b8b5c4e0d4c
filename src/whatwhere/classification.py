"""Classification with many labels: descriptors, linear SVMs, and the protocol that chooses and
evaluates them."""

from whatwhere.tasks.classification import (
    LinearSVM,
    Matrix,
    describe,
    describe_images,
    fit_svm,
    protocol,
)

__all__ = ["LinearSVM", "Matrix", "describe", "describe_images", "fit_svm", "protocol"]
