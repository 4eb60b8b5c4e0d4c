"""Matched filters against the formula, and the responses that they are made for."""

import torch

import whatwhere as ww
from surfaces import surface
from whatwhere.anomaly.filters import SIDE, centred, learn_filters, matched


def test_matched_filters_are_those_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(SIDE**2, SIDE**2, generator=generator, dtype=torch.float64)
    features, covariance = centred(torch.rand(3, 8, 8, generator=generator)), root @ root.mT / SIDE**2
    filters = matched(features, covariance[None, None])[0, 0].flatten(1)
    floor = 1e-3 * covariance.diagonal().mean() + 1e-6
    whitened = torch.linalg.solve(covariance + floor * torch.eye(SIDE**2), features.mT).mT
    expected = whitened / (features * whitened).sum(1, keepdim=True).sqrt()
    torch.testing.assert_close(filters, expected - expected.mean(1, keepdim=True), rtol=1e-4, atol=1e-6)


def test_responses_to_normal_pictures_have_variance_one_and_ignore_exposure() -> None:
    pictures = list(surface(12, height=60, width=60))
    filters = learn_filters(pictures, ww.load("photographs").filters[0][0], (1,), aligned=False)
    planes = [filters.planes(picture)[0] for picture in pictures]
    responses = torch.cat([filters.responses(plane)[0].flatten(1) for plane in planes], 1)
    assert 0.7 < responses.var(1).mean() < 1.3
    torch.testing.assert_close(
        filters.responses(planes[0] + 3.0)[0], filters.responses(planes[0])[0], atol=2e-3, rtol=0
    )
