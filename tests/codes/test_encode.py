"""`whatwhere encode` as a person uses it."""

import errno
import io
import json
import os
import shutil
import signal
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import programs
import tiny_run as tiny
import whatwhere as ww
from raising import Containing, raises
from tiny_run import PLAIN, whatwhere
from whatwhere.codes.command import picture_names
from whatwhere.codes.encoder import Encoder
from whatwhere.codes.files import CodesOfAnotherModel, block_name
from whatwhere.codes.kept_blocks import KeptBlocks
from whatwhere.codes.settings import EncodeOptions
from whatwhere.codes.writer import OtherCodes
from whatwhere.data.parts import PartMissing
from whatwhere.engines.devices import UnknownDevice
from whatwhere.engines.threads import workers
from whatwhere.errors import InvalidImages, NoSuchImages, RunError, SpecError, WhatwhereError
from whatwhere.files import RECORD, Busy, CannotWrite, DiskError, locked
from whatwhere.html import png
from whatwhere.inference import resolve_lam
from whatwhere.learning.run_folder import NoRun, RunDiffers
from whatwhere.model.deconvnet import NegativeImages
from whatwhere.spec import AutoLam, InputSpec
from whatwhere.spec.execution import Shard

EXACT = ("--set", "exact=true")
ONE_STEP = ("--set", "inference.steps=1")
FEW_STEPS = (*PLAIN, *EXACT, "--preset", "recipe")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.make(tmp_path_factory.mktemp("encode") / "run")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    pixels, labels = tiny.bars(37, seed=1)
    np.savez(tmp_path / "bars.npz", images=pixels, labels=labels)
    return tmp_path / "bars.npz"


def test_features_pooling_variables_and_labels(run: Path, images: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "codes.npz"
    printed = whatwhere("encode", images, run, "--out", out, "--where", "--json", *FEW_STEPS)
    pixels, labels = tiny.bars(37, seed=1)
    v = torch.from_numpy(pixels)[:, None]
    model = ww.load(run / "model.safetensors")
    solution = ww.infer(model, v, tiny.recipe().inference, engine="reference")
    codes = ww.load_codes(out)
    np.testing.assert_allclose(codes.features, solution.features, atol=1e-6)
    np.testing.assert_array_equal(codes.labels, labels)
    for i in (0, 36):
        np.testing.assert_allclose(codes.decode(model, i), solution.reconstruction[i], atol=1e-5)
    assert json.loads(printed) == {
        "file": str(out),
        "engine": "reference",
        "images": 37,
        "bytes": out.stat().st_size,
        "shard": "1/1",
    }
    assert [path.name for path in out.parent.iterdir()] == ["codes.npz"]  # nothing is left behind


def test_features_alone_unless_asked(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(5)[0])
    printed = whatwhere(
        "encode", tmp_path / "bars.npy", run, "--out", tmp_path / "codes.npz", *FEW_STEPS
    )
    assert ww.load_codes(tmp_path / "codes.npz").depth == 0
    assert "codes of 5 images" in printed
    assert "reference engine" in printed


def save_pictures(folder: Path, sizes: dict[str, tuple[int, int]]) -> dict[str, torch.Tensor]:
    """Grey pictures of noise by Pillow, and what they are as images."""
    from PIL import Image

    folder.mkdir()
    pixels = {
        name: np.random.default_rng(1).integers(0, 255, size, np.uint8)
        for name, size in sizes.items()
    }
    for name, values in pixels.items():
        Image.fromarray(values).save(folder / name)
    return {name: torch.from_numpy(values)[None] / 255 for name, values in pixels.items()}


def test_a_folder_of_several_sizes(run: Path, tmp_path: Path) -> None:
    pictures = save_pictures(
        tmp_path / "pictures", {"a.png": (9, 12), "b.png": (11, 10), "c.png": (9, 12)}
    )
    out = tmp_path / "codes.npz"
    whatwhere("encode", tmp_path / "pictures", run, "--out", out, "--where", *FEW_STEPS)
    codes, model = ww.load_codes(out), ww.load(run / "model.safetensors")
    assert codes.names == ["a.png", "c.png", "b.png"]
    for i, name in enumerate(codes.names):
        expected = ww.infer(
            model, pictures[name][None], tiny.recipe().inference, engine="reference"
        )
        torch.testing.assert_close(codes.latents(i).p, expected.features, rtol=0, atol=1e-6)
        torch.testing.assert_close(
            codes.decode(model, i), expected.reconstruction[0], rtol=0, atol=1e-5
        )


def test_batches_in_threads_come_in_order_and_few_wait() -> None:
    begun: list[int] = []
    both = threading.Barrier(2)

    def work(number: int) -> int:
        begun.append(number)
        both.wait(60)  # two at a time, or an error
        return number

    torch.set_num_threads(2)
    try:
        with workers() as each:
            for expected, number in enumerate(each(work, range(24))):
                assert number == expected
                assert len(begun) <= expected + 8  # four for each thread
    finally:
        torch.set_num_threads(1)
    assert len(begun) == 24


def test_blocks_are_compressed_while_the_next_are_inferred_and_few_wait(
    tmp_path: Path,
) -> None:
    """At most `finishing` blocks wait, and an error of one ends the work."""
    model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=2, filter_size=3),)))
    images = ww.data.load(np.ones((6, 8, 8), np.float32))
    recipe = ww.override(ww.Recipe.paper(model.spec), {"inference": {"steps": 1}, "batch_size": 1})
    limits = replace(EncodeOptions().limits, block_images=1, finishing=2)
    inferred: list[int] = []
    waiting: list[int] = []
    may_end = threading.Event()

    class Slow(Encoder):
        def _finish_block(self, *given: Any) -> None:
            if len(inferred) < 3:
                may_end.wait(20)
            waiting.append(len(inferred))
            super()._finish_block(*given)

    def advance(count: int) -> None:
        inferred.append(count)
        if len(inferred) == 3:  # two blocks wait, and the third is inferred meanwhile
            may_end.set()

    options = EncodeOptions(limits=limits)
    encoder = Slow(recipe, model, [(images, None)], options, "reference")
    encoder.write(tmp_path / "slow.npz", advance)
    assert waiting[0] == 3
    assert len(ww.load_codes(tmp_path / "slow.npz")) == 6

    class Failing(Encoder):
        def _finish_block(self, *given: Any) -> None:
            raise RunError("no space")

    failing = Failing(recipe, model, [(images, None)], options, "reference")
    with pytest.raises(RunError):
        failing.write(tmp_path / "failing.npz", inferred.append)
    assert not (tmp_path / "failing.npz").exists()


