"""MATLAB's files: what SciPy writes comes out, and damaged ones raise a ValueError, no more."""

import io
import random
import zlib

import numpy as np
import pytest

from whatwhere.signals.matlab import read_arrays

savemat = pytest.importorskip("scipy.io").savemat
TYPES = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8")


def written(arrays: dict[str, object], compress: bool = False) -> bytes:
    file = io.BytesIO()
    savemat(file, arrays, do_compression=compress)
    return file.getvalue()


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_of_all_types_come_back(compress: bool) -> None:
    chance = np.random.default_rng(0)
    arrays = {f"a{kind}": chance.integers(0, 99, (3, 4, 5)).astype(kind) for kind in TYPES}
    given = arrays | {"fs": 250.0, "text": "no", "cell": [{"a": 1}], "complex": np.ones(3, "c16")}
    found = read_arrays(io.BytesIO(written(given, compress)))
    assert set(found) == {*arrays, "fs"}
    assert found["fs"].tolist() == [[250.0]]
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_damaged_files_raise() -> None:
    """SciPy's own reader ends the process for some of these."""
    chance = random.Random(0)
    for compress in (False, True):
        content = written({"x": np.arange(60.0), "fs": 250.0}, compress)
        for _ in range(400):
            damaged = bytearray(content[: chance.choice((len(content), chance.randrange(400)))])
            for _ in range(chance.randrange(1, 5)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 14, 127, 255))
            try:
                read_arrays(io.BytesIO(bytes(damaged)))
            except (ValueError, zlib.error):
                continue


def test_a_compressed_array_has_a_limit() -> None:
    content = written({"x": np.zeros(1 << 20)}, compress=True)
    with pytest.raises(ValueError, match="more than"):
        read_arrays(io.BytesIO(content), most=1 << 20)
