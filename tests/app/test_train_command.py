"""`whatwhere train` as a person uses it: options, a live display, Ctrl-C, going on."""

import json
import os
import pty
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tiny_training as tiny
from raising import Containing, raises
from whatwhere.app import app, main
from whatwhere.app.train import stop_on_signal
from whatwhere.engines.devices import UnknownDevice
from whatwhere.errors import EngineError, InvalidSetting, NoSuchImages, ReportedError, SpecError
from whatwhere.learning import train
from whatwhere.learning.processes import processes_line
from whatwhere.learning.run_folder import RunDiffers, RunExists
from whatwhere.model import load
from whatwhere.spec.toml import read_recipe, to_toml


@pytest.fixture
def images(tmp_path) -> Path:
    np.save(tmp_path / "images.npy", tiny.images().numpy())
    return tmp_path / "images.npy"


@pytest.fixture
def recipe(tmp_path) -> Path:
    (tmp_path / "recipe.toml").write_text(to_toml(tiny.recipe()))
    return tmp_path / "recipe.toml"


def whatwhere(*arguments) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


OPTIONS = ("--set", "engine=reference", "--device", "cpu")


def test_a_run_and_its_plain_lines(images, recipe, tmp_path):
    out = tmp_path / "run"
    said = whatwhere(
        "train", images, "--out", out, "--recipe", recipe, "--set", "store=file", *OPTIONS
    )
    lines = said.splitlines()
    assert (
        lines[0]
        == "engine reference; costs and non-zeros per image, cost = reconstruction + penalty"
    )
    assert lines[1].startswith("layer 1  epoch 1/2  cost ")
    assert all(word in lines[1] for word in (" + ", "non-zeros", "dead map", "image-iterations/s"))
    assert len(lines) == 6
    assert lines[-1] == f"{out}/model.safetensors"
    assert read_recipe(out / "recipe.toml") == tiny.recipe()
    assert load(out / "model.safetensors").spec == tiny.recipe().model


def test_a_mask_is_used_and_recorded(images, recipe, tmp_path):
    v = tiny.images()
    known = torch.rand(v.shape, generator=torch.Generator().manual_seed(0)) > 0.3
    np.save(tmp_path / "mask.npy", known.numpy())
    run = tmp_path / "run"
    arguments = ("--recipe", recipe, "--limit", 3, "--mask", tmp_path / "mask.npy", *OPTIONS)
    whatwhere("train", images, "--out", run, *arguments)
    expected = train(v[:3], tiny.recipe(), mask=known[:3].float(), options=tiny.OPTIONS).model
    assert load(run / "model.safetensors") == expected
    assert expected != train(v[:3], tiny.recipe(), options=tiny.OPTIONS).model
    # reads the mask that it began with
    whatwhere("train", "--resume", run, "--set", "learning.2.epochs=3")
    (tmp_path / "mask.npy").unlink()
    with raises(NoSuchImages, path=Containing("mask.npy")):
        whatwhere("train", "--resume", run)


def test_quiet_says_nothing(images, recipe, tmp_path):
    assert (
        whatwhere(
            "train", images, "--out", tmp_path / "run", "--recipe", recipe, "--quiet", *OPTIONS
        )
        == ""
    )


def test_settings_are_changed_by_name(images, recipe, tmp_path):
    out = tmp_path / "run"
    changes = (
        "--set",
        "learning.each.epochs=1",
        "--set",
        "learning.2.inference.step.per=image",
        "--limit",
        3,
    )
    whatwhere("train", images, "--out", out, "--recipe", recipe, *changes, *OPTIONS)
    written = read_recipe(out / "recipe.toml")
    assert [spec.epochs for spec in written.learning] == [1, 1]
    assert [spec.inference.step.per for spec in written.learning] == ["batch", "image"]
    assert json.loads((out / "history.jsonl").read_text().splitlines()[0])["images"] == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("learning.each.epoch=1", "Did you mean 'learning.each.epochs'"),
        ("a b=1", "expected NAME=VALUE"),
    ],
)
def test_a_bad_setting_raises_an_error_that_names_it(change, message, images, tmp_path):
    with pytest.raises(SpecError, match=message):
        whatwhere("train", images, "--out", tmp_path / "run", "--set", change)


def test_where_to_is_asked_for(images):
    result = CliRunner().invoke(app, ["train", str(images)])
    assert result.exit_code == 2
    assert "--out" in result.output


def test_a_rejected_command_leaves_nothing_behind(images, recipe, tmp_path):
    with pytest.raises(EngineError):
        whatwhere(
            "train", images, "--out", tmp_path / "run", "--recipe", recipe, "--set", "engine=warp"
        )
    assert not (tmp_path / "run").exists()


def test_mistakes_show_before_the_images_are_read(images, recipe, tmp_path, monkeypatch):
    out = tmp_path / "run"
    whatwhere("train", images, "--out", out, "--recipe", recipe, *OPTIONS)

    def read(*source, **more):
        raise AssertionError("the images are read")

    monkeypatch.setattr("whatwhere.data.load_for_training", read)
    with raises(RunExists, finished=True):
        whatwhere("train", images, "--out", out)
    with raises(InvalidSetting, given={"length": "8mm"}):
        whatwhere("train", images, "--out", tmp_path / "new", "--length", "8mm")
    with raises(UnknownDevice, given="nonsense"):
        whatwhere("train", images, "--out", tmp_path / "new", "--device", "nonsense")
    both = ("--recipe", "signals", "--waveforms", "2")
    refused = CliRunner().invoke(app, ["train", str(images), "--out", str(tmp_path / "new"), *both])
    assert "do not work with --recipe" in refused.output


