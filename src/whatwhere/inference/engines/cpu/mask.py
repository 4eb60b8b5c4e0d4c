"""The weights of the pixels in the data term λ/2 ‖M ⊙ (R p - v)‖²."""

from __future__ import annotations

from whatwhere.inference.engines.cpu.pooling import element_offset
from whatwhere.inference.engines.cpu.records import Layer
from whatwhere.inference.engines.jit import Array, jit
from whatwhere.inference.engines.jit.simd import noinline


@jit
def apply_mask(state: Array, bottom: Layer, at: int, mask: Array) -> float:
    """Multiply the signal at the image that starts at `at` by the mask [H W C], in place; return its sum of squares."""
    noinline()
    squares, length = 0.0, bottom.columns * bottom.maps
    for y in range(bottom.rows):
        first = element_offset(bottom, at, y, 0)
        for i in range(length):
            weighted = mask[y * length + i] * state[first + i]
            state[first + i] = weighted
            squares += weighted * weighted
    return squares
