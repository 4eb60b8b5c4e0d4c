"""Names of other programs, matched with the pictures that are here."""

import pytest

from whatwhere.errors import ImageError
from whatwhere.labelling.name_matching import match_labels, other_spellings, quoted

NAMES = ["a/1.png", "b/1.png", "b/2.png", "3 ü.png"]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("b/2.png", "b/2.png"),
        ("2.png", "b/2.png"),
        (" b/2.png ", "b/2.png"),
        (r"C:\data\b\2.png", "b/2.png"),
        (r"C:\data\3 ü.png", "3 ü.png"),
        ("/data/upload/1/0a1b2c3d-2.png", "b/2.png"),
        ("3 u\u0308.png", "3 ü.png"),
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
    assert len(quoted("a" * 1000, longest=50)) == 50 + 3


@pytest.mark.parametrize("given", ["test/2.png", r"C:\data\2.png", "b2/2.png", "bb/2.png"])
def test_a_name_in_another_folder_is_no_picture_here(given: str) -> None:
    assert match_labels([(given, "cat")], "labels.csv", NAMES) == ({}, [given])


def test_pictures_whose_names_differ_in_form_alone_are_told_apart() -> None:
    names = ["\u00fc.png", "u\u0308.png"]
    pairs = [(names[1], "cat"), (names[0], "dog")]
    assert match_labels(pairs, "labels.csv", names) == (dict(pairs), [])
    assert other_spellings(names) == {}
    assert other_spellings(["a/\u00fc.png"]) == dict.fromkeys(
        ["a/u\u0308.png", "\u00fc.png", "u\u0308.png"], "a/\u00fc.png"
    )
