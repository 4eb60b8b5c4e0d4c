"""A small training gives the same filters, to the bit, whatever happens to the code around the numerics.

The hashes may change only with a deliberate change of the numerics (say so in CHANGELOG.md) or with another version of
torch or Numba. They belong to one kind of machine: elsewhere the test is skipped by name.
"""

import hashlib
import platform

import pytest
import torch

from whatwhere.data import load
from whatwhere.learning import TrainingOptions, train
from whatwhere.spec import EveryEpoch, InferenceSpec, LearningSpec, LineSearch, ModelSpec, Recipe

RECORDED_ON = ("Linux", "aarch64", "2.13.0+cpu", "DEFAULT")
HASHES = {
    "reference": "416348c5a50621694e07695ee47cfcae5d7a6ca2538eab2836b8817877b9a39d",
    "cpu": "3e57ffdb100d0326d80b9ed35fd7db98774dbe7730a5308123c3e621e2225530",
}


def this_machine() -> tuple[str, ...]:
    return platform.system(), platform.machine(), torch.__version__, torch.backends.cpu.get_cpu_capability()


@pytest.mark.skipif(this_machine() != RECORDED_ON, reason="the hashes were recorded on another kind of machine")
@pytest.mark.parametrize("engine", HASHES)
def test_a_small_training_gives_the_same_bits(engine: str) -> None:
    inference = InferenceSpec(lam=2.0, alpha=0.5, steps=5, step=LineSearch(per="batch"))
    learning = LearningSpec(inference=inference, epochs=2, update=EveryEpoch(reset_at=(1,)))
    recipe = Recipe(model=ModelSpec.paper(), learning=(learning, learning), batch_size=8, seed=0)
    options = TrainingOptions(engine=engine, device="cpu")
    model = train(recipe, load("digits", split="train")[slice(0, 20)], options=options).model
    digest = hashlib.sha256()
    for f in model.filters:
        digest.update(f.contiguous().numpy().tobytes())
    assert digest.hexdigest() == HASHES[engine]
