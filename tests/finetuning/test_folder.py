"""A fine-tuned model as a folder: what is loaded is what was saved, and every command can read it."""

from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_finetuning import RECIPE, bars, model, settings
from whatwhere.errors import RunError
from whatwhere.finetuning import finetune, load_finetuned
from whatwhere.inference import infer
from whatwhere.learning import read_run
from whatwhere.model import save


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    images, labels = bars(12)
    folder = tmp_path / "tuned"
    tuned = finetune(model(), images, labels, settings(epochs=2, distill=2), folder, recipe=RECIPE, device="cpu")
    loaded = load_finetuned(folder)
    # sizes are stored as numbers and learned as logarithms
    assert np.allclose(loaded.decision(images), tuned.decision(images), rtol=1e-4, atol=1e-5)
    assert loaded.history == tuned.history
    assert loaded.classes.tolist() == [3, 7]
    run = read_run(folder)
    assert run.model == tuned.model.with_upward(None)
    assert run.recipe == RECIPE
    learned, expected = infer(run.model, images, steps="learned"), infer(tuned.model, images, tuned.inference)
    assert torch.equal(learned.features, expected.features)


def test_a_folder_that_is_used_or_damaged_is_an_error(tmp_path: Path) -> None:
    images, labels = bars(4)
    finetune(model(), images, labels, settings(epochs=1), tmp_path / "a", recipe=RECIPE, device="cpu")
    with pytest.raises(RunError, match=r"holds model\.safetensors already"):
        finetune(model(), images, labels, settings(epochs=1), tmp_path / "a", recipe=RECIPE, device="cpu")
    with pytest.raises(RunError, match=r"there is no head\.safetensors in it"):
        load_finetuned(tmp_path)
    head = tmp_path / "a" / "head.safetensors"
    content = head.read_bytes()
    head.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(RunError, match="checksum does not match"):
        load_finetuned(tmp_path / "a")
    head.write_bytes(content)
    save(model(1), tmp_path / "a" / "model.safetensors")
    with pytest.raises(RunError, match="belongs to another model"):
        load_finetuned(tmp_path / "a")
