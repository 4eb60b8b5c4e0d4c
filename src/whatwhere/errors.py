"""The errors that a user can fix: each says what was given, what was expected and what to do."""

import contextlib
import difflib
import os
import re
import shlex
import sys
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType

_PACKAGE = os.path.dirname(__file__) + os.sep


class WhatwhereError(Exception):
    """Base class of every error that whatwhere raises on purpose.

    Messages quote names of files that others chose, so control characters in them are escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(map(printable, message.split("\n"))))


class SpecError(WhatwhereError, ValueError):
    """An invalid setting."""


class InvalidSetting(SpecError):
    """A setting or an argument with a value that it cannot have, alone or next to others.

    Attributes
    ----------
    given
        the values by name; or, where the names do not say it, a clause
    expected
        what they may be, as a clause
    remedy
        what else to do, in sentences; may be empty
    """

    def __init__(self, given: Mapping[str, object] | str, expected: str, remedy: str = "") -> None:
        self.given = given if isinstance(given, str) else dict(given)
        self.expected = expected
        self.remedy = remedy
        if not isinstance(given, str):
            given = " with ".join(f"{name} = {shown(value)}" for name, value in given.items())
        super().__init__(f"Got {given}; expected {expected}. {remedy}".rstrip())


class SpecErrorAt(SpecError):
    """An invalid setting of a recipe.

    Attributes
    ----------
    where
        the table that holds it, such as learning.1.inference
    error
        what is wrong with it
    """

    def __init__(self, where: str, error: SpecError) -> None:
        self.where = where
        self.error = error
        super().__init__(f"In {where}: {as_clause(error)}.")


class UnknownSetting(SpecError):
    """A setting that does not exist, such as a misspelt one.

    Attributes
    ----------
    given
        its name; in a recipe, with the tables that it is in
    owner
        the class of settings that was given it; empty in a recipe, whose name says the place
    near
        the settings that it may mean
    known
        the settings that exist there
    """

    def __init__(self, given: str, owner: str, near: Sequence[str], known: Sequence[str]) -> None:
        self.given = given
        self.owner = owner
        self.near = tuple(near)
        self.known = tuple(known)
        place = f" of {owner}" if owner else ""
        advice = f"The settings here are {', '.join(known)}."
        if near:
            advice = f"Did you mean {' or '.join(map(repr, near))}?"
        super().__init__(f"{given} is not a setting{place}. {advice}")


class ImageError(WhatwhereError, ValueError):
    """Images that the model does not support, or a file that does not contain images."""


class InvalidImages(ImageError):
    """Images, a mask or latents that a model or an operation does not support.

    Attributes
    ----------
    given
        what was given, as a clause
    expected
        what is supported, as a clause
    remedy
        what else to do, in sentences; may be empty
    """

    def __init__(self, given: str, expected: str, remedy: str = "") -> None:
        self.given = given
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"Got {given}; expected {expected}. {remedy}".rstrip())


class WrongShape(ImageError):
    """An array or a tensor of the wrong shape.

    Attributes
    ----------
    name
        what it should be, such as "images" or "a mask"
    given
        its shape
    expected
        the shape that fits, as a clause
    context
        what it belongs to, as a clause; may be empty
    """

    def __init__(self, name: str, given: Iterable[int], expected: str, context: str = "") -> None:
        self.name = name
        self.given = tuple(given)
        self.expected = expected
        self.context = context
        place = f" {context}" if context else ""
        super().__init__(f"Got {name} of shape {list(self.given)}{place}; expected {expected}.")


class NotFinite(ImageError):
    """Values that are NaN or infinite.

    Attributes
    ----------
    name
        what has them, such as "the images"
    remedy
        what to do, in sentences
    """

    def __init__(self, name: str, remedy: str) -> None:
        self.name = name
        self.remedy = remedy
        super().__init__(
            f"{name[0].upper()}{name[1:]} have NaN or infinite values; expected finite ones."
            f" {remedy}"
        )


class BeyondRange(ImageError):
    """Numbers whose computation exceeds the range of the dtype.

    Attributes
    ----------
    what
        what exceeds it, as the beginning of a sentence
    given
        the largest numbers that are involved, by name
    remedy
        what to do, in sentences
    """

    def __init__(self, what: str, given: Mapping[str, float], remedy: str) -> None:
        self.what = what
        self.given = dict(given)
        self.remedy = remedy
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in given.items())
        super().__init__(f"{what}: {numbers}. {remedy}")


class EmptySet(ImageError):
    """A set without images."""

    def __init__(self) -> None:
        super().__init__("Got an empty set of images; expected at least one.")


class UnexpectedArgument(ImageError):
    """An argument that does not go with the images that are loaded.

    Attributes
    ----------
    name
        the argument
    source
        what is loaded
    """

    def __init__(self, name: str, source: str, message: str) -> None:
        self.name = name
        self.source = source
        super().__init__(message)


class MissingColumn(ImageError):
    """A table without the column of its pictures.

    Attributes
    ----------
    given
        the name of the column
    known
        the columns that it has
    """

    def __init__(self, given: str, known: Iterable[str]) -> None:
        self.given = given
        self.known = tuple(known)
        others = f"the columns {listed(self.known)}" if self.known else "none"
        super().__init__(
            f"The table has no column {given!r}; it has {others}. Name the column of the pictures:"
            " column=…"
        )


class SeveralSizes(ImageError):
    """Pictures of several sizes where they must have one.

    Attributes
    ----------
    sizes
        their heights and widths
    """

    def __init__(self, sizes: Iterable[tuple[int, int]]) -> None:
        self.sizes = tuple(sizes)
        written = listed(f"{height} × {width}" for height, width in self.sizes[:5])
        super().__init__(
            f"The pictures of a batch have {len(self.sizes)} sizes, such as {written} pixels;"
            " expected one size. Scale them first, or give each batch pictures of one size."
        )


class RunError(WhatwhereError):
    """A run, a checkpoint or a saved model that is missing, damaged or of another kind."""


class ReportedError(RunError):
    """An error that another process of the same training has printed."""


class EngineError(WhatwhereError):
    """An engine that does not support what was requested."""


class UnusableFile(WhatwhereError):
    """A file that is damaged, or of another kind or format than expected.

    Attributes
    ----------
    path
        the file
    kind
        what was expected, such as "model file"
    reason
        what is wrong with it, as a clause
    remedy
        what to do, as a clause
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, reason: str, remedy: str) -> None:
        self.path = path
        self.kind = kind
        self.reason = reason
        self.remedy = remedy
        short = reason[:500]  # the text of a library may quote the whole file
        problem = f"{os.fspath(path)} is not a usable {kind}: {short}."
        super().__init__(f"{problem} {sentence(remedy)}")


