"""The compiled passes of the denoiser against plain torch."""

import pytest
import torch

from whatwhere.restoration import denoiser

pytest.importorskip("numba")
from whatwhere.restoration import kernels


@pytest.mark.parametrize(("S", "h", "w"), [(1, 2, 2), (3, 4, 7), (2, 9, 3)])
def test_a_pass_agrees_with_torch(S: int, h: int, w: int) -> None:
    random = torch.Generator().manual_seed(S)
    y = torch.randn(S, h, w, 64, generator=random)
    z, u = (torch.randn(S, h - 1, w - 1, 256, generator=random) for _ in range(2))
    t, B = torch.rand(256, generator=random) * 3, torch.randn(256, 256, generator=random)
    expected_z, expected_parts = denoiser.shrink_product(z, u, t, B)
    ours_z, parts = kernels.shrink_product(z.clone(), u, t, B)
    torch.testing.assert_close(ours_z, expected_z, rtol=0, atol=1e-6)
    torch.testing.assert_close(parts, expected_parts, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(kernels.error_squares(y, parts), denoiser.error_squares(y, parts), rtol=1e-6, atol=1e-5)


def test_the_result_does_not_depend_on_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    plane = torch.rand(50, 70, generator=torch.Generator().manual_seed(0))
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        results.append(denoiser.load_denoiser().denoise(plane, 0.1))
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)