def test_a_large_picture_in_tiles(tmp_path: Path) -> None:
    """The codes and the background are those of `infer_tiled`."""
    pictures = save_pictures(tmp_path / "pictures", {"a.png": (50, 61)})
    stage = InputSpec(kind="onoff", sigma=1.0, contrast=0.5, contrast_sigma=1.0)
    model = ww.DeconvNet(ww.ModelSpec(layers=(ww.LayerSpec(maps=3, filter_size=3),), input=stage))
    ww.save(model, tmp_path / "model.safetensors")
    size = ("--set", "tile=40", "--set", "overlap=16")
    asked = ("--where", *size, "--preset", "recipe", *PLAIN, *EXACT)
    whatwhere(
        "encode",
        tmp_path / "pictures",
        tmp_path / "model.safetensors",
        "--out",
        tmp_path / "codes.npz",
        *asked,
    )
    codes, spec = ww.load_codes(tmp_path / "codes.npz"), ww.Recipe.paper(model.spec).inference
    expected = ww.infer_tiled(
        model, pictures["a.png"], spec, tile=40, overlap=16, engine="reference"
    )
    assert expected.tiles == 4
    torch.testing.assert_close(codes.latents(0).p, expected.latents.dense().p, rtol=0, atol=1e-6)
    decoded = model.at(50, 61).decode(expected.latents.dense())[0]
    torch.testing.assert_close(codes.decode(model, 0), decoded, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::whatwhere.errors.ConvergenceWarning")
def test_codes_are_converged_unless_asked_otherwise(run: Path, tmp_path: Path) -> None:
    pixels, _ = tiny.bars(3)
    np.save(tmp_path / "bars.npy", pixels)
    v, model = torch.from_numpy(pixels)[:, None], ww.load(run / "model.safetensors")
    out = ("--out", tmp_path / "codes.npz", "--overwrite", *PLAIN, *EXACT)

    def features(*options: str) -> np.ndarray:
        whatwhere("encode", tmp_path / "bars.npy", run, *out, *options)
        return ww.load_codes(tmp_path / "codes.npz").features

    coding = ww.InferenceSpec.coding(steps=30)
    expected = ww.infer(model, v, coding, engine="reference").features
    np.testing.assert_allclose(features("--set", "inference.steps=30"), expected, atol=1e-6)
    chosen = resolve_lam(model, v, replace(coding, lam=AutoLam(share=0.06)))
    assert chosen.lam not in (coding.lam, 0)
    options = ("inference.lam.share=0.06", "inference.steps=30")
    written = features(*(word for option in options for word in ("--set", option)))
    np.testing.assert_allclose(
        written, ww.infer(model, v, chosen, engine="reference").features, atol=1e-6
    )
    with pytest.raises(SpecError, match="--set 'seed=3': this command has no setting seed"):
        features("--set", "seed=3")


def test_masked_pixels_have_no_influence(run: Path, tmp_path: Path) -> None:
    from PIL import Image

    pixels, _ = tiny.bars(5)
    known = np.random.default_rng(1).random((10, 10)) > 0.3
    Image.fromarray(np.where(known, 255, 0).astype(np.uint8)).save(tmp_path / "mask.png")
    np.save(tmp_path / "a.npy", pixels)
    np.save(tmp_path / "b.npy", np.where(known, pixels, 0.5).astype(np.float32))
    np.save(tmp_path / "c.npy", np.where(known, pixels, np.nan))
    codes = {}
    for name, mask in (("a", tmp_path / "mask.png"), ("b", tmp_path / "mask.png"), ("c", "nan")):
        out = tmp_path / f"{name}.npz"
        whatwhere("encode", tmp_path / f"{name}.npy", run, "--mask", mask, "--out", out, *FEW_STEPS)
        codes[name] = ww.load_codes(out).features
    model, v = ww.load(run / "model.safetensors"), torch.from_numpy(pixels)[:, None]
    M = torch.from_numpy(known).float().expand(5, 1, 10, 10)
    expected = ww.infer(model, v, tiny.recipe().inference, mask=M, engine="reference")
    np.testing.assert_array_equal(codes["a"], expected.features)
    np.testing.assert_array_equal(codes["b"], codes["a"])
    np.testing.assert_array_equal(codes["c"], codes["a"])


def test_bad_input_raises_and_leaves_nothing_behind(
    run: Path, images: Path, tmp_path: Path
) -> None:
    out = ("--out", tmp_path / "codes.npz", *FEW_STEPS)
    with raises(NoRun, path=tmp_path / "nowhere", missing=()):
        whatwhere("encode", images, tmp_path / "nowhere", *out)
    with raises(NoRun, path=tmp_path, missing=("recipe.toml", "model.safetensors")):
        whatwhere("encode", images, tmp_path, *out)
    with raises(NoSuchImages, path=str(tmp_path / "none.npy")):
        whatwhere("encode", tmp_path / "none.npy", run, *out)
    np.save(tmp_path / "below.npy", np.full((2, 10, 10), -1, np.float32))
    with raises(NegativeImages, lowest=-1.0):
        whatwhere("encode", tmp_path / "below.npy", run, *out)
    with raises(UnknownDevice, given="nonsense"):
        whatwhere("encode", images, run, "--out", tmp_path / "codes.npz", "--device", "nonsense")
    (tmp_path / "file").touch()
    with raises(DiskError, reason=os.strerror(errno.ENOTDIR)):
        whatwhere("encode", images, run, "--out", tmp_path / "file" / "codes.npz", *FEW_STEPS)
    with raises(DiskError, reason=os.strerror(errno.ENAMETOOLONG)):
        whatwhere("encode", images, run, "--out", tmp_path / ("x" * 256), *FEW_STEPS)
    with raises(NoRun, missing=()):
        whatwhere("encode", images, "x" * 300, *out)
    with raises(CannotWrite, path=str(run), reason="folder"):
        whatwhere("encode", images, run, "--out", run, *FEW_STEPS)
    with raises(NegativeImages, lowest=-1.0):
        whatwhere(
            "encode",
            tmp_path / "below.npy",
            run,
            "--out",
            tmp_path / "new" / "newer" / "codes.npz",
            *FEW_STEPS,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.npz", "below.npy", "file"]


def test_a_model_file_serves_like_its_run_with_the_papers_inference_settings(
    run: Path, tmp_path: Path
) -> None:
    pixels, _ = tiny.bars(5)
    np.save(tmp_path / "bars.npy", pixels)
    model_file = run / "model.safetensors"
    whatwhere(
        "encode", tmp_path / "bars.npy", model_file, "--out", tmp_path / "codes.npz", *FEW_STEPS
    )
    v = torch.from_numpy(pixels)[:, None]
    expected = ww.infer(
        ww.load(model_file), v, ww.Recipe.paper().inference, engine="reference"
    ).features
    np.testing.assert_allclose(ww.load_codes(tmp_path / "codes.npz").features, expected, atol=1e-6)


def many_bars(folder: Path, times: int) -> Path:
    """An .npy file of the images of one batch several times over."""
    batch = tiny.bars(tiny.recipe().batch_size)[0]
    np.save(folder / "many.npy", np.tile(batch, (times, 1, 1)))
    return folder / "many.npy"


# a block for each batch, one of them compressed at a time
SMALL_BLOCKS = ("--set", "limits.block_images=1", "--set", "limits.finishing=1")


def test_a_stopped_command_continues_when_it_is_given_again(run: Path, tmp_path: Path) -> None:
    """Killed, then asked to end, then left alone: blocks that were complete are kept, and the one
    that is compressed when the command is asked to end; the result is the same file."""
    out = tmp_path / "new" / "codes.npz"
    images = many_bars(tmp_path, 6)
    kept = out.parent / ".codes.npz.blocks"
    encode = ("encode", images, run, "--out", out, *FEW_STEPS, *SMALL_BLOCKS)
    errors = tmp_path / "errors.txt"

    def blocks() -> dict[str, int]:
        """The complete blocks and the times at which they were written."""
        return {path.name: path.stat().st_mtime_ns for path in kept.glob("block*.npz")}

    before: dict[str, int] = {}
    for number, status, ends_at, complete in (
        (signal.SIGKILL, -signal.SIGKILL, 1, 1),
        (signal.SIGTERM, 128 + signal.SIGTERM, 3, 4),
    ):
        ending = programs.Ending(number, block_name(ends_at))
        stopped = programs.start(encode, errors, ending=ending)
        stopped.join(120)
        assert stopped.exitcode == status
        assert "Traceback" not in errors.read_text()
        assert not out.exists()
        after = blocks()
        assert sorted(after) == [block_name(block) for block in range(complete)]
        assert before.items() <= after.items(), "a complete block was computed again"
        before = after
    last = programs.start(encode, errors)
    last.join(120)
    assert last.exitcode == 0, errors.read_text()
    assert [path.name for path in out.parent.iterdir()] == ["codes.npz"]
    codes = ww.load_codes(out)
    assert len(codes) == 96
    for image in (1, 17, 81):  # the same bars over and over
        np.testing.assert_allclose(codes.latents(image).p, codes.latents(1).p, atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_batches_of_a_block_at_work_are_kept(run: Path, tmp_path: Path, number: int) -> None:
    """Killed, a command loses what was not saved in time; asked to end, it loses nothing. The
    result has the same bits."""
    images = many_bars(tmp_path, 6)
    whole = tmp_path / "whole.npz"
    out = tmp_path / "codes.npz"
    words = ("encode", images, run, "--where", "--out")
    whatwhere(*words, whole, *FEW_STEPS)
    errors = tmp_path / "errors.txt"
    saves_all = ("--set", "limits.save_seconds=0")  # each of the six batches
    third = "begun0000000-0000002.npz"
    ending = programs.Ending(number, third if number == signal.SIGKILL else block_name(0))
    how = saves_all if number == signal.SIGKILL else ()
    stopped = programs.start((*words, out, *FEW_STEPS, *how), errors, ending=ending)
    stopped.join(120)
    assert stopped.exitcode in (-signal.SIGKILL, 128 + signal.SIGTERM), errors.read_text()
    done = 32 if number == signal.SIGKILL else 96
    if number == signal.SIGTERM:
        assert f"stopped: {done} of 96 images are done" in errors.read_text()
    again = programs.start((*words, out, *FEW_STEPS), errors)
    again.join(120)
    assert again.exitcode == 0, errors.read_text()
    assert f"continuing: {done} of 96 images are done" in errors.read_text()
    assert out.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".*.blocks"))


def test_a_complete_file_is_left_as_it_is(run: Path, images: Path, tmp_path: Path) -> None:
    """The same command again, as a scheduler repeats it, ends well; other settings are an error."""
    out = tmp_path / "codes"
    for shard in ("1/2", "2/2"):
        whatwhere(*shard_words(run, images, out, shard))
    part = out / "part-00002-of-00002.npz"
    before = part.stat().st_mtime_ns
    printed = whatwhere(*shard_words(run, images, out, "2/2"))
    assert "part 2 of 2 was complete already" in printed
    assert part.stat().st_mtime_ns == before
    with raises(OtherCodes, difference=Containing("other settings")):
        whatwhere(*shard_words(run, images, out, "2/2"), "--where")
    other = tiny.make(tmp_path / "other", seed=1)
    with raises(OtherCodes, difference=Containing("another model")):
        whatwhere(*shard_words(other, images, out, "2/2"))
    pixels, _ = tiny.bars(37, seed=2)
    np.savez(images, images=pixels)
    with raises(OtherCodes, difference=Containing("other pictures")):
        whatwhere(*shard_words(run, images, out, "2/2"))
    printed = whatwhere(*shard_words(run, images, out, "2/2"), "--overwrite")
    assert "was complete" not in printed
    assert part.stat().st_mtime_ns > before


@pytest.mark.parametrize("changed", ["images", "labels"])
def test_an_array_that_changed_within_is_another_one(
    run: Path, tmp_path: Path, changed: str
) -> None:
    """Only the first and the last image were compared, and no label."""
    arrays = dict(zip(("images", "labels"), tiny.bars(8), strict=True))
    file, out = tmp_path / "bars.npz", tmp_path / "codes.npz"
    np.savez(file, **arrays)
    whatwhere("encode", file, run, "--out", out, *FEW_STEPS)
    before = out.read_bytes()
    arrays[changed][3] = 1 - arrays[changed][3]
    np.savez(file, **arrays)
    with raises(OtherCodes, difference=Containing("other pictures")):
        whatwhere("encode", file, run, "--out", out, *FEW_STEPS)
    assert out.read_bytes() == before


def test_learned_steps_that_came_later_are_named(run: Path, tmp_path: Path) -> None:
    """`distill` between two submissions changes the default preset."""
    copy = shutil.copytree(run, tmp_path / "run")
    np.save(tmp_path / "bars.npy", tiny.bars(4)[0])
    encode = ("encode", tmp_path / "bars.npy", copy, "--out", tmp_path / "codes", "--device", "cpu")
    steps = ("--set", "inference.steps=2")
    whatwhere(*encode, *steps, "--preset", "coding", "--shard", "1/2")
    ww.UnrolledInference(ww.load(copy), steps=2).learned.save(copy)
    for shard in ("1/2", "2/2"):
        with raises(WhatwhereError) as caught:
            whatwhere(*encode, "--shard", shard)
        assert Containing("other settings", "give --preset coding") == caught.value
    whatwhere(*encode, *steps, "--preset", "coding", "--shard", "2/2")


def test_two_processes_do_not_write_the_same_part(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(5)[0])
    folder = tmp_path / ".codes.npz.blocks"
    folder.mkdir()
    encode = ("encode", tmp_path / "bars.npy", run, "--out", tmp_path / "codes.npz", *FEW_STEPS)
    with (
        locked(folder, "held"),
        raises(Busy, path=str(folder)),
    ):
        whatwhere(*encode)
    whatwhere(*encode)
    assert len(ww.load_codes(tmp_path / "codes.npz")) == 5


def test_a_batch_takes_a_limited_time(run: Path, tmp_path: Path) -> None:
    """34 pictures that need many steps were one batch, and a signal lost all of its work."""
    images = ww.data.load(np.zeros((34, 128, 128), np.float32))
    recipe = ww.Recipe.paper()
    model = ww.load("mnist")
    coding = replace(recipe, inference=ww.InferenceSpec.coding(), plan=(), batch_size=50)

    def batches(recipe: ww.Recipe) -> list[int]:
        encoder = Encoder(recipe, model, [(images, None)], EncodeOptions())
        return [batch.length for block in encoder.blocks for batch in block]

    torch.set_num_threads(1)
    assert batches(coding)[0] == 4
    assert sum(batches(coding)) == 34
    few = replace(coding, inference=ww.InferenceSpec(steps=10))
    assert batches(few) == [34]
    shared = replace(coding.inference, step=ww.LineSearch(per="batch"))
    assert batches(replace(coding, inference=shared)) == [34], "a batch has one step size"


def test_codes_of_another_model_are_an_error(run: Path, tmp_path: Path) -> None:
    """They fit, because both models have the same layers."""
    other = tiny.make(tmp_path / "other", seed=1)
    np.save(tmp_path / "bars.npy", tiny.bars(3)[0])
    codes = tmp_path / "codes.npz"
    whatwhere("encode", tmp_path / "bars.npy", run, "--out", codes, "--where", *FEW_STEPS)
    made_by = ww.load(run).checksum
    with raises(CodesOfAnotherModel, model=made_by):
        whatwhere("decode", codes, other, "--out", tmp_path / "images.npz")
    assert not (tmp_path / "images.npz").exists()
    loaded = ww.load_codes(codes)
    with raises(CodesOfAnotherModel, model=made_by):
        loaded.decode(ww.load(other), 0)
    assert loaded.decode(ww.load(run), 0).shape == (1, 10, 10)


def test_blocks_of_other_work_are_not_continued(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(5)[0])
    kept = tmp_path / ".codes.npz.blocks"
    kept.mkdir()
    (kept / "made_for").write_text("other images")
    (kept / "block0000000.npz").write_bytes(b"of other images")
    whatwhere("encode", tmp_path / "bars.npy", run, "--out", tmp_path / "codes.npz", *FEW_STEPS)
    assert len(ww.load_codes(tmp_path / "codes.npz")) == 5
    assert not kept.exists()


@pytest.mark.parametrize("harm", [b"", b"PK\x03\x04", b"half", b"flipped"])
def test_damaged_work_is_done_again(run: Path, tmp_path: Path, harm: bytes) -> None:
    """It ended with a BadZipFile, and a flipped bit came into the file."""
    out = tmp_path / "codes.npz"
    encode = ("encode", many_bars(tmp_path, 3), run, "--out", out, *FEW_STEPS, *SMALL_BLOCKS)
    errors = tmp_path / "errors.txt"
    ending = programs.Ending(signal.SIGKILL, block_name(2))
    programs.start(encode, errors, ending=ending).join(120)
    block = tmp_path / ".codes.npz.blocks" / block_name(0)
    content = bytearray(block.read_bytes())
    content[len(content) // 2] ^= 1
    block.write_bytes({b"half": bytes(content[:90]), b"flipped": bytes(content)}.get(harm, harm))
    with pytest.warns(UserWarning, match="1 file of unfinished work in .* is damaged"):
        whatwhere(*encode)
    assert len(ww.load_codes(out)) == 48


def test_work_is_kept_under_the_whole_name_of_its_file(tmp_path: Path) -> None:
    """The first 40 characters named it, so that one command removed the work of another."""
    name = "the_codes_of_all_pictures_in_the_archive_of_the_year_2011_and_of_the_years_after_"
    folders = {
        KeptBlocks(tmp_path / f"{name}{part}.npz", "").folder for part in ("test", "train", "all")
    }
    assert len(folders) == 3
    assert all(len(folder.name) < 100 for folder in folders)


# Shards -------------------------------------------------------------------------------------------


def shard_words(run: Path, images: Path, out: Path, shard: str) -> list[object]:
    return ["encode", images, run, "--out", out, "--shard", shard, *FEW_STEPS, *ONE_STEP]


def test_two_processes_write_parts_that_are_read_as_one(
    run: Path, images: Path, tmp_path: Path
) -> None:
    out = tmp_path / "codes"
    errors = [tmp_path / name for name in ("first", "second")]
    processes = [
        programs.start(shard_words(run, images, out, shard), file)
        for shard, file in zip(("1/2", "2/2"), errors, strict=True)
    ]
    for process, file in zip(processes, errors, strict=True):
        process.join(120)
        assert process.exitcode == 0, file.read_text()
    assert errors[0].read_text().splitlines()[0] == "part 1/2 of the pictures (--shard)"
    whatwhere("encode", images, run, "--out", tmp_path / "whole.npz", *FEW_STEPS, *ONE_STEP)
    joined, whole = ww.load_codes(out), ww.load_codes(tmp_path / "whole.npz")
    np.testing.assert_array_equal(joined.features, whole.features)
    np.testing.assert_array_equal(joined.labels, whole.labels)


def test_a_killed_shard_is_named_and_run_again_alone(run: Path, tmp_path: Path) -> None:
    images = many_bars(tmp_path, 6)
    out = tmp_path / "codes"
    errors = tmp_path / "errors.txt"
    whatwhere(*shard_words(run, images, out, "1/2"))
    second = shard_words(run, images, out, "2/2")
    # when the first of its blocks is complete
    ending = programs.Ending(signal.SIGKILL, block_name(1))
    killed = programs.start((*second, *SMALL_BLOCKS), errors, ending=ending)
    killed.join(120)
    assert killed.exitcode == -signal.SIGKILL, errors.read_text()
    with raises(PartMissing, shard=Shard(2, 2), begun=False):
        ww.load_codes(out)
    again = programs.start((*second, *SMALL_BLOCKS), errors)
    again.join(120)
    assert again.exitcode == 0, errors.read_text()
    codes = ww.load_codes(out)
    assert len(codes) == 96
    assert sorted(path.name for path in out.iterdir()) == [
        "part-00001-of-00002.npz",
        "part-00002-of-00002.npz",
    ]


def test_learned_steps_are_the_default_where_the_model_has_them(tmp_path: Path) -> None:
    np.save(tmp_path / "digits.npy", ww.data.load("digits").pixels[:3])
    out = ("--out", tmp_path / "codes.npz", "--where", "--overwrite", *PLAIN)
    whatwhere("encode", tmp_path / "digits.npy", "mnist", *out, *EXACT)
    model = ww.load("mnist")
    digits = ww.data.load("digits")[:3]
    learned = ww.infer(model, digits, steps="learned", engine="reference")
    codes = ww.load_codes(tmp_path / "codes.npz")
    np.testing.assert_allclose(codes.features, learned.features, atol=1e-6)
    whatwhere("encode", tmp_path / "digits.npy", "mnist", *out)
    small = ww.load_codes(tmp_path / "codes.npz")
    for i in range(3):
        error = (small.decode(model, i) - codes.decode(model, i)).square().mean()
        assert 10 * torch.log10(1 / error) > 38, "dB from the exact code"


def test_a_recipe_that_is_not_the_models_raises(run: Path, images: Path, tmp_path: Path) -> None:
    """An emptied recipe.toml would mean the paper's settings."""
    copy = shutil.copytree(run, tmp_path / "run")
    for content in ("", "seed = 1\n"):
        (copy / "recipe.toml").write_text(content)
        with raises(RunDiffers, what="recipe"):
            whatwhere("encode", images, copy, "--out", tmp_path / "codes.npz", *FEW_STEPS)


# `whatwhere decode` as a person uses it -----------------------------------------------------------


RECIPE_STEPS = ("--preset", "recipe", *PLAIN, *EXACT)


def test_codes_become_the_reconstruction(run: Path, tmp_path: Path) -> None:
    pixels, labels = tiny.bars(7)
    np.savez(tmp_path / "bars.npz", images=pixels, labels=labels)
    whatwhere(
        "encode",
        tmp_path / "bars.npz",
        run,
        "--out",
        tmp_path / "codes.npz",
        "--where",
        *RECIPE_STEPS,
    )
    whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "new" / "images.npz")
    v = torch.from_numpy(pixels)[:, None]
    expected = ww.infer(ww.load(run), v, tiny.recipe().inference, engine="reference").reconstruction
    with np.load(tmp_path / "new" / "images.npz") as images:
        np.testing.assert_allclose(images["images"], expected, atol=1e-5)
        np.testing.assert_array_equal(images["labels"], labels)


def test_codes_of_several_sizes_become_pictures(run: Path, tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "pictures").mkdir()
    for name, size in (("a.png", (9, 12)), ("b.jpg", (11, 10))):
        Image.fromarray(np.full(size, 200, np.uint8)).save(tmp_path / "pictures" / name)
    whatwhere(
        "encode",
        tmp_path / "pictures",
        run,
        "--out",
        tmp_path / "codes.npz",
        "--where",
        *RECIPE_STEPS,
    )
    whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "decoded")
    assert sorted(path.name for path in (tmp_path / "decoded").iterdir()) == [
        RECORD,
        "a.png",
        "b.png",
    ]
    codes, model = ww.load_codes(tmp_path / "codes.npz"), ww.load(run)
    names = codes.names
    assert names is not None
    for i, name in enumerate(names):
        with Image.open(tmp_path / "decoded" / f"{name[0]}.png") as picture:
            shades = torch.from_numpy(np.array(picture)).float()
        torch.testing.assert_close(
            shades / 255, codes.decode(model, i)[0].clamp(0, 1), rtol=0, atol=0.5 / 255 + 1e-6
        )
    with raises(InvalidImages, expected="one size for an .npz file of images"):
        whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / "images.npz")


