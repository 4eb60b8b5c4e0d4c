"""A view from any callable of the user, such as a pretrained network."""

from dataclasses import dataclass, field

from torch import Tensor

from whatwhere.nn.feature_maps import FeatureMaps, check_features, feature_maps, name_of
from whatwhere.views.view import MapView


def _no_function(pictures: Tensor) -> Tensor:
    return pictures


@dataclass(frozen=True)
class Given(MapView):
    """The maps of a callable from pictures [n, C, h, w] to a map [n, D, h', w'] or several.

    Parameters
    ----------
    function
        the callable
    label
        the word for it; '' takes the name of the callable

    Examples
    --------
    >>> from whatwhere.views import Given
    >>> def slopes(pictures):
    ...     return pictures.diff(dim=3).abs()
    >>> view = Given(function=slopes)
    >>> view.name, view.rows(torch.rand(5, 1, 8, 8)).shape
    ('slopes', torch.Size([5, 5]))
    """

    function: FeatureMaps = field(default=_no_function, kw_only=True)
    label: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        check_features(self.function)

    @property
    def name(self) -> str:
        return self.label or name_of(self.function)

    @property
    def cost(self) -> float:
        return 0.05

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        return feature_maps(self.function, pictures)
