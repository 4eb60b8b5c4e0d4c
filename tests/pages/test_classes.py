"""The page of classes, which needs no server."""

import numpy as np

import whatwhere as ww
from whatwhere.pages.classes import classes_page


def test_names_with_html_in_them_are_text_on_the_page_of_classes() -> None:
    session = ww.Labelling(np.eye(4, dtype=np.float32).repeat(3, 0))
    session.label({0: "<b>cat", 3: "dog"})
    written = classes_page(session, ww.data.load(np.zeros((12, 8, 8), np.uint8)))
    assert "<b>" not in written
    # worth labelling next, and all classes
    assert written.count("<figcaption>") == written.count("<img ") == 10 + 12
    assert "&lt;b&gt;cat, 100%" in written
