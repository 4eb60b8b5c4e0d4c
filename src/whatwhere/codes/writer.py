"""The public writer of codes: it checks what it writes over, continues what a stopped process left,
and leaves a file alone that is complete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from whatwhere.codes.encoder import Encoder, record_of
from whatwhere.codes.files import Codes, load_codes, made_of
from whatwhere.codes.settings import EncodeOptions
from whatwhere.data import Source, load_groups
from whatwhere.data.mixed import NOT_RECORDED, Group, Recorded
from whatwhere.data.parts import check_next_part, read_record
from whatwhere.errors import RunError, printable
from whatwhere.files import claim, input_files
from whatwhere.inference import resolve_lam
from whatwhere.model import DeconvNet
from whatwhere.spec import AutoLam, InferenceSpec, Phase, Recipe
from whatwhere.spec.execution import ALL, Shard

_USUAL = EncodeOptions()


def write_codes(
    path: str | os.PathLike[str],
    model: DeconvNet,
    images: Source,
    spec: InferenceSpec | None = None,
    plan: Sequence[Phase] = (),
    *,
    mask: Source | None = None,
    options: EncodeOptions = _USUAL,
    engine: str = "auto",
    shard: Shard = ALL,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Codes:
    """Infer images, any number of any sizes, and write their codes to a file.

    The file grows block by block in a hidden folder beside it, so memory does not grow with the
    number of images. If the process is stopped, the same call continues after the last block. A
    file that has these codes already stays as it is.

    Parameters
    ----------
    path
        the .npz file to write; with a shard of several, the folder for the parts
    model
        the model, on the device where inference is to run
    images
        as in `ww.data.load_groups`: a folder of pictures, a file, a name or an array
    spec
        how to infer; None means `InferenceSpec.coding()`, converged codes
    plan
        phases, as in `ww.infer`
    mask
        known pixels, as in `ww.data.load_groups`
    options
        what is written; pooling variables only with `EncodeOptions(where=True)`
    engine
        as in `ww.infer`
    shard
        the part of the images to encode
    overwrite
        replace other codes, or another file, of this name
    progress
        called with the number of pieces just done: images, or tiles of large ones

    Examples
    --------
    >>> images = ww.data.load("digits").pixels[:3]
    >>> few = ww.InferenceSpec(steps=2)
    >>> codes = ww.codes.write_codes("codes.npz", ww.load("mnist"), images, few)
    >>> codes.features.shape
    (3, 48, 10, 10)
    """
    recipe = replace(
        Recipe.paper(model.spec), inference=spec or InferenceSpec.coding(), plan=tuple(plan)
    )
    codes = open_codes_file(
        Path(path),
        recipe,
        model,
        (images, mask),
        options=options,
        engine=engine,
        shard=shard,
        overwrite=overwrite,
    )
    if not codes.is_complete:
        codes.encoder.write(codes.file, progress or (lambda pieces: None))
    return load_codes(codes.file)


@dataclass(frozen=True)
class CodesFile:
    """A file of codes that may be written.

    Parameters
    ----------
    file
        the file
    encoder
        what writes it
    title
        the images in words
    is_complete
        whether it has these codes already
    """

    file: Path
    encoder: Encoder
    title: str
    is_complete: bool


def open_codes_file(
    out: Path,
    recipe: Recipe,
    model: DeconvNet,
    sources: tuple[Source, Source | None],
    *,
    options: EncodeOptions,
    engine: str,
    shard: Shard,
    overwrite: bool,
    recorded: Recorded = NOT_RECORDED,
    inputs: Iterable[Path] = (),
    hint: str = "",
) -> CodesFile:
    """Read the images, and check that the file may be written, before any work.

    Codes of other images, of another model or with other settings raise a RunError.

    Parameters
    ----------
    sources
        the images and the mask
    recorded
        what the run of the model recorded about its images
    inputs
        other files that are read, such as a run
    hint
        a sentence about other settings, for that error
    """
    file = shard.part_of(out, ".npz")
    # The model and the settings that a file records show whether it may be complete already.
    may_be_complete = not overwrite and _may_have_written(file, recipe, model, options, hint)
    read = [*inputs, *(Path(source) for source in sources if isinstance(source, str | Path))]
    claim([] if may_be_complete else [file], input_files(*read), overwrite=overwrite)
    groups, recipe = _read_groups(*sources, recorded, recipe, model, shard)
    encoder = Encoder(recipe, model, groups, options, engine, shard)
    if not overwrite:
        check_next_part(file.parent, shard, encoder.record, hint)
    if may_be_complete and not encoder.has_written(file):
        raise _exists_already(file, "other pictures, or pictures that changed since")
    title = groups[0][0].name
    if len(groups) > 1:
        title = f"{printable(sources[0])} ({len(groups)} sizes or kinds)"
    return CodesFile(file, encoder, title, may_be_complete)


def _may_have_written(
    file: Path | None, recipe: Recipe, model: DeconvNet, options: EncodeOptions, hint: str
) -> bool:
    """Tell whether a file of codes exists that this command may have written. Codes of another
    model or of other settings raise a RunError; a λ that is still to be chosen from the images is
    not compared.

    Parameters
    ----------
    hint
        a sentence about other settings
    """
    if file is None or not os.path.isfile(file) or not made_of(file):
        return False
    record = record_of(recipe, model, options)
    if isinstance(recipe.inference.lam, AutoLam):
        record = replace(record, settings="")
    if words := record.other_source(read_record(file)):
        raise _exists_already(file, words, hint)
    return True


class OtherCodes(RunError):
    """Codes that exist already, but do not belong to this command.

    Attributes
    ----------
    path
        the file
    difference
        what they were made with instead, as a clause
    hint
        what to do about other settings, in sentences; may be empty
    """

    def __init__(self, path: Path, difference: str, hint: str = "") -> None:
        self.path = path
        self.difference = difference
        self.hint = hint.strip()
        super().__init__(
            f"{printable(path)} exists already, and was made with {difference}. Choose another"
            f" path, or replace it with --overwrite.{hint}"
        )


def _exists_already(file: Path, words: str, hint: str = "") -> RunError:
    """Make the error for codes that exist already, but do not belong to this command.

    Parameters
    ----------
    words
        what they were made with instead
    hint
        a sentence about other settings
    """
    return OtherCodes(file, words, hint)


def _read_groups(
    source: Source,
    mask: Source | None,
    recorded: Recorded,
    recipe: Recipe,
    model: DeconvNet,
    shard: Shard,
) -> tuple[list[Group], Recipe]:
    """Read the images of a shard and their masks; the recipe gets λ as a number."""
    read = partial(load_groups, source, mask, recorded, signals=model.spec.for_signals)
    groups = read(shard=shard)
    # If λ is chosen from the images, it is chosen from the images of all shards.
    by_images = isinstance(recipe.inference.lam, AutoLam) and not shard.is_all
    seen = read() if by_images else groups
    most, masks = max(seen, key=lambda group: len(group[0]))
    inference = resolve_lam(model, most, recipe.inference, recipe.plan, mask=masks)
    return groups, replace(recipe, inference=inference)
