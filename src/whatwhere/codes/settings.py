"""The settings of codes of many images."""

from dataclasses import dataclass

from whatwhere.spec.checks import Checked, Count, CountOrZero, NonNegative, Positive


@dataclass(frozen=True, kw_only=True)
class _WorkLimits(Checked):
    """How the work of `encode` is divided. These settings change its time and memory and what a
    stopped command loses, but no code.

    Parameters
    ----------
    block_images
        images in a block of the file; reading one image reads its block
    block_pixels
        pixels of all images and channels in a block, for large images
    save_seconds
        work that is lost at most when a command is killed
    large_picture
        pixels of one picture above which it is inferred in tiles
    batch_pixels
        pixels of a batch, so that it fits into memory
    batch_work
        connected weights × pixels × steps of a batch for each thread: 4 pictures of 128 × 128
        pixels until they converge, about 10 s of a core. A command that is stopped loses the work
        of one batch
    finishing
        blocks that are compressed at the same time, each in a thread; they are in memory, about 100
        MB for pictures of 128 × 128 pixels with pooling variables
    """

    block_images: Count = 1000
    block_pixels: Count = 1 << 24
    save_seconds: NonNegative = 60.0
    large_picture: Count = 1 << 20
    batch_pixels: Count = 1 << 22
    batch_work: Positive = 6.6e11
    finishing: Count = 8


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(Checked):
    """What `encode` writes, and how it cuts large pictures.

    Parameters
    ----------
    where
        also write the pooling variables, which `decode` needs
    exact
        write exact values, in 32 bits, to a file that is about ten times as large
    tile
        side of the overlapping tiles that large pictures are cut into, in pixels; 0 cuts none.
        Default: 256 for pictures of more than 1,048,576 pixels
    overlap
        pixels that neighbouring tiles share
    limits
        how the work is divided
    """

    where: bool = False
    exact: bool = False
    tile: CountOrZero | None = None
    overlap: CountOrZero = 64
    limits: _WorkLimits = _WorkLimits()
