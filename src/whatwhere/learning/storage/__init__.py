"""Where latents live between epochs, and what is on the disk when a process is killed."""

from whatwhere.files import disk_errors, write_atomic
from whatwhere.learning.storage.checkpoints import Checkpoint, has_checkpoint, load_checkpoint, save_checkpoint
from whatwhere.learning.storage.latent_files import LatentFiles
from whatwhere.learning.storage.latent_store import LatentStore, latent_dtype
from whatwhere.learning.storage.tiers import check_disk, choose_tier, size

__all__ = [
    "Checkpoint",
    "LatentFiles",
    "LatentStore",
    "check_disk",
    "choose_tier",
    "disk_errors",
    "has_checkpoint",
    "latent_dtype",
    "load_checkpoint",
    "save_checkpoint",
    "size",
    "write_atomic",
]
