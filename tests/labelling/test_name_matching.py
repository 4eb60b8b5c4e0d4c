"""Names of other programs, matched with the pictures that are here."""

import pytest

from whatwhere.errors import ImageError
from whatwhere.labelling.name_matching import LONGEST_QUOTE, match_labels, quoted

NAMES = ["a/1.png", "b/1.png", "b/2.png", "3 ü.png"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("b/2.png", "b/2.png"),
        ("2.png", "b/2.png"),
        (" b/2.png ", "b/2.png"),
        (r"C:\data\2.png", "b/2.png"),
        ("/data/local-files/?d=b/1.png", "b/1.png"),
        ("/data/upload/1/0a1b2c3d-3%20%C3%BC.png", "3 ü.png"),
    ],
)
def test_a_name_means_one_picture(given: str, name: str) -> None:
    assert match_labels([(given, "cat")], "labels.csv", NAMES) == ({name: "cat"}, [])


def test_names_of_no_picture_are_returned() -> None:
    pairs = [("2.png", "cat"), ("9.png", "dog")]
    assert match_labels(pairs, "labels.csv", NAMES) == ({"b/2.png": "cat"}, ["9.png"])


def test_a_name_of_many_pictures_is_an_error_that_lists_some() -> None:
    names = [f"{folder}/1.png" for folder in "abcdefg"]
    words = r"labels.csv labels '1\.png', but 7 pictures have this name: 'a/1\.png', .* and 2 more"
    with pytest.raises(ImageError, match=words):
        match_labels([("1.png", "cat")], "labels.csv", names)


def test_a_long_text_is_quoted_in_part() -> None:
    assert quoted("a") == "'a'"
    assert len(quoted("a" * 1000)) == LONGEST_QUOTE + 3
