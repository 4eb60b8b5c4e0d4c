"""A view from a network in an ONNX file."""

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from whatwhere.errors import ImageError, MissingExtra, SpecError
from whatwhere.files import readable, untrusted
from whatwhere.views.view import MapView

if TYPE_CHECKING:
    import onnxruntime


@dataclass(frozen=True)
class OnnxFile(MapView):
    """The first output of a network in an ONNX file that takes pictures [n, C, h, w].

    An output [n, D, h', w'] is averaged in cells; an output [n, D] is taken as it is. A network
    with a fixed input size gets pictures of this size, and as many channels as it takes.

    Parameters
    ----------
    file
        the ONNX file
    mean
        what is subtracted from pixels, which are from 0 to 1
    deviation
        what the difference is divided by
    """

    file: Path = field(kw_only=True)
    mean: float = 0.45
    deviation: float = 0.225

    def __post_init__(self) -> None:
        if not Path(self.file).is_file():
            raise SpecError(f"There is no file {self.file}; expected an ONNX file.")

    @property
    def name(self) -> str:
        return Path(self.file).stem

    @property
    def cost(self) -> float:
        return 0.05

    def __call__(self, pictures: Tensor) -> list[Tensor]:
        session = _session(str(self.file))
        wanted = session.get_inputs()[0]
        v = (_fitted(pictures, wanted.shape) - self.mean) / self.deviation
        batch = wanted.shape[0]
        parts = v.split(batch if isinstance(batch, int) else len(v))
        remedy = "export it with one input, pictures [n, C, h, w] in float32"
        with readable(Path(self.file), "network of pictures", remedy, ImageError), untrusted():
            found = [session.run(None, {wanted.name: part.numpy()})[0] for part in parts]
            values = torch.cat([torch.as_tensor(part).float() for part in found])
        if values.ndim == 2:
            values = values[:, :, None, None]
        if values.ndim != 4 or len(values) != len(pictures):
            raise ImageError(
                f"{self.file} returned {tuple(values.shape)} for pictures"
                f" {tuple(pictures.shape)}; expected [n, D, h, w] or [n, D]."
            )
        if not values.isfinite().all():
            raise ImageError(f"{self.file} returned NaN or infinite values; expected finite ones.")
        return [values]


def _fitted(pictures: Tensor, shape: list[int | str | None]) -> Tensor:
    """Return pictures with the channels and the size that a network takes, where these are
    fixed."""
    if len(shape) != 4:
        raise SpecError(f"The network takes an input of shape {shape}; expected [n, C, h, w].")
    _, channels, height, width = shape
    v = pictures
    if isinstance(channels, int) and channels != v.shape[1]:
        v = v.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    size = tuple(
        extent if isinstance(extent, int) else given
        for extent, given in zip((height, width), v.shape[2:], strict=True)
    )
    if size != tuple(v.shape[2:]):
        v = F.interpolate(v, size, mode="bilinear", antialias=True, align_corners=False)
    return v.contiguous()


@lru_cache(maxsize=4)
def _session(file: str) -> "onnxruntime.InferenceSession":
    try:
        import onnxruntime
    except ImportError:
        raise MissingExtra("onnxruntime", "a view from an ONNX file") from None
    with readable(Path(file), "ONNX file", "export the network again", ImageError), untrusted():
        return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
