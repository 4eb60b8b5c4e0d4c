"""One folder of mixed pictures through every command and every class, as a new user takes it."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import whatwhere as ww
from mixed_folder import make_folder
from tiny_run import PLAIN, whatwhere
from whatwhere.learning import defaults

COUNT, SIDE = 9, 16
SMALL = (
    *("--set", "model.layers=[{maps=3, filter_size=3}, {maps=4, filter_size=3, fan_in=2}]"),
    *(
        "--set",
        "learning.each.epochs=1",
        "--set",
        "learning.each.inference.steps=2",
        "--set",
        "inference.steps=3",
    ),
)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("walk") / "pictures", COUNT, SIDE)


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    out = folder.parent / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whatwhere("train", folder, "--out", out, *SMALL, *PLAIN, "--quiet")
    return out


def test_training_chooses_an_input_stage_and_records_the_size(run: Path) -> None:
    trained = ww.read_run(run)
    assert (trained.model.spec.input.kind, trained.model.spec.channels) == ("onoff", 3)
    assert trained.recipe.learning[0].streams


def test_what_is_skipped_and_what_is_taken_for_white_is_said(folder: Path) -> None:
    with pytest.warns(UserWarning, match="skipped") as said:
        ww.data.load_groups(folder)
    text = " ".join(str(one.message) for one in said)
    for name in (
        "notes.txt (not a picture)",
        "broken.jpg (",
        "empty.png (it is damaged, or not a picture",
        "as white",
    ):
        assert name in text


@pytest.mark.parametrize(
    "part", [".", "spots-00.png", "stripes-07.tif"], ids=["the folder", "grey", "two pages"]
)
def test_encode_accepts_what_train_accepted_and_decode_gives_it_back(
    folder: Path, run: Path, part: str
) -> None:
    codes, out = run.parent / "codes.npz", run.parent / f"decoded-{part.strip('.')}"
    fast = ("--set", "inference.steps=3", "--preset", "recipe")
    found = json.loads(
        whatwhere(
            "encode",
            folder / part,
            run,
            "--out",
            codes,
            "--where",
            "--overwrite",
            *fast,
            *PLAIN,
            "--json",
        )
    )
    pictures = sum(len(images) for images, _ in ww.data.load_groups(folder / part))
    assert found["images"] == pictures >= 1
    whatwhere("decode", codes, run, "--out", out)
    assert len(list(out.glob("*.png"))) == pictures


def test_classify_figures_and_explore_take_squares_of_the_size_of_training(
    folder: Path, run: Path
) -> None:
    table = run.parent / "labels.csv"
    table.write_text("spots-03.jpg,spots\nstripes-01.jpg,stripes\nshapes-02.jpg,shapes\n")
    fast = ("--set", "copies=2", *PLAIN)
    whatwhere("classify", folder, run, "--labels", table, "--out", run.parent / "classes", *fast)
    lines = (run.parent / "classes" / "predictions.csv").read_text().splitlines()
    assert len(lines) == 1 + len(ww.data.load(folder))
    whatwhere(
        "figures",
        run,
        "--only",
        "reconstructions",
        "--only",
        "filters",
        "--set",
        "engine=reference",
    )
    whatwhere(
        "explore",
        run,
        "--images",
        folder / "spots-00.png",
        "--out",
        run.parent / "page.html",
        "--set",
        "engine=reference",
    )
    assert "onoff" in (run.parent / "page.html").read_text()
    whatwhere("explore", run, "--out", run.parent / "all.html", "--set", "engine=reference")


def test_squares_are_those_of_the_run(folder: Path, run: Path, tmp_path: Path) -> None:
    from whatwhere.commands.inputs import read_images

    larger = make_folder(tmp_path / "larger", COUNT, 2 * SIDE)
    assert ww.data.load(larger).shape[1] >= 2 * SIDE
    assert read_images(run, str(larger)).shape == (3, SIDE, SIDE)


@pytest.mark.parametrize("kind", ["picture", "array", "next to 8 bits"])
def test_what_is_white_is_that_of_the_run(run: Path, tmp_path: Path, kind: str) -> None:
    from PIL import Image

    from whatwhere.commands.inputs import read_images, recorded_by

    dark = np.full((SIDE, SIDE), 1000, np.uint16)  # alone it would be taken for 10 bits
    if kind == "array":
        np.save(tmp_path / "dark.npy", dark[None])
    else:
        Image.fromarray(dark).save(tmp_path / "dark.tif")
    if kind == "next to 8 bits":
        Image.fromarray(np.zeros((SIDE, SIDE), np.uint8)).save(tmp_path / "dim.png")
    source = str(next(tmp_path.iterdir()) if kind == "array" else tmp_path)
    for images in (
        read_images(run, source),
        ww.data.load_groups(source, None, recorded_by(run))[0][0],
    ):
        assert images[:1].max() == pytest.approx(1000 / 4095, abs=1e-5)


def test_six_channels_go_from_training_to_the_page(tmp_path: Path) -> None:
    file, out = tmp_path / "six.npy", tmp_path / "run"
    np.save(file, np.random.default_rng(0).integers(0, 256, (6, 6, SIDE, SIDE), np.uint8))
    whatwhere("train", file, "--out", out, *SMALL, *PLAIN, "--quiet")
    whatwhere(
        "encode",
        file,
        out,
        "--out",
        tmp_path / "codes.npz",
        "--where",
        *PLAIN,
        "--preset",
        "recipe",
    )
    whatwhere("decode", tmp_path / "codes.npz", out, "--out", tmp_path / "decoded.npz")
    assert np.load(tmp_path / "decoded.npz")["images"].shape == (6, 6, SIDE, SIDE)
    whatwhere(
        "figures",
        out,
        "--only",
        "reconstructions",
        "--only",
        "decomposition-2",
        "--set",
        "engine=reference",
    )
    whatwhere("explore", out, "--out", tmp_path / "page.html", "--set", "engine=reference")


def test_anomaly_denoise_and_inpaint(folder: Path) -> None:
    home = folder.parent
    whatwhere("anomaly", "fit", folder, "--out", home / "detector")
    whatwhere("anomaly", "score", folder, home / "detector", "--out", home / "scores")
    whatwhere(
        "denoise",
        folder / "spots-03.jpg",
        "--out",
        home / "denoised.png",
        "--noise",
        "0.1",
        "--set",
        "quality=8",
    )
    height, width = ww.data.load(folder / "spots-03.jpg").shape[1:]
    from PIL import Image

    known = np.full((height, width), 255, np.uint8)
    known[4:7, 4:7] = 0
    Image.fromarray(known).save(home / "mask.png")
    whatwhere(
        "inpaint",
        folder / "spots-03.jpg",
        "--mask",
        home / "mask.png",
        "--out",
        home / "filled.png",
        "--set",
        "quality=8",
    )
    assert (home / "filled.png").exists()


def test_the_classes_in_python(folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = ww.data.load(folder)
    features = ww.DeconvNetFeatures(
        maps=(3,), epochs=1, training_steps=2, steps=2, engine="reference"
    )
    rows = features.fit(images).transform(images)
    assert len(rows) == len(images)
    groups = [images for images, _ in ww.data.load_groups(folder)]
    detector = ww.AnomalyDetector().fit([group[0].numpy() for group in groups])
    assert len(detector.score_samples([group[0].numpy() for group in groups])) == len(groups)
    model = ww.load(run)
    spec = ww.InferenceSpec(steps=2)
    whole = ww.infer(model, groups[0], spec, engine="reference")
    assert whole.reconstruction.shape[1:] == groups[0].shape
    grey = ww.data.load(folder / "spots-00.png")
    assert ww.infer(model, grey, spec, engine="reference").reconstruction.shape[1] == 3
    chosen = defaults.choose_defaults(images, rules=defaults.DefaultRules(values=1))
    small = ww.override(chosen.recipe, {"model": {"layers": [{"maps": 2}]}})
    assert (
        ww.train(
            folder, small, image_count=4, options=ww.TrainingOptions(engine="reference")
        ).model.spec.channels
        == 3
    )


def test_bytes_are_scaled(run: Path) -> None:
    model, spec = ww.load(run), ww.InferenceSpec(steps=2)
    v = np.random.default_rng(0).integers(0, 256, (1, 3, SIDE, SIDE), np.uint8)
    expected = ww.infer(model, v.astype(np.float32) / 255, spec, engine="reference").features
    for given in (v, torch.from_numpy(v), ww.data.load(v)):
        torch.testing.assert_close(
            ww.infer(model, given, spec, engine="reference").features, expected
        )


def test_a_gradient_is_asked_for_elsewhere(run: Path) -> None:
    v = torch.rand(1, 3, SIDE, SIDE).requires_grad_()
    with pytest.warns(UserWarning, match="SparseCode2d") as said:
        ww.infer(ww.load(run), v, ww.InferenceSpec(steps=1), engine="reference")
    assert len(said) == 1
