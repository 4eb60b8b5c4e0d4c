"""The images that a command reads when it gets none: those that the model learned from."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import tiny_run as tiny
import whatwhere as ww
from tiny_run import whatwhere
from whatwhere.commands.inputs import ImagesUnknown, source_of
from whatwhere.learning import TrainingOptions, train

ON_CPU = TrainingOptions(engine="reference", device="cpu")


def pictures(folder: Path, *sizes: int) -> Path:
    folder.mkdir()
    for number, size in enumerate(sizes):
        Image.effect_noise((size, size), 80).save(folder / f"{number}.png")
    return folder


@pytest.mark.parametrize("sizes", [(12, 12, 12), (12, 14, 16)])
def test_a_run_of_a_folder_leads_back_to_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    """As squares, which `label` learns from, by a path, and as crops."""
    folder = pictures(tmp_path / "pictures", *sizes)
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        train(ww.data.load("pictures", size=12), tiny.recipe(), "squares", options=ON_CPU)
        train("pictures", tiny.recipe(), "crops", options=ON_CPU)
    monkeypatch.chdir("/")
    for run in ("squares", "crops"):
        assert source_of(tmp_path / run) == str(folder)


def test_no_other_model_falls_back_to_the_digits(tmp_path: Path) -> None:
    run = tiny.make(tmp_path / "run")  # learned from an array
    file = tmp_path / "model.safetensors"
    file.write_bytes(ww.models.path("mnist").read_bytes())
    for model in (run, file, Path("photographs")):
        with pytest.raises(ImagesUnknown) as caught:
            source_of(model)
        assert (caught.value.run, caught.value.recorded) == (model, None)
    for words in (
        ["explore", run, "--out", tmp_path / "x.html"],
        ["figures", run],
        ["distill", run],
    ):
        with pytest.raises(ImagesUnknown):
            whatwhere(*words)
    np.save(tmp_path / "bars.npy", tiny.bars(6)[0])
    drawn = ("figures", run, "--images", tmp_path / "bars.npy", "--only", "filters")
    assert "filters.png" in whatwhere(*drawn)


def test_images_that_were_moved_are_named(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "pictures", 12, 12)
    train(folder, tiny.recipe(), tmp_path / "run", options=ON_CPU)
    folder.rename(tmp_path / "moved")
    with pytest.raises(ImagesUnknown) as caught:
        source_of(tmp_path / "run")
    assert caught.value.recorded == str(folder)
