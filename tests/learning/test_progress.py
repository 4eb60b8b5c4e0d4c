"""How training proceeds, as a person sees it: the live display, plain lines, the estimate of the time left."""

import io

import pytest
from rich.console import Console

import tiny_training as tiny
import whatwhere.learning.progress
from whatwhere.learning import BatchReport, TrainingStopped, train
from whatwhere.learning.progress import TrainingProgress, rate


def batch_report(batch: int, epoch: int = 1) -> BatchReport:
    return BatchReport(1, epoch, 2, batch, 2, images=10, steps=5, reconstruction=1.0, penalty=0.5, nonzeros=3.0)


def shown(progress: TrainingProgress) -> str:
    """The live display as text."""
    console = Console(file=io.StringIO(), width=200)
    console.print(progress.display.get_renderable())
    return console.file.getvalue()


def test_the_live_display_follows_training():
    progress = TrainingProgress(tiny.recipe(), 4, quiet=True)  # two batches of two images
    assert "starting" in shown(progress)
    progress.on_batch(batch_report(1))
    assert "layer 1 of 2, epoch 1/2  batch 1/2" in shown(progress)
    assert "cost 1.5 = 1 + 0.5" in shown(progress)


def test_the_time_left_is_estimated_from_image_iterations(monkeypatch):
    now = 100.0
    progress = TrainingProgress(tiny.recipe(steps=5), 20, quiet=True)  # two layers of two epochs: 4 × 100
    monkeypatch.setattr(progress.display, "get_time", lambda: now)
    progress.display.start_task(progress.task)
    progress.on_batch(batch_report(1))
    assert "image-iterations/s" not in shown(progress), "the first batch only starts the clock"
    now += 2.0
    progress.on_batch(batch_report(2))
    task = progress.display.tasks[progress.task]
    assert task.speed == 25.0
    assert task.time_remaining == (400 - 100) / 25


def test_a_resumed_epoch_begins_at_its_batch(tmp_path):
    calls = iter([False, True])
    with pytest.raises(TrainingStopped):
        tiny.train(tiny.recipe(), tiny.images(), tmp_path, stop=lambda: next(calls))
    batches = []
    tiny.train(tiny.recipe(), tiny.images(), tmp_path, resume=True, on_batch=batches.append)
    assert (batches[0].layer, batches[0].epoch, batches[0].batch) == (1, 1, 3)


def test_train_shows_progress_in_a_script(capsys):
    train(tiny.recipe(), tiny.images(), progress=True, options=tiny.OPTIONS)
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("layer ") for line in lines) == 4
    assert "epoch 2/2" in lines[-1]
    train(tiny.recipe(), tiny.images(), options=tiny.OPTIONS)
    assert capsys.readouterr().err == ""


def test_a_long_epoch_is_reported_on_the_way(capsys, monkeypatch):
    monkeypatch.setattr(whatwhere.learning.progress, "LINE_EVERY", 0.0)
    train(tiny.recipe(epochs=1), tiny.images(), progress=True, options=tiny.OPTIONS)
    assert "layer 1  epoch 1/1  batch 2/3  cost" in capsys.readouterr().err


def test_square_brackets_in_a_line_are_text(capsys):
    TrainingProgress(tiny.recipe(), 4).log("latents in /data/[/b]")
    assert capsys.readouterr().err == "latents in /data/[/b]\n"


def test_numbers_are_written_for_people():
    assert rate(3_210_000) == "3.21M image-iterations/s"
    assert rate(12) == "12 image-iterations/s"
