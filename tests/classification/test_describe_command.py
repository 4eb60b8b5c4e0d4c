"""`whatwhere describe` as a person uses it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import tiny_run as tiny
import whatwhere as ww
from tiny_run import PLAIN, whatwhere
from whatwhere.classification import describe_images
from whatwhere.classification.metric import Metric
from whatwhere.model.files import read_tensors


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tiny.make(tmp_path / "run")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    pixels, labels = tiny.bars(37, seed=1)
    np.savez(tmp_path / "bars.npz", images=pixels, labels=labels)
    return tmp_path / "bars.npz"


def test_descriptors_in_the_metric_that_the_run_keeps(
    run: Path, images: Path, tmp_path: Path
) -> None:
    few = ("--set", "rotation=10", "--set", "copies=2", "--json", *PLAIN)
    printed = whatwhere("describe", images, run, "--out", tmp_path / "rows.npz", *few)
    recipe, model = tiny.recipe(), ww.load(run / "model.safetensors")
    bars, labels = tiny.bars(37, seed=1)
    _, tensors = read_tensors(run / "metric.safetensors")
    metric = Metric.from_tensors(tensors, ww.Distortions(rotation=10, copies=2))
    wanted = metric(
        describe_images(model, torch.from_numpy(bars)[:, None], recipe, engine="reference")
    )
    with np.load(tmp_path / "rows.npz") as written:
        np.testing.assert_allclose(written["descriptors"], wanted, atol=1e-4)
        np.testing.assert_array_equal(written["labels"], labels)
        assert json.loads(printed)["arrays"] == {"descriptors": list(written["descriptors"].shape)}
    np.save(tmp_path / "some.npy", (255 * bars[:5]).astype(np.uint8))
    whatwhere("describe", tmp_path / "some.npy", run, "--out", tmp_path / "some.npz", *few)
    with np.load(tmp_path / "some.npz") as written:  # other images, in the same metric
        np.testing.assert_allclose(written["descriptors"], wanted[:5], atol=0.02)
    whatwhere(
        "describe",
        images,
        run,
        "--out",
        tmp_path / "other.npz",
        "--set",
        "copies=2",
        *PLAIN,
    )
    other = read_tensors(run / "metric.safetensors")[1]["metric.matrix"]
    assert not torch.equal(other, tensors["metric.matrix"]), "other distortions have another metric"