def test_torchrun_is_reported_and_in_the_command_that_continues(
    images, recipe, tmp_path, monkeypatch
):
    """Only the first process prints an error that all of them find."""
    out = tmp_path / "run"
    whatwhere("train", images, "--out", out, "--recipe", recipe, *OPTIONS)
    (out / "history.jsonl").write_text("")
    variables = {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "0"}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    threads = "1 thread" if torch.get_num_threads() == 1 else f"{torch.get_num_threads()} threads"
    assert processes_line() == f"4 processes (torchrun) on 2 machines, {threads} each"
    command = "torchrun --nnodes 2 --nproc-per-node 2 -m whatwhere train --resume"
    with raises(RunExists, remedy=Containing(command)) as first:
        whatwhere("train", images, "--out", out)
    assert not isinstance(first.value, ReportedError)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ReportedError):
        whatwhere("train", images, "--out", out)


def test_a_finished_run_is_given_more_epochs(images, recipe, tmp_path):
    out = tmp_path / "run"
    whatwhere("train", images, "--out", out, "--recipe", recipe, *OPTIONS)
    whatwhere("train", "--resume", out, "--set", "learning.2.epochs=3", "--set", "inference.lam=7")
    written = read_recipe(out / "recipe.toml")
    assert (written.learning[1].epochs, written.inference.lam) == (3, 7.0)
    assert len((out / "history.jsonl").read_text().splitlines()) == 5


def test_an_emptied_recipe_is_not_the_papers_on_resume(images, recipe, tmp_path):
    whatwhere("train", images, "--out", tmp_path / "run", "--recipe", recipe, *OPTIONS)
    (tmp_path / "run" / "recipe.toml").write_text("")
    with raises(RunDiffers, difference=Containing("batch_size was 2 and is now 1000")):
        whatwhere("train", "--resume", tmp_path / "run")


def test_one_layer_by_set(images, recipe, tmp_path):
    changes = ("--set", "model.layers=[{maps=2, filter_size=2}]", "--set", "learning.each.epochs=1")
    whatwhere("train", images, "--out", tmp_path / "run", "--recipe", recipe, *changes, *OPTIONS)
    assert load(tmp_path / "run" / "model.safetensors").spec.depth == 1


def test_a_second_interrupt_ends_it_at_once():
    before = signal.getsignal(signal.SIGINT)
    with stop_on_signal() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_changed_recipe_file_raises(images, recipe, tmp_path):
    out = tmp_path / "run"
    whatwhere("train", images, "--out", out, "--recipe", recipe, *OPTIONS)
    text = (out / "recipe.toml").read_text()
    (out / "recipe.toml").write_text(text.replace("lam = 2.0", "lam = 2.5", 1))
    with raises(RunDiffers, difference=Containing("lam was 2.0 and is now 2.5")):
        whatwhere("train", "--resume", out)


def in_a_terminal(arguments: list[str], output: Path) -> None:
    """Run the command in a terminal of its own, and keep what it shows."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS="120", LINES="30")
        sys.argv = ["whatwhere", *arguments]
        # as in this process: the same bits need the same number of threads
        torch.set_num_threads(1)
        main()
        os._exit(0)
    asked = False
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
        if b"batch " in shown and b"image-iterations/s" in shown and not asked:
            asked = True
            os.kill(child, signal.SIGINT)
    _, status = os.waitpid(child, 0)
    output.write_bytes(shown)
    sys.exit(os.waitstatus_to_exitcode(status))


def test_ctrl_c_keeps_a_checkpoint_and_resume_goes_on(images, recipe, tmp_path):
    out, shown = tmp_path / "run", tmp_path / "shown"
    # long compared with the 0.25 s from frame to frame
    recipe.write_text(to_toml(tiny.recipe(epochs=15)))
    arguments = ["train", str(images), "--out", str(out), "--recipe", str(recipe), *OPTIONS]
    process = tiny.process(in_a_terminal, arguments, shown)
    process.join(60)
    text = shown.read_bytes().decode()
    assert process.exitcode == 130, text
    assert f"whatwhere train --resume {out}" in text.replace("\r\n", "")
    for shows in (r"epoch \d+/15, batch ", "cost ", "non-zeros"):
        assert re.search(shows, text), f"the live display shows {shows!r}"
    assert len((out / "history.jsonl").read_text().splitlines()) < 2 * 15, (
        "it stopped before the end"
    )
    whatwhere("train", "--resume", out, "--quiet", *OPTIONS)
    whatwhere(
        "train",
        images,
        "--out",
        tmp_path / "uninterrupted",
        "--recipe",
        recipe,
        "--quiet",
        *OPTIONS,
    )
    assert tiny.same_filters(
        load(out / "model.safetensors"), load(tmp_path / "uninterrupted" / "model.safetensors")
    )