class DamagedFilters(RunError, SpecError):
    """A model whose filters have NaN or infinite values.

    Attributes
    ----------
    layer
        the lowest layer with such filters
    path
        the model's file; empty for a model in memory
    """

    def __init__(self, layer: int, path: str = "") -> None:
        self.layer = layer
        self.path = path
        super().__init__(
            f"The filters of layer {layer} of {path or 'the model'} have NaN or infinite values."
            " Train the model again."
        )


class UnusableRunFile(UnusableFile, RunError):
    """An unusable file that the program wrote."""


class UnusableImageFile(UnusableFile, ImageError):
    """An unusable file of images, of a recording, or of what was made from them."""


class UnusableRecipe(UnusableFile, SpecError):
    """An unusable file of settings."""


class UnknownName(WhatwhereError):
    """A name that does not exist.

    Attributes
    ----------
    kind
        what it should name, such as "engine"
    given
        the name
    known
        the names that exist
    """

    def __init__(self, kind: str, given: str, known: Iterable[str]) -> None:
        self.kind = kind
        self.given = given
        self.known = tuple(known)
        near = did_you_mean(given, self.known)
        super().__init__(
            f"Unknown {kind} {given!r}. Expected one of {', '.join(self.known)}.{near}"
        )


class UnknownChoice(UnknownName, SpecError):
    """A name that no choice of a setting or of a command has."""


class UnknownEngine(UnknownName, EngineError):
    """A name that no engine has."""


class UnknownModel(UnknownName, RunError):
    """A name that no trained model has."""


class UnknownDataset(UnknownName, ImageError):
    """A name that no data set has."""


