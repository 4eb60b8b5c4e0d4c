"""Where latents live between epochs."""

from whatwhere.storage.latent_store import LatentStore

__all__ = ["LatentStore"]
