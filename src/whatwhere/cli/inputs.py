"""What commands receive: a run folder or a model file, a source of images, labelled images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from whatwhere.data import Images
    from whatwhere.model import DeconvNet
    from whatwhere.spec import InferenceSpec, Recipe


def open_run(run: Path, device: str) -> tuple[Recipe, DeconvNet]:
    """The recipe and the model of a run folder, a model file or a name, on a device ('auto': a GPU if there is one)."""
    from whatwhere.learning import read_run
    from whatwhere.learning.distributed import choose_device

    home = choose_device(device)
    trained = read_run(run)
    return trained.recipe, trained.model.to(home)


def inference_settings(recipe: Recipe, preset: str, changes: list[str]) -> InferenceSpec:
    """The settings of inference of a run by --preset, with those of --set changed."""
    from dataclasses import replace

    from whatwhere.errors import SpecError
    from whatwhere.spec.inference import CODING
    from whatwhere.spec.toml import override

    spec = replace(recipe.inference, **CODING) if preset == "coding" else recipe.inference
    for change in changes:
        table = parse_change(change)
        if not isinstance(table.get("inference"), dict) or len(table) > 1:
            raise SpecError(f"--set {change[:80]!r} was given; expected a setting of inference, as inference.lam=2")
        spec = override(spec, table["inference"], "inference.")
    return spec


def learned_settings(model: DeconvNet, steps: str, changes: list[str]) -> tuple[DeconvNet, InferenceSpec]:
    """The model and the settings for the learned steps next to it, which --set does not change."""
    from whatwhere.errors import SpecError
    from whatwhere.inference.learned_steps import resolve_steps

    if changes:
        raise SpecError(f"--set {changes[0][:80]!r} was given with --steps {steps}; learned steps have their settings")
    return resolve_steps(model, steps)


def open_model(name: str, device: str) -> DeconvNet:
    """A model by its name, or of a run folder or a model file."""
    from whatwhere.learning import load
    from whatwhere.learning.distributed import choose_device

    return load(name).to(choose_device(device))


def source_of(run: Path) -> str:
    """The images that a run was trained on, where it recorded them, or those for a model that is known by name.

    Otherwise the included digits.
    """
    from whatwhere.data.models import example_images
    from whatwhere.learning.storage import has_checkpoint

    if run.is_dir() and has_checkpoint(run / "checkpoint"):
        return str(notes_of(run).get("source", "digits"))
    return example_images(run)


def notes_of(folder: Path) -> dict[str, Any]:
    """What the command that began a run was given."""
    from whatwhere.learning.run_folder import RunFolder

    return RunFolder(folder).read().notes


def absolute_source(source: str) -> str:
    """The source as a run records it: a name of a data set as it is, a path in full."""
    from whatwhere.data.catalogue import CATALOGUE

    return source if source in CATALOGUE else str(Path(source).absolute())


def absolute_mask(mask: str) -> str:
    """The mask as a run records it: a file in full, `alpha` and `nan` as they are."""
    return mask if mask in ("alpha", "nan") else absolute_source(mask)


def labelled(images: Images, option: str) -> Images:
    """The same images; raises an error if they have no labels."""
    from whatwhere.errors import ImageError

    if images.labels is None:
        raise ImageError(f"{images.name} has no labels; give them with {option}, an IDX or .npy file")
    return images


def parse_change(change: str) -> dict[str, Any]:
    """KEY=VALUE as a parsed TOML table; a word as the value needs no quotes."""
    from whatwhere.errors import SpecError
    from whatwhere.spec.toml import parse_toml

    key, _, value = change.partition("=")
    for text in (f"{key} = {value}", f"{key} = {value!r}"):
        try:
            return parse_toml(text, "--set")
        except SpecError:
            continue
    raise SpecError(f"--set {change[:80]!r} was given; expected KEY=VALUE, such as --set learning.each.epochs=5")
