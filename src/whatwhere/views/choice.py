"""Views by their names, and the views that are used unless somebody chooses others."""

from collections.abc import Callable, Sequence
from pathlib import Path

from whatwhere.errors import SpecError, listed
from whatwhere.nn.feature_maps import FeatureMaps
from whatwhere.views.colour import Colour
from whatwhere.views.edges import Edges
from whatwhere.views.given import Given
from whatwhere.views.network import Network
from whatwhere.views.onnx_file import OnnxFile
from whatwhere.views.patches import Patches
from whatwhere.views.patterns import Patterns
from whatwhere.views.view import MapView, View

OWN = "own"
"""The word for the features that are learned from the pictures."""

NAMED: dict[str, Callable[[], MapView]] = {
    "colour": Colour,
    "edges": Edges,
    "patterns": Patterns,
    "patches": Patches,
    "network": Network,
}

GivenView = str | Path | View | FeatureMaps
"""A name ('colour', 'edges', 'patterns', 'patches', 'network'), an ONNX file, a view, or a
callable to maps."""


def as_view(given: GivenView) -> View:
    """Return the view that a name, an ONNX file or a callable means.

    >>> from whatwhere.views import as_view
    >>> as_view("colour").name
    'colour'
    """
    if isinstance(given, str | Path):
        if Path(given).suffix.lower() == ".onnx":
            return OnnxFile(file=Path(given))
        if str(given) not in NAMED:
            raise SpecError(
                f"Unknown view {str(given)!r}. Expected {listed([OWN, *NAMED])}, an ONNX file, or a"
                " callable from pictures to maps."
            )
        return NAMED[str(given)]()
    if isinstance(given, View):
        return given
    if callable(given):
        return Given(function=given)
    raise SpecError(
        f"Got {given!r} as a view; expected a name, an ONNX file, a view or a callable."
    )


def as_views(given: Sequence[GivenView]) -> list[MapView]:
    """Return the views that words, ONNX files and callables mean; their names differ."""
    views = []
    for one in given:
        view = as_view(one)
        if not isinstance(view, MapView):
            raise SpecError(f"Got the view {view.name!r}; expected one with maps (`MapView`).")
        views.append(view)
    names = [view.name for view in views]
    if len(set(names)) < len(names):
        raise SpecError(f"Got views of the same name: {listed(names)}. Give each a label.")
    return views


def usual_views() -> Sequence[MapView]:
    """Return the views that are used next to the learned features: colour, edges, patterns
    and patches, and the network if it is installed."""
    plain: list[MapView] = [Colour(), Edges(), Patterns(), Patches()]
    return [*plain, Network()] if Network.is_installed() else plain