def test_codes_without_pooling_variables_raise_and_leave_nothing_behind(
    run: Path, tmp_path: Path
) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(3)[0])
    whatwhere("encode", tmp_path / "bars.npy", run, "--out", tmp_path / "codes.npz", *RECIPE_STEPS)
    for out in ("images.npz", "decoded"):
        with raises(InvalidImages, remedy="Encode the images again with --where."):
            whatwhere("decode", tmp_path / "codes.npz", run, "--out", tmp_path / out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bars.npy", "codes.npz"]


def test_every_picture_has_a_file_of_its_own(run: Path, tmp_path: Path) -> None:
    """a.png and a.bmp, x/a.png and x_a.png became one file each."""
    from PIL import Image

    for names in (("a.png", "a.bmp", "A.png"), ("x/a.png", "y/x_a.png", "y/b.png")):
        folder = tmp_path / f"pictures{len(names[0])}"
        for i, name in enumerate(names):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.full((9, 12), 60 * i, np.uint8)).save(folder / name)
        whatwhere("encode", folder, run, "--out", folder / "codes.npz", "--where", *RECIPE_STEPS)
        whatwhere("decode", folder / "codes.npz", run, "--out", folder / "decoded")
        assert len(list((folder / "decoded").glob("*.png"))) == 3
    assert picture_names(["a.png", "a.bmp"]) == ["0_a.png", "1_a.png"]
    assert picture_names(["x/a.png", "x_a.png"]) == ["0_x_a.png", "1_x_a.png"]
    assert picture_names(["../../etc/a.png", "b\0.png"]) == [".._.._etc_a.png", "b_.png"]


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (4, 2, 3)])
def test_a_png_holds_the_pixels(shape: tuple[int, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = torch.randint(
        0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    read = np.asarray(image.open(io.BytesIO(png(pixels))))
    assert np.array_equal(read, pixels.numpy())


# `ww.codes.write_codes`, the public writer --------------------------------------------------------


FEW = ww.InferenceSpec(steps=2)


def test_the_writer_leaves_complete_codes_and_refuses_those_of_other_images(
    run: Path, tmp_path: Path
) -> None:
    """58 of 60 images and all labels were other ones, and the first and the last the same."""
    model = ww.load(run)
    pixels, labels = tiny.bars(60)
    file = tmp_path / "codes.npz"
    options = ww.codes.EncodeOptions(exact=True)

    def write(pixels: np.ndarray, labels: np.ndarray, **how: bool) -> ww.codes.Codes:
        images = ww.data.load(pixels, labels)
        return ww.codes.write_codes(file, model, images, FEW, options=options, **how)

    codes = write(pixels, labels)
    written = file.stat().st_mtime_ns
    expected = ww.infer(model, torch.from_numpy(pixels)[:, None], FEW).features
    np.testing.assert_allclose(codes.features, expected, atol=1e-6)
    write(pixels, labels)
    assert file.stat().st_mtime_ns == written, "they are complete"
    other = pixels.copy()
    other[1:-1] = 0
    for changed in ((other, labels), (pixels, labels + 1)):
        with raises(OtherCodes, difference=Containing("other pictures")):
            write(*changed)
    assert write(other, labels, overwrite=True).features[1].sum() == 0


def test_the_writer_asks_before_it_replaces_a_file(run: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "bars.npy", tiny.bars(3)[0])
    (tmp_path / "mine.npz").write_bytes(b"mine")
    with raises(CannotWrite, reason="exists"):
        ww.codes.write_codes(tmp_path / "mine.npz", ww.load(run), tmp_path / "bars.npy", FEW)
    with raises(CannotWrite, reason="read"):
        ww.codes.write_codes(
            tmp_path / "bars.npy", ww.load(run), tmp_path / "bars.npy", FEW, overwrite=True
        )
