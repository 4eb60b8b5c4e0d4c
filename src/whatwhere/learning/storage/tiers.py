"""Which tier the latents fit in: the fastest one, and why."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from whatwhere.errors import RunError, SpecError
from whatwhere.learning.storage.latent_store import Tier

# Shares of what is free now that latents may take: inference needs room for its own work.
DEVICE_SHARE, RAM_SHARE = 0.6, 0.5


def choose_tier(asked: str, needed: int, device: torch.device, folder: Path) -> tuple[Tier, str]:
    """The tier to use for this many bytes and the reason; `auto` takes the fastest that they fit in."""
    tiers: dict[str, Tier] = {"device": "device", "ram": "ram", "file": "file"}
    if asked in tiers:
        return tiers[asked], "asked for"
    if asked != "auto":
        raise SpecError(f"store = {asked!r} was given; expected 'auto', 'device', 'ram' or 'file'")
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if needed <= DEVICE_SHARE * free:
            return "device", f"{size(needed)} of latents, {size(free)} free on the device"
    free = free_ram()
    if needed <= RAM_SHARE * free:
        return "ram", f"{size(needed)} of latents, {size(free)} of RAM free"
    check_disk(2 * needed, folder)
    return "file", f"{size(needed)} of latents are too much for the {size(free)} of RAM that are free"


def check_disk(needed: int, folder: Path) -> None:
    """Refuse to begin what the disk cannot hold; `needed` counts both generations."""
    existing = next(path for path in (folder, *folder.resolve().parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise RunError(
            f"two generations of latents need {size(needed)}, and the disk of {existing} has {size(free)} free: "
            "make room, take another folder, fewer images, or half the size with latent_dtype='bfloat16'"
        )


def free_ram() -> int:
    """Bytes of RAM that this process may still take: of the machine, or of its container where that is less."""
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


def size(count: int | float) -> str:
    """Bytes as a person reads them."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"
