"""Try a classifier on one picture that the page sends."""

import base64
import tempfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from whatwhere.classification.picture_classifier import PictureClassifier
from whatwhere.errors import ImageError


def dropped_content(sent: object) -> tuple[str, bytes]:
    """Return the name and the bytes of a picture that the page sent."""
    if isinstance(sent, dict):
        name, text = sent.get("name"), sent.get("content")
        if isinstance(name, str) and isinstance(text, str):
            try:
                return name, base64.b64decode(text, validate=True)
            except ValueError:  # also binascii.Error
                pass
    raise ImageError("Expected the name of a picture, and its bytes in base64.")


class Tried(NamedTuple):
    """What a classifier says of one picture: its classes, the most probable first, in %."""

    classes: list[str]
    shares: list[int]


def try_picture(classifier: PictureClassifier, sent: object) -> Tried:
    """Classify a picture that the page sent."""
    name, content = dropped_content(sent)
    suffix = PurePosixPath(name).suffix
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"picture{suffix}").write_bytes(content)
        (shares,) = classifier.predict_proba(folder)
    order = (-shares).argsort(kind="stable")
    names = [str(classifier.classes[place]) for place in order]
    return Tried(names, [round(100 * float(shares[place])) for place in order])
