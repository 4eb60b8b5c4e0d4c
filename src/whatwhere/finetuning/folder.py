"""What fine-tuning leaves, as a folder that every command reads like that of a run.

model.safetensors          the fine-tuned model
inference-5.safetensors    its steps, for `infer(…, steps="learned")`
recipe.toml                the recipe of the run that it began with
head.safetensors           weights of the linear head, classes, descriptor
finetuning.jsonl           one line for each pass over the labelled images
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import numpy as np

from whatwhere.errors import RunError, SpecError, printable
from whatwhere.files import disk_errors, is_regular, write_atomic
from whatwhere.finetuning.classifier import SparseCodeClassifier
from whatwhere.finetuning.tuned import FinetunedModel, FinetuneEpoch
from whatwhere.inference import LearnedSteps
from whatwhere.model import load, save
from whatwhere.model.files import canonical, checksum, model_checksum, read_tensors, readable, to_bytes
from whatwhere.nn import SparseCode2d
from whatwhere.spec import DescriptorSpec, Recipe
from whatwhere.spec.toml import build, to_toml

FORMAT = "whatwhere head 1"
HEAD, HISTORY = "head.safetensors", "finetuning.jsonl"


def check_unused(folder: Path) -> None:
    """Raise if the folder holds a model already: it is not overwritten."""
    for name in ("model.safetensors", HEAD):
        if os.path.lexists(folder / name):
            raise RunError(f"{printable(folder)} holds {name} already; choose another folder")


def save_finetuned(tuned: FinetunedModel, folder: str | os.PathLike[str], recipe: Recipe) -> Path:
    """Write the folder of a fine-tuned model.

    recipe  of the run that it began with
    """
    folder = Path(folder)
    check_unused(folder)
    model, network = tuned.model, tuned.network
    tensors = {f"head.{name}": tensor.detach().cpu() for name, tensor in network.head.state_dict().items()}
    facts = {
        "classes": [int(label) for label in tuned.classes],
        "descriptor": asdict(network.descriptor),
        "floor": network.floor,
        "model": model_checksum(model),
        "steps": network.coder.settings.steps,
    }
    text = canonical(facts)
    with disk_errors(f"writing {printable(folder)}", "make room or choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        save(model, folder / "model.safetensors")
        tuned.steps.save(folder)
        write_atomic(folder / "recipe.toml", to_toml(recipe).encode())
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in tuned.history)
        write_atomic(folder / HISTORY, lines.encode())
        metadata = {"format": FORMAT, "sha256": checksum(text, tensors), "facts": text}
        write_atomic(folder / HEAD, to_bytes(tensors, metadata))
    return folder


def load_finetuned(folder: str | os.PathLike[str]) -> FinetunedModel:
    """Read the folder that fine-tuning wrote: a classifier that is ready to use, on the CPU.

    folder  of the fine-tuned model

    >>> model, digits = ww.load("mnist"), ww.data.load("digits")
    >>> few = digits.subset(ww.data.few_labels(digits.labels, 10, seed=0))
    >>> spec = ww.FinetuneSpec(steps=1, distill=0, epochs=1, least_updates=0)
    >>> tuned = ww.finetune(model, few, spec=spec, out="runs/tuned")
    >>> (load_finetuned("runs/tuned").predict(digits[:2]) == tuned.predict(digits[:2])).all()
    np.True_
    """
    folder = Path(folder)
    file = folder / HEAD
    if not is_regular(file):
        raise RunError(f"{printable(folder)} was given as a fine-tuned model; there is no {HEAD} in it")
    model = load(folder)
    with readable(file, "head", "copy it again, or fine-tune again"):
        metadata, tensors = read_tensors(file)
        if metadata.get("format") != FORMAT:
            raise SpecError(f"it holds {metadata.get('format')!r}; expected {FORMAT!r}")
        if metadata["sha256"] != checksum(metadata["facts"], tensors):
            raise SpecError("its checksum does not match its content")
        facts = json.loads(metadata["facts"])
        if facts["model"] != model_checksum(model):
            raise SpecError("it belongs to another model than the one next to it")
        steps = LearnedSteps.load(folder, facts["steps"])
        model = steps.model_for(model)
        coder = SparseCode2d.from_model(model, len(steps), steps.spec, untied=not model.tied)
        weight, classes = tensors["head.weight"], np.array(facts["classes"])
        descriptor = build(DescriptorSpec, facts["descriptor"])
        network = SparseCodeClassifier(
            coder, descriptor, length=weight.shape[1], classes=len(classes), floor=float(facts["floor"])
        )
        network.head.load_state_dict({"weight": weight, "bias": tensors["head.bias"]})
    return FinetunedModel(network.eval(), classes, read_history(folder / HISTORY))


def read_history(path: Path) -> tuple[FinetuneEpoch, ...]:
    """The passes of a fine-tuning; empty if there is no such file."""
    if not is_regular(path):
        return ()
    return tuple(FinetuneEpoch(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines())
