"""Limits of what is read: other values hold within a block, and in its thread alone."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from whatwhere.data.limits import ReadLimits, limited, limits


def test_other_limits_hold_until_the_block_ends() -> None:
    with limited(batch=7):
        assert limits() == ReadLimits(batch=7)
        with limited(pages=2):
            assert limits() == ReadLimits(batch=7, pages=2)
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(limits).result() == ReadLimits()
        assert limits() == ReadLimits(batch=7)
    assert limits() == ReadLimits()


def test_an_unknown_limit_raises() -> None:
    with pytest.raises(TypeError), limited(bach=7):
        pass
    assert limits() == ReadLimits()
