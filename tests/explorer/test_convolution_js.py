"""The page's convolutions against PyTorch's, and errors in them that the comparison with the reference engine finds."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, conv_transpose2d

from explorer.node import PAGE, needs_node, run_node
from explorer.test_engine_js import digit, relative
from whatwhere import models
from whatwhere.explorer.pack import pack_model, pack_settings
from whatwhere.inference import ista
from whatwhere.inference.plan import joint
from whatwhere.model import Problem, load
from whatwhere.spec import InferenceSpec

CASES = {
    "5×5": (8, 12, 5, 11, 18, 1.0),
    "a map smaller than the filters": (8, 12, 5, 3, 2, 1.0),
    "a sparse signal": (8, 12, 5, 11, 18, 0.02),
    "one channel": (1, 6, 5, 13, 9, 1.0),
    "3×3": (8, 12, 3, 7, 10, 1.0),
}


@needs_node
@pytest.mark.parametrize("case", CASES)
def test_convolutions_agree_with_pytorch(case: str, tmp_path: Path) -> None:
    below, maps, size, height, width, density = CASES[case]
    chance = torch.Generator().manual_seed(5)

    def draw(*shape: int) -> torch.Tensor:
        values = torch.randn(shape, generator=chance, dtype=torch.float64)
        return values * (torch.rand(shape, generator=chance) < density)

    connected = torch.rand(below, maps, generator=chance) < (0.8 if below > 1 else 1.0)
    drawn = torch.randn(below, maps, size, size, generator=chance)
    filters = drawn * connected[:, :, None, None]
    z, signal = draw(maps, height + size - 1, width + size - 1), draw(below, height, width)
    sizes = {"below": below, "maps": maps, "size": size, "height": height, "width": width}
    arrays = {"filters": drawn, "connected": connected.int(), "z": z, "signal": signal}
    path = tmp_path / "case.json"
    path.write_text(json.dumps(sizes | {name: values.flatten().tolist() for name, values in arrays.items()}))
    result = run_node(Path(__file__).parent / "convolution.mjs", PAGE, path)
    kernel = filters.double().flip(2, 3)  # conv2d correlates
    np.testing.assert_allclose(result["down"], conv2d(z[None], kernel).flatten(), atol=1e-11)
    np.testing.assert_allclose(result["up"], conv_transpose2d(signal[None], kernel).flatten(), atol=1e-11)


MUTATIONS = [
    ("convolution.js", "Math.min(outWidth - 1, last[source])", "Math.min(outWidth - 2, last[source])"),
    ("convolution.js", "first[source] - size + 1", "first[source] - size + 2"),
    ("convolution.js", "row - outHeight + 1", "row - outHeight + 2"),
    ("convolution.js", "ky < size && ky <= row", "ky < size && ky < row"),
    ("convolution.js", "(row % height) + border", "(row % height) + border - 1"),
]


@pytest.fixture(scope="module")
def two_layers(tmp_path_factory: pytest.TempPathFactory) -> tuple[torch.Tensor, Path]:
    """Features of the paper's model after 2 steps of the reference engine, and the case for the page's engine."""
    model, image, spec = load(models.path("mnist")), digit(), InferenceSpec(steps=2)
    size = {"height": image.shape[2], "width": image.shape[3], "image": image.flatten().tolist()}
    path = tmp_path_factory.mktemp("golden") / "case.json"
    path.write_text(json.dumps({"model": pack_model(model), "settings": pack_settings(spec), **size}))
    phase = joint(model.spec.depth)[0]
    return ista.solve(Problem(model.to(torch.float64), image.double(), phase, spec)).features, path


def features_of(page: Path, case: Path) -> Any:
    return run_node(Path(__file__).parent / "golden.mjs", page, case)["states"][-1]["p"]


@needs_node
def test_two_layers_agree_without_a_mutation(two_layers: tuple[torch.Tensor, Path]) -> None:
    features, case = two_layers
    assert relative(features_of(PAGE, case), features) < 1e-5


@needs_node
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation[2])
def test_a_mutated_bound_is_found(
    mutation: tuple[str, str, str], two_layers: tuple[torch.Tensor, Path], tmp_path: Path
) -> None:
    """An index that is off by one changes the features of two layers beyond the tolerance of the comparison."""
    (file, correct, wrong), (features, case) = mutation, two_layers
    page = shutil.copytree(PAGE, tmp_path / "page")
    source = (page / file).read_text(encoding="utf-8")
    assert correct in source
    (page / file).write_text(source.replace(correct, wrong), encoding="utf-8")
    assert relative(features_of(page, case), features) > 1e-5
