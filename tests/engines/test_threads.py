"""Threads: small work is computed in one, and the others come back."""

import torch
from threadpoolctl import threadpool_info

from whatwhere.engines.threads import one_thread


def test_one_thread_computes_alone_and_the_others_come_back() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    pools = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
            assert {pool["num_threads"] for pool in threadpool_info()} == {1}
        assert torch.get_num_threads() == 2
        after = {pool["filepath"]: pool["num_threads"] for pool in threadpool_info()}
        assert after == pools
    finally:
        torch.set_num_threads(before)
