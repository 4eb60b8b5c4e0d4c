"""Settings every test shares: one thread, so that parallel tests do not fight, Ctrl-C, and
repeatable examples."""

import functools
import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

# Tests with two threads share cores with other tests: a thread that waits sleeps, as those of the
# program do. PyTorch reads it when it is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# which a shell ignores for what it runs in the background
signal.signal(signal.SIGINT, signal.default_int_handler)


@functools.cache
def configure() -> None:
    import hypothesis
    import torch

    torch.set_num_threads(1)
    hypothesis.settings.register_profile(
        "whatwhere", deadline=None, max_examples=25, derandomize=True
    )
    hypothesis.settings.load_profile("whatwhere")


def pytest_collectstart(collector: Any) -> None:
    configure()  # where tests run: the process that only distributes them starts without torch


def pytest_collection_modifyitems(items: list[Any]) -> None:
    # the slow ones first, so that none is last
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish(session: Any) -> None:
    gc.collect()
    # modules and tests stay to the end: looking through them again and again took a tenth of the
    # time
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: Any) -> Iterator[None]:
    yield
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # on a busy machine, threads that wait for each other take ten times the processor time
    assert threads == 1, f"{item.name} leaves {threads} threads to the tests after it"
