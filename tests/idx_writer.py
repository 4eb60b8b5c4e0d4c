"""Writing IDX files, the simplest way."""

import struct
from pathlib import Path

import numpy as np

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def write_idx(path: Path, values: np.ndarray) -> None:
    """Write an array as an IDX file, not compressed."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    header = struct.pack(f">HBB{values.ndim}I", 0, CODES[kind], values.ndim, *values.shape)
    path.write_bytes(header + values.astype(f">{kind}").tobytes())