class NotFound(WhatwhereError):
    """A path at which there is nothing, or nothing that can be used.

    Attributes
    ----------
    kind
        what was expected there, such as "model"
    path
        the path
    reason
        what is wrong, as a clause; may be empty
    remedy
        what to do, in sentences; may be empty
    """

    def __init__(
        self, kind: str, path: str | os.PathLike[str], reason: str = "", remedy: str = ""
    ) -> None:
        self.kind = kind
        self.path = os.fspath(path)
        self.reason = reason
        self.remedy = remedy
        what = f"{kind} {self.path}" if kind else self.path
        because = f": {reason}" if reason else ""
        super().__init__(f"Cannot find {what}{because}. {remedy}".rstrip())


class NoSuchRun(NotFound, RunError):
    """No run, checkpoint or model at a path."""


class NoSuchImages(NotFound, ImageError):
    """No images at a path."""


class NoSuchRecipe(NotFound, SpecError):
    """No recipe at a path."""


class Unreadable(ImageError):
    """A file of images that the operating system does not let us read, or that changed.

    Attributes
    ----------
    path
        the file
    reason
        why, as a clause
    remedy
        what to do, in sentences; may be empty
    """

    def __init__(self, path: str | os.PathLike[str], reason: str, remedy: str = "") -> None:
        self.path = os.fspath(path)
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"Cannot read {self.path}: {reason}. {remedy}".rstrip())


class ChangedFile(ImageError):
    """A file that changed after it was loaded.

    Attributes
    ----------
    path
        the file
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        super().__init__(f"{self.path} changed after you loaded it. Load it again.")


class UnknownFormat(WhatwhereError, ValueError):
    """A file in a format that this version does not read.

    Attributes
    ----------
    given
        the format that the file names, or None if it names none
    expected
        the format that this version reads
    """

    def __init__(self, given: object, expected: str) -> None:
        self.given = given
        self.expected = expected
        if given is None:
            super().__init__(f"it has no format; expected {expected!r}")
        else:
            super().__init__(
                f"its format is {str(given)[:80]!r}; expected {expected!r}. Another version of"
                " whatwhere may have written it"
            )


class MissingExtra(WhatwhereError, ImportError):
    """A feature that needs a package which is not installed.

    Attributes
    ----------
    package
        its name, as pip knows it
    purpose
        what needs the package
    """

    def __init__(self, package: str, purpose: str) -> None:
        self.package = package
        self.purpose = purpose
        super().__init__(
            f"{purpose[0].upper()}{purpose[1:]} needs {package}, which is not installed. Install"
            f" it: pip install {package}"
        )


class SlowEngineWarning(UserWarning):
    """No fast engine supports the problem, so 'auto' took the reference."""


class NoFastEngine(SlowEngineWarning):
    """Only the reference supports the problem.

    Attributes
    ----------
    reasons
        why each of the others does not, by its name
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        super().__init__(
            "Engine 'auto' chose 'reference', which is 10 to 20 times slower than the others,"
            f" because they do not support this problem: {why}. Set engine='reference' to silence"
            " this warning."
        )


class ConvergenceWarning(UserWarning):
    """Inference took all its steps before the cost stopped changing.

    Attributes
    ----------
    measure
        the setting that was not reached: "tolerance" or "gap"
    bound
        its value
    unfinished
        the number of images that did not reach it, of `images`
    steps
        the number of steps
    worst
        the largest change of the cost per step, or the largest gap, relative to the cost
    """

    def __init__(
        self, measure: str, bound: float, unfinished: int, images: int, steps: int, worst: float
    ) -> None:
        self.measure = measure
        self.bound = bound
        self.unfinished = unfinished
        self.images = images
        self.steps = steps
        self.worst = worst
        change = "the relative change of the cost per step is still up to {:.2g}"
        advice = "Give more steps or a larger tolerance."
        if measure == "gap":
            change = "the duality gap is still up to {:.2g} of the cost"
            advice = (
                "Give more steps or a larger gap. In float32, gaps below about 1e-6 are rounding."
            )
        super().__init__(
            f"{unfinished} of {images} images did not reach {measure} = {bound:g} in {steps} steps:"
            f" {change.format(worst)}. {advice}"
        )


