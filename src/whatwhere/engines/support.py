"""The settings that an engine declares to support, by their paths, and which values of each.

    Support(
        inference={"lam": ANY, "penalty": Kinds(Power), "penalty.alpha": ANY, "tolerance": ABOVE_0},
        model={"layers.each.maps": ANY, "layers.each.pool_maps": Only(1)},
    )

A setting that a declaration does not name must have its default. So an engine never ignores a new
setting, penalty or kind of pooling: an engine that does not declare it does not support it, and the
error names it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from whatwhere.errors import shown
from whatwhere.model import Problem
from whatwhere.spec import InferenceSpec, ModelSpec
from whatwhere.spec.checks import is_choice

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Values:
    """The values of a setting that an engine supports.

    Parameters
    ----------
    holds
        a function that says whether it supports a value
    words
        the values that it supports, in the words of an error
    deep
        whether the settings below this one are supported, too
    """

    holds: Callable[[Any], bool]
    words: str
    deep: bool = False


ANY = Values(lambda value: True, "any value")
"""Every value of a setting."""

ALL = Values(lambda value: True, "any value", deep=True)
"""Every value of a setting, and of all settings below it: the engine does not see them."""

ABOVE_0 = Values(lambda value: value > 0, "a number above 0")


def Only(*values: object) -> Values:
    """These values."""
    return Values(lambda value: value in values, " or ".join(map(str, values)))


def Kinds(*kinds: type) -> Values:
    """These kinds of a choice; their settings are declared separately."""
    return Values(lambda value: isinstance(value, kinds), " or ".join(k.__name__ for k in kinds))


class Setting(NamedTuple):
    """A setting of a spec.

    Parameters
    ----------
    path
        name in a declaration: a layer's setting has `each`
    name
        name in a message: it has the number of the layer
    value
        the value
    default
        its default value; MISSING if there is none
    """

    path: str
    name: str
    value: object
    default: object


def settings_of(spec: "DataclassInstance", path: str = "", name: str = "") -> Iterator[Setting]:
    """Yield every setting of a spec, and then those below it."""
    for f in fields(spec):
        if not f.init:  # the `kind` of a choice, which its type already says
            continue
        yield Setting(path + f.name, name + f.name, getattr(spec, f.name), _default_of(f))


def _default_of(f: Field[object]) -> object:
    """Return the default of a setting."""
    return f.default if f.default_factory is MISSING else f.default_factory()


@dataclass(frozen=True, eq=False)
class Support:
    """The declaration of an engine.

    Parameters
    ----------
    inference
        values of the settings of `InferenceSpec` that it supports, by their paths
    model
        the same of `ModelSpec`
    """

    inference: Mapping[str, Values]
    model: Mapping[str, Values]

    def unsupported_reason(self, problem: Problem) -> str | None:
        """Return the first setting of a problem that is not declared; None if all are. Layers above
        the phase do not count."""
        return self.unsupported_setting(problem.spec, problem.model.spec, problem.phase.layer)

    def unsupported_setting(
        self, inference: InferenceSpec, model: ModelSpec, layers: int | None = None
    ) -> str | None:
        """Return the same for settings without a problem, in the first `layers` layers or in
        all."""
        return _reason(self, inference, model, layers)


@lru_cache(maxsize=64)  # an engine asks again for every batch
def _reason(
    support: Support, inference: InferenceSpec, model: ModelSpec, layers: int | None
) -> str | None:
    undeclared = [
        *_undeclared(support.inference, inference, "", "inference."),
        *_undeclared(support.model, model, "", "model.", layers),
    ]
    return undeclared[0] if undeclared else None


def _undeclared(
    declared: Mapping[str, Values], spec: Any, path: str, name: str, items: int | None = None
) -> Iterator[str]:
    """Yield the settings of a spec that a declaration does not support, in words; of lists of
    specs, only the first `items` count."""
    for setting in settings_of(spec, path, name):
        value = setting.value
        values = declared.get(setting.path)
        if values is None and _has_parts(value) and not is_choice(value):
            yield from _below(declared, setting, items)
        elif values is None:
            if value != setting.default:
                known = "" if setting.default is MISSING else f" (it supports {setting.default!r})"
                yield f"{setting.name} = {shown(value)}{known}"
        elif not values.holds(value):
            yield f"{setting.name} = {shown(value)} (it supports {values.words})"
        elif not values.deep:
            yield from _below(declared, setting, items)


def _has_parts(value: object) -> bool:
    """Tell whether a value has settings of its own: a spec, or a list of specs."""
    return is_dataclass(value) or (
        isinstance(value, tuple) and len(value) > 0 and is_dataclass(value[0])
    )


def _below(declared: Mapping[str, Values], setting: Setting, items: int | None) -> Iterator[str]:
    """Yield the settings below one that a declaration does not support, in words."""
    if not _has_parts(setting.value):
        return
    if not isinstance(setting.value, tuple):
        yield from _undeclared(declared, setting.value, f"{setting.path}.", f"{setting.name}.")
        return
    for number, item in enumerate(setting.value[:items], start=1):
        name = f"{setting.name}.{number}."
        yield from _undeclared(declared, item, f"{setting.path}.each.", name)
