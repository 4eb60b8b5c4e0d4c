"""Fuzz the IDX reader: `make fuzz`. Every input must give the right array or an ImageError,
quickly, in little memory.

An oracle that shares no code with the reader decides which of the two is right. The inputs are
random headers and values, complete or damaged, compressed or not, made from a seed, so that a
failure can be made again from its number.
"""

import argparse
import collections
import random
import re
import struct
import tempfile
import time
import tracemalloc
import zlib
from pathlib import Path

import numpy as np

from whatwhere.data.arrays import read_array
from whatwhere.errors import ImageError

SIZES = {0x08: 1, 0x09: 1, 0x0B: 2, 0x0C: 4, 0x0D: 4, 0x0E: 8}
KINDS = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
SLOWEST_ALLOWED = 1.0  # seconds for one input
LARGEST_ALLOWED = 4 << 20  # bytes of memory at any time within one input; the largest hold 2 MiB


def make(chance: random.Random) -> bytes:
    """One input: mostly a valid file with a fault or two, sometimes a valid one, sometimes
    noise."""
    content = noise(chance) if chance.random() < 0.1 else valid(chance)
    if chance.random() < 0.5:
        content = damaged(chance, content)
    if chance.random() < 0.5:
        content = compressed(chance, content)
        if chance.random() < 0.5:
            content = damaged(chance, content)
    return content


def noise(chance: random.Random) -> bytes:
    start = chance.choice(
        [b"", b"\0\0", b"\0\0\x08\x03", b"\x1f\x8b\x08", b"\x1f\x8b\x08\x08\0\0\0\0\0\0name"]
    )
    return start + chance.randbytes(chance.randrange(200))


def valid(chance: random.Random) -> bytes:
    code = chance.choice(list(SIZES))
    shape = [chance.randint(1, 6) for _ in range(chance.randint(1, 4))]
    return header(code, shape) + chance.randbytes(int(np.prod(shape)) * SIZES[code])


def header(code: int, shape: list[int]) -> bytes:
    return struct.pack(f">HBB{len(shape)}I", 0, code, len(shape), *shape)


def damaged(chance: random.Random, content: bytes) -> bytes:
    """Cut it, lengthen it, change bytes, or let an axis of the header lie."""
    changed = bytearray(content)
    match chance.randrange(5):
        case 0:
            return content[: chance.randrange(len(content) + 1)]
        case 1:
            return content + chance.randbytes(chance.randint(1, 40))
        case 2 if changed:
            for _ in range(chance.randint(1, 4)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
        case 3 if len(changed) >= 8:
            axis = 4 + 4 * chance.randrange(min(4, (len(changed) - 4) // 4))
            lie = chance.choice(
                [
                    0,
                    1,
                    2**31 - 1,
                    2**31,
                    2**32 - 1,
                    chance.randrange(2**32),
                    chance.randrange(70_000),
                ]
            )
            changed[axis : axis + 4] = struct.pack(">I", lie)
        case _:
            changed[2:4] = chance.randbytes(2)
    return bytes(changed)


def compressed(chance: random.Random, content: bytes) -> bytes:
    """gzip, now and then with many more zeros than the header asks for, a second stream, or a long
    name."""
    fate = chance.random()
    if fate < 0.02:
        content += bytes(chance.randrange(2 << 20))
    stream = zlib.compressobj(chance.choice([0, 1, 6, 9]), wbits=31)
    result = stream.compress(content) + stream.flush()
    if 0.02 <= fate < 0.05:
        result += result
    elif 0.05 <= fate < 0.08:
        result = (
            result[:3]
            + b"\x08"
            + result[4:10]
            + b"n" * chance.randrange(5000)
            + b"\0"
            + result[10:]
        )
    return result


def expected(content: bytes) -> np.ndarray | None:
    """The array in the bytes, read the simplest way, or None if they are not a complete
    IDX file."""
    if content[:2] == b"\x1f\x8b":
        left, content = content, b""
        # as gunzip: several streams, zeros after them, flags without a meaning
        while left.strip(b"\0"):
            stream = zlib.decompressobj(wbits=31)
            try:
                content += stream.decompress(
                    left[:3] + bytes(flag & 0x1F for flag in left[3:4]) + left[4:]
                )
            except zlib.error:
                return None
            if not stream.eof:
                return None
            left = stream.unused_data
    if (
        len(content) < 4
        or content[:2] != b"\0\0"
        or content[2] not in SIZES
        or not 1 <= content[3] <= 4
    ):
        return None
    axes = content[3]
    if len(content) < 4 + 4 * axes:
        return None
    shape = struct.unpack(f">{axes}I", content[4 : 4 + 4 * axes])
    values = 1
    for size in shape:
        values *= size
    if values == 0 or len(content) != 4 + 4 * axes + values * SIZES[content[2]]:
        return None
    return np.frombuffer(content, KINDS[content[2]], offset=4 + 4 * axes).reshape(shape)


def check(path: Path, right: np.ndarray | None) -> tuple[str, str | None]:
    """What the reader makes of a file, and what is wrong with that, or None."""
    try:
        read = read_array(path)[:]
    except ImageError as error:
        reason = re.split("[:;(]", str(error).partition(": ")[2])[0]
        return (
            f"rejected: {re.sub(r'[0-9,]+', '…', reason)}",
            "a complete file was rejected" if right is not None else None,
        )
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"
    if right is None:
        return "read", "a file that is not complete was read"
    same = (
        read.dtype == right.dtype
        and read.shape == right.shape
        and read.tobytes() == right.tobytes()
    )
    return "read", None if same else "the values differ"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--seconds", type=float, default=600, help="stop, and fail, after this long"
    )
    chosen = options.parse_args()

    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    slowest, largest = 0.0, 0
    began = time.perf_counter()
    tracemalloc.start()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input"
        for number in range(chosen.inputs):
            content = make(random.Random(f"{chosen.seed}/{number}"))
            path.write_bytes(content)
            right = expected(content)

            tracemalloc.reset_peak()
            memory, started = tracemalloc.get_traced_memory()[0], time.perf_counter()
            outcome, fault = check(path, right)
            took, held = time.perf_counter() - started, tracemalloc.get_traced_memory()[1] - memory

            outcomes[outcome] += 1
            slowest, largest = max(slowest, took), max(largest, held)
            if took > SLOWEST_ALLOWED or held > LARGEST_ALLOWED:
                fault = f"took {took:.1f} s and {held:,} bytes"
            if fault:
                faults.append(f"input {chosen.seed}/{number}: {fault}")
            if time.perf_counter() - began > chosen.seconds:
                faults.append(f"out of time after {number + 1:,} inputs")
                break

    print(
        f"{sum(outcomes.values()):,} inputs from seed {chosen.seed} in"
        f" {time.perf_counter() - began:.0f} s"
    )
    print(f"at most {slowest:.3f} s and {largest / 1024:,.0f} KiB of memory for one input")
    for outcome, count in outcomes.most_common():
        print(f"{count:>8,}  {outcome}")
    print(f"{len(faults)} faults")
    for line in faults[:20]:
        print(f"  {line}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
