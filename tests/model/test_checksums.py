"""Checksums identify a model, whatever its device and the version that wrote it."""

from dataclasses import replace

import torch

import whatwhere as ww
from whatwhere.inference.learned_steps import resolve_steps
from whatwhere.model import DeconvNet
from whatwhere.model.checksums import checksum


def test_every_name_dtype_shape_and_value_counts() -> None:
    values = torch.arange(6.0)
    tensors = [
        {"f": values},
        {"g": values},
        {"f": values.view(2, 3)},
        {"f": values.view(torch.int32)},
        {"f": values + 1},
    ]
    found = [checksum("spec", each) for each in tensors]
    found.append(checksum("other spec", tensors[0]))
    assert len(set(found)) == len(found)
    both = {"f": values, "g": values + 1}
    turned = {"g": values + 1, "f": values}
    assert checksum("spec", both) == checksum("spec", turned)


def test_a_model_is_known_in_any_precision() -> None:
    model = DeconvNet(ww.ModelSpec.paper(), seed=0)
    assert model.to(torch.float64).checksum == model.checksum
    assert DeconvNet(ww.ModelSpec.paper(), seed=1).checksum != model.checksum


def test_a_setting_that_is_younger_than_the_included_learned_steps_leaves_their_model_known() -> (
    None
):
    model = ww.load("mnist")
    resolve_steps(model, "learned")  # raises for another model
    other = replace(model.spec, signed_filters=True)
    signed = DeconvNet.from_parts(other, model.filters, model.connectivity)
    assert signed.checksum != model.checksum


def test_a_new_setting_does_not_change_the_checksum_of_a_stored_model() -> None:
    """Learned steps and codes name the model that they belong to by it."""
    model = ww.load("mnist")
    assert model.source is not None
    assert model.checksum == ww.LearnedSteps.load(model.source).model_checksum
