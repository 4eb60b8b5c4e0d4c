"""The compiled step of the denoiser against plain torch."""

import multiprocessing

import pytest
import torch

from whatwhere.restoration import denoiser

pytest.importorskip("numba")
from whatwhere.nn.cpu_pooling import share
from whatwhere.restoration import shrinkage


@pytest.mark.parametrize(("S", "h", "w"), [(1, 2, 2), (3, 4, 7)])
def test_a_step_agrees_with_torch(S: int, h: int, w: int) -> None:
    random = torch.Generator().manual_seed(S)
    z, u = (torch.randn(S, h, w, 256, generator=random) for _ in range(2))
    t, B = torch.rand(256, generator=random) * 3, torch.randn(256, 256, generator=random)
    expected = denoiser.shrink_product(z.double(), u.double(), t.double(), B.double())
    ours_z, parts = shrinkage.shrink_product(z.clone(), u, t, B)
    torch.testing.assert_close(ours_z.double(), expected[0], rtol=0, atol=1e-6)
    torch.testing.assert_close(parts.double(), expected[1], rtol=1e-5, atol=1e-4)


def test_the_result_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = torch.rand(50, 70, generator=torch.Generator().manual_seed(0))
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(denoiser.load_denoiser().denoise(plane, 0.1))
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


def no_work(first: int, last: int) -> None:
    """What takes no time."""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_a_forked_process_has_threads_of_its_own() -> None:
    share(no_work, 4, 2)
    child = multiprocessing.get_context("fork").Process(target=share, args=(no_work, 4, 2))
    child.start()
    child.join(60)
    child.kill()
    assert child.exitcode == 0
