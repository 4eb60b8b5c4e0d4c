"""What fits where: a training in memory, its latents in memory or in files. Better an error before it begins."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.model.sized import layer_regions
from whatwhere.spec import ModelSpec

FILTER_COPIES = 3  # drawn in float64, projected, and as they are used
LATENT_SHARE = 0.5  # of the memory that is free: inference needs room for its own work
REMEDY = "take fewer or smaller maps and filters, smaller images, or a smaller batch_size"


def check_memory(spec: ModelSpec, image_size: tuple[int, int], batch_size: int, device: torch.device) -> None:
    """Raise if the filters, or the latents of one batch, are larger than the memory that is free."""
    filters = [
        spec.maps_below(k) * layer.maps * math.prod(layer.filter_shape) for k, layer in enumerate(spec.layers, 1)
    ]
    latents = 4 * latents_per_image(spec, *image_size) * batch_size
    free = free_memory(device)
    if not free:  # unknown on this system
        return
    for what, needed in (("the filters", 8 * FILTER_COPIES * sum(filters)), ("the latents of a batch", latents)):
        if needed > free:
            raise SpecError(
                f"{what} of this model would take {size(needed)} of memory, and {size(free)} are free; {REMEDY}"
            )


def latents_fit(needed: int, device: torch.device, folder: Path) -> bool:
    """Are this many bytes of latents kept in memory? Else they go to files; raises if there is no room for either."""
    free = free_memory(device)
    if needed <= LATENT_SHARE * free:
        return True
    on_disk = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    if 2 * needed > (space := shutil.disk_usage(on_disk).free):
        raise RunError(
            f"latents need {size(needed)} of memory, of which {size(free)} are free, or twice that on the disk of "
            f"{on_disk}, which has {size(space)} free: make room, take another folder or fewer images, or learn in a "
            "stream (learning.each.update=batch)"
        )
    return False


def latents_per_image(spec: ModelSpec, height: int, width: int) -> int:
    """How many numbers the latents of one image are, in the layer of training that has most."""
    largest = pooling = 0
    for regions in layer_regions(spec, height, width):
        features = math.prod(regions.grid)
        pooling += 2 * len(regions.axes) * features
        largest = max(largest, features + pooling)
    return largest


def free_memory(device: torch.device) -> int:
    """Bytes that this process may still take: of the GPU, of the machine, or of its container where that is less."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return 0  # unknown: latents go to files
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return free
    return max(0, min(free, limit - used))


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


def size(count: int | float) -> str:
    """Bytes as a person reads them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
