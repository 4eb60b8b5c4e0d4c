"""A classifier on a picture that the page sends."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from whatwhere.classification.joined_describer import JoinedDescriber
from whatwhere.classification.picture_classifier import PictureClassifier
from whatwhere.errors import ImageError
from whatwhere.labelling.trial import try_picture
from whatwhere.views import Colour


def sent(colour: tuple[int, int, int], side: int = 12) -> dict[str, str]:
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, "PNG")
    return {"name": "flowers/a.png", "content": base64.b64encode(file.getvalue()).decode()}


def test_a_picture_that_is_sent_gets_its_class() -> None:
    noise = 0.02 * torch.randn(20, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    red = torch.tensor([0.8, 0.1, 0.1])[None, :, None, None]
    images = (
        noise + torch.cat([red.expand(10, -1, 12, 12), red.flip(1).expand(10, -1, 12, 12)])
    ).clamp(0, 1)
    view = Colour()
    rows = view.rows(images)
    shares = torch.zeros(20, 2)
    shares[:10, 0] = shares[10:, 1] = 1
    describe = JoinedDescriber((view,), (rows.shape[1],), (3, 12, 12))
    classifier = PictureClassifier(("rose", "violet"), rows, shares, 5, describe)
    assert try_picture(classifier, sent((204, 26, 26))).classes == ["rose", "violet"]
    found = try_picture(classifier, sent((26, 26, 204), side=40))
    assert found.classes == ["violet", "rose"]
    assert found.shares[0] > found.shares[1]
    assert np.isclose(sum(found.shares), 100, atol=1)
    with pytest.raises(ImageError, match="Expected the name of a picture"):
        try_picture(classifier, {"name": "a.png"})