class OtherRateWarning(UserWarning):
    """A recording has another rate than the one that its model learned from, so its waveforms last
    shorter or longer.

    Attributes
    ----------
    name
        of the recording
    rate
        its samples per second
    learned
        those of the recording that the model learned from
    """

    def __init__(self, name: str, rate: float, learned: float) -> None:
        self.name = name
        self.rate = rate
        self.learned = learned
        super().__init__(
            f"{printable(name)} has {rate:g} Hz, but the model learned from {learned:g} Hz, so its"
            f" waveforms last {learned / rate:.2g} times as long here. Check --rate, or change the"
            " rate of the recording first."
        )


class EvenClassesWarning(UserWarning):
    """One label a class left borders where rows are alike, so classes of even sizes were taken."""


def warn(warning: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn, and show the line of the user's program that called into this package.

    Parameters
    ----------
    warning
        a message, or a warning with fields, whose class is then its category
    """
    level = 1
    frame: FrameType | None = sys._getframe()
    while frame is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
        level += 1
    warnings.warn(warning, category, stacklevel=level)


def _is_ours(file: str) -> bool:
    """Tell whether a file of code is not the user's: it belongs to this package, or it runs between
    two parts of the package (context managers, Numba's dispatcher)."""
    return (
        file.startswith(_PACKAGE) or file == contextlib.__file__ or f"{os.sep}numba{os.sep}" in file
    )


def printable(text: object) -> str:
    r"""Return the text with control characters, line breaks and undecodable bytes written as
    escapes such as \x1b."""
    words = str(text)
    if words.isprintable():
        return words
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _ESCAPED else char
        for char in words
    )


_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control, format (such as right-to-left override), surrogate, line and
paragraph separator."""


_ESCAPE = re.compile(r"\\(?:x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|[ntr\\])")
"""The escapes that `printable` writes."""


def unique_printable(text: str) -> str:
    r"""Return the text as `printable` writes it, but never the same for two texts.

    A name that looks as if it had been escaped gets two backslashes in place of each.

    >>> unique_printable("a\x1b.png") == unique_printable("a.png")
    False
    """
    escaped = printable(text)
    if escaped == text and not _ESCAPE.search(text):
        return text
    return printable(text.replace("\\", "\\\\"))


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return a question for the end of an error message: the known name that is spelt most like the
    given one, if there is one.

    >>> did_you_mean("minst", ["digits", "mnist"])
    " Did you mean 'mnist'?"
    """
    close = nearest_names(given, known)
    return f" Did you mean {close[0]!r}?" if close else ""


def shown(value: object) -> str:
    """Return a value as a message shows it: at most 60 characters, on one line."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of more than 4,300 digits
        return "a very large integer"
    return text if len(text) <= 60 else text[:57] + "…"


def nearest_names(given: str, known: Iterable[str]) -> list[str]:
    """Find the known name that is spelt most like the given one: a list of one, or of none."""
    return difflib.get_close_matches(given, list(known), n=1, cutoff=0.6)


def listed(items: Iterable[object]) -> str:
    """Return things in a row: '4, 6 and 8'."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}" if first else last


def sentence(words: str) -> str:
    """Return the words with a capital letter and a full stop: 'Make room.'"""
    return f"{words[0].upper()}{words[1:]}."


def as_clause(error: object) -> str:
    """Return the message of an error as a part of another sentence: without its full stop, and
    without the number and the file of an OSError."""
    clause = (getattr(error, "strerror", None) or str(error)).removesuffix(".")
    return f"got {clause.removeprefix('Got ')}" if clause.startswith("Got ") else clause


def one_or(count: int) -> str:
    """Return how many channels a mask may have: '1 or 3', or '1'."""
    return "1" if count == 1 else f"1 or {count:,}"


def command(*words: str | os.PathLike[str]) -> str:
    """Return a command line that can be pasted; control characters in names are escaped, so that it
    can be shown."""
    return " ".join(shlex.quote(printable(os.fspath(word))) for word in words)


def plural(count: int, noun: str, several: str | None = None) -> str:
    """Return a number of things: 1 event, 2 events, 1,000 events.

    Parameters
    ----------
    several
        the plural of a noun that takes more than an s: 2 classes
    """
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"
