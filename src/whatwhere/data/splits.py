"""Parts of a data set: the paper's training and validation images, and a few labels of every class."""

import numpy as np

from whatwhere.data.images import Images
from whatwhere.errors import ImageError, SpecError


def train_validation(images: Images) -> tuple[Images, Images]:
    """The first five sixths and the rest: of MNIST's 60,000 images, the paper's 50,000 and 10,000.

    images  all of them, in the order of the source

    >>> train, validation = ww.data.train_validation(ww.data.load("digits"))
    >>> len(train), len(validation)
    (4166, 834)
    """
    if len(images) < 2:
        raise ImageError(f"{images.name}: {len(images)} image cannot be split; expected at least 2")
    rows = np.arange(len(images))
    cut = len(images) * 5 // 6
    return (
        images.subset(rows[:cut], f"{images.name}[:{cut}]"),
        images.subset(rows[cut:], f"{images.name}[{cut}:]"),
    )


def few_labels(labels: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Rows of `count` labelled images, equally many of every class, in ascending order.

    With the same seed, the rows of a smaller count are a subset of those of a larger one.

    labels   of all images, [N]
    count    of labels in all, a multiple of the number of classes
    seed     of the draw
    returns  row numbers, [count]

    >>> digits = ww.data.load("digits")
    >>> rows = ww.data.few_labels(digits.labels, 30, seed=0)
    >>> np.bincount(digits.labels[rows])
    array([3, 3, 3, 3, 3, 3, 3, 3, 3, 3])
    """
    classes = np.unique(labels)
    each, remainder = divmod(count, len(classes))
    if each < 1 or remainder:
        raise SpecError(
            f"{count} labels of {len(classes)} classes were requested; expected a multiple of {len(classes)}"
        )
    generator = np.random.default_rng(seed)
    chosen = []
    for label in classes:
        rows = generator.permutation(np.flatnonzero(labels == label))
        if len(rows) < each:
            raise SpecError(
                f"{count} labels are {each} per class, but class {label} has only {len(rows)}; request fewer"
            )
        chosen.append(rows[:each])
    return np.sort(np.concatenate(chosen))
