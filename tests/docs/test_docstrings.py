"""Every public name is documented: a summary, every parameter, shapes of arrays, an example; and
the examples run."""

import doctest
import inspect
import re
from dataclasses import is_dataclass

import numpy as np
import pytest
import torch
from docstrings import as_restructured_text

import whatwhere as ww
from public_names import is_error, public_names
from whatwhere.spec.docstrings import parse

NAMES = public_names()
ARRAYS = re.compile(r"\b(Tensor|ndarray|Matrix)\b")
SHAPE = re.compile(r"\[[^\]]*\w[^\]]*\]|\(n, |\(C, H, W\)")
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class AnyDevice(doctest.OutputChecker):
    """What is trained where there is a GPU is on it; the examples show a CPU."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return super().check_output(want, got.replace("cuda:0", "cpu"), optionflags)


def parameters(thing: object) -> dict[str, str]:
    """The names of the parameters and their types as text."""
    given = inspect.signature(thing).parameters.values()  # type: ignore[arg-type]
    return {
        p.name: str(p.annotation)
        for p in given
        if p.name[0] != "_" and p.name not in ("self", "args", "kwargs")
    }


def problems(thing: object) -> list[str]:
    text = inspect.getdoc(thing) or ""
    described = parse(text)
    if not described.summary or (is_dataclass(thing) and text.startswith(f"{thing.__name__}(")):  # type: ignore[attr-defined]
        return ["it has no docstring"]
    if is_error(thing):
        return []
    found = []
    for name, kind in parameters(thing).items():
        entry = described.entries.get(name)
        if entry is None and not re.search(rf"`{name}`", text):
            found.append(f"{name} is not described")
        elif ARRAYS.search(kind) and "Callable" not in kind and not SHAPE.search(entry or text):
            found.append(f"the shape of {name} is not given")
    if not described.example:
        found.append("there is no example")
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            function = (
                member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            )
            # a default of a field is a function, too
            own = inspect.isfunction(function) and function.__name__ == name
            if (
                own
                and not name.startswith("_")
                and name not in ("forward", "extra_repr")
                and not function.__doc__
            ):
                found.append(f"{name}() has no docstring")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    assert problems(NAMES[name]) == []


@pytest.mark.documentation
@pytest.mark.parametrize(
    "name", [name for name, thing in NAMES.items() if ">>>" in (inspect.getdoc(thing) or "")]
)
def test_the_example_runs(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of the module that a function is defined in need no import in its example, nor do
    torch, numpy and ww."""
    thing = NAMES[name]
    monkeypatch.chdir(tmp_path)
    module = inspect.getmodule(thing)
    names = {**vars(module), "torch": torch, "np": np, "ww": ww}
    example = doctest.DocTestParser().get_doctest(
        inspect.getdoc(thing) or "", names, name, None, None
    )
    assert example.examples
    output: list[str] = []
    doctest.DocTestRunner(AnyDevice(), verbose=False, optionflags=FLAGS).run(
        example, out=output.append
    )
    assert output == [], "".join(output)


def test_what_is_missing_is_found() -> None:
    def undocumented(x: torch.Tensor, y: int, z: int) -> None:
        """A summary.

        x  an image
        y  a number
        """

    missing = ["the shape of x is not given", "z is not described", "there is no example"]
    assert problems(undocumented) == missing


def test_a_docstring_becomes_markup() -> None:
    text = """Sum |x| of model_.

    x, y  numbers; a line that is
          continued
    returns  their sum

        x + y

    >>> 1 + 1
    2
    """
    assert as_restructured_text(text).splitlines() == [
        r"Sum \|x\| of model\_.",
        "",
        "``x``, ``y``",
        "    numbers; a line that is continued",
        "Returns",
        "    their sum",
        "",
        "::",
        "",
        "    x + y",
        "",
        "**Example**",
        "",
        ">>> 1 + 1",
        "2",
    ]


def test_sections_of_numpy_become_the_same_markup() -> None:
    text = """Sum |x|.

    Parameters
    ----------
    x, y
        numbers; a line that is
        continued

    Returns
    -------
    float
        their sum

    >>> 1 + 1
    2
    """
    assert as_restructured_text(text).splitlines() == [
        r"Sum \|x\|.",
        "",
        "``x``, ``y``",
        "    numbers; a line that is continued",
        "",
        "Returns",
        "    their sum",
        "",
        "**Example**",
        "",
        ">>> 1 + 1",
        "2",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_signatures_are_readable(name: str) -> None:
    """`help()` shows types as they are written, without the modules that they come from."""
    thing = NAMES[name]
    if is_error(thing):
        return
    assert not re.search(r"whatwhere\.|collections\.abc|typing\.", str(inspect.signature(thing)))
