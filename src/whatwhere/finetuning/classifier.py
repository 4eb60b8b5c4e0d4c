"""The network that is fine-tuned: a sparse code of the image, its descriptor, a linear head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from whatwhere.classification.descriptors import describe, pooled_patches
from whatwhere.latents import Latents
from whatwhere.nn import SparseCode2d
from whatwhere.spec import DescriptorSpec

FLOOR = 0.1  # of the usual length: a patch shorter than this stays short; scaled up, it would be noise


class SparseCodeClassifier(nn.Module):
    """Images [N, C, H, W] → a score of every class, [N, classes].

    coder       the layer that infers what and where
    descriptor  how the features of the top layer become a vector
    length      of that vector
    classes     how many
    floor       a length below which a patch is not scaled up (see `describe`)
    dropout     share of the descriptor that is left out in training

    >>> coder, digits = ww.nn.SparseCode2d(1, maps=(4, 8), steps=2), ww.data.load("digits")
    >>> network = SparseCodeClassifier.for_images(coder, ww.DescriptorSpec(), digits[:5], classes=10)
    >>> network(digits[:3]).shape
    torch.Size([3, 10])
    """

    def __init__(
        self,
        coder: SparseCode2d,
        descriptor: DescriptorSpec,
        *,
        length: int,
        classes: int,
        floor: float,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.coder, self.descriptor, self.floor, self.dropout = coder, descriptor, floor, dropout
        like = coder.log_sizes
        self.head = nn.Linear(length, classes, device=like.device, dtype=like.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def for_images(
        cls,
        coder: SparseCode2d,
        descriptor: DescriptorSpec,
        images: Tensor,
        *,
        classes: int,
        dropout: float = 0.0,
    ) -> SparseCodeClassifier:
        """The network for images like these [N, C, H, W], with a floor by the lengths of their patches."""
        with torch.no_grad():
            features, layer = coder.code(images).p, coder.model_spec.depth
            assert features is not None
            floor = FLOOR * usual_length(features, descriptor, layer)
            length = describe([features[:1]], descriptor, [layer]).shape[1]
        return cls(coder, descriptor, length=length, classes=classes, floor=floor, dropout=dropout)

    def forward(self, images: Tensor) -> Tensor:
        """The score of every class."""
        return self.scores(self.coder.code(images))

    def scores(self, latents: Latents) -> Tensor:
        """The score of every class from the latents of images."""
        scores: Tensor = self.head(F.dropout(self.describe(latents), self.dropout, self.training))
        return scores

    def describe(self, latents: Latents) -> Tensor:
        """The descriptors of images, [N, D], from their latents."""
        assert latents.p is not None
        return describe([latents.p], self.descriptor, [self.coder.model_spec.depth], floor=self.floor)

    def scores_and_cost(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The score of every class, and the cost of the code, [N]: λ/2 ‖R p - v‖² + Σ|p|^α."""
        latents = self.coder.code(images)
        return self.scores(latents), self.coder.cost_of(images, latents)


def usual_length(features: Tensor, descriptor: DescriptorSpec, layer: int) -> float:
    """The root mean square length of what a descriptor scales to unit length: the patches, or all of an image."""
    vectors = features.flatten(1) if descriptor.raw else pooled_patches(features, descriptor, layer)
    return float(vectors.square().sum(-1).mean().sqrt())
