"""Does a training fit in memory? Better an error before it begins than a process that the system ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.learning.storage import size
from whatwhere.learning.storage.tiers import free_ram
from whatwhere.ops.pooling import Regions
from whatwhere.spec import ModelSpec

FILTER_COPIES = 3  # drawn in float64, projected, and as they are used
REMEDY = "take fewer or smaller maps and filters, smaller images, or a smaller batch_size"


def check_memory(spec: ModelSpec, image_size: tuple[int, int], batch_size: int, device: torch.device) -> None:
    """Raise if the filters, or the latents of one batch, are larger than the memory that is free."""
    filters = [spec.maps_below(k) * layer.maps * layer.filter_size**2 for k, layer in enumerate(spec.layers, start=1)]
    latents = 4 * latents_per_image(spec, *image_size) * batch_size
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_ram()
    if not free:  # unknown on this system
        return
    for what, needed in (("the filters", 8 * FILTER_COPIES * sum(filters)), ("the latents of a batch", latents)):
        if needed > free:
            raise SpecError(
                f"{what} of this model would take {size(needed)} of memory, and {size(free)} are free; {REMEDY}"
            )


def latents_per_image(spec: ModelSpec, height: int, width: int) -> int:
    """How many numbers the latents of one image are, in the layer of training that has most."""
    largest = pooling = 0
    for layer in spec.layers:
        z = (layer.maps, height + layer.filter_size - 1, width + layer.filter_size - 1)
        regions = Regions.of(z, layer.pool_size, layer.pool_stride, layer.pool_maps)
        features = math.prod(regions.grid)
        pooling += 2 * len(regions.axes) * features
        largest = max(largest, features + pooling)
        _, height, width = regions.grid
    return largest


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turn a failed allocation into an error that says what to do."""
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise RunError(f"training ran out of memory; {REMEDY}") from error
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):  # PyTorch has no type of its own for this on the CPU
            raise
        raise RunError(f"training ran out of memory; {REMEDY}") from error
