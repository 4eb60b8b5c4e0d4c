from whatwhere.classification.columns import column_names as column_names
from whatwhere.classification.descriptors import Matrix as Matrix
from whatwhere.classification.descriptors import describe as describe
from whatwhere.classification.descriptors import describe_images as describe_images
from whatwhere.classification.linear_svm import LinearSVM as LinearSVM
from whatwhere.classification.linear_svm import fit_svm as fit_svm

from . import protocol as protocol
