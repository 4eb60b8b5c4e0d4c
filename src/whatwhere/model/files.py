"""Models as safetensors files: filters, connectivity, and the spec inside; nothing is pickled.

A checksum covers the spec and every tensor.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from whatwhere.errors import DamagedFilters, NoSuchRun, SpecError
from whatwhere.files import (
    FileFields,
    check_format,
    checked,
    claim,
    open_regular,
    readable,
    untrusted,
    write_atomic,
)
from whatwhere.model.checksums import (
    canonical,
    checksum,
    layer_tensors,
    spec_fields,
    spec_of_fields,
)
from whatwhere.model.deconvnet import DeconvNet
from whatwhere.spec.checks import require

FORMAT = "whatwhere model 2"
FILE_NAME = "model.safetensors"  # of the model in a run's folder


def save(model: DeconvNet, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a model; the file appears complete or not at all.

    Parameters
    ----------
    model
        the model
    path
        path of the file, usually NAME.safetensors. A file that whatwhere wrote is replaced
    overwrite
        also replace a file that something else wrote

    Examples
    --------
    >>> model = ww.DeconvNet(ww.ModelSpec.paper(), seed=0)
    >>> ww.save(model, "model.safetensors")
    >>> ww.load("model.safetensors") == model
    True
    """
    require(
        isinstance(model, DeconvNet),
        {"model": model},
        "a DeconvNet (the `model` of a run or a layer)",
    )
    tensors = model_tensors(model)
    write_checked(
        Path(path), FORMAT, spec_fields(model.spec), tensors, key="spec", overwrite=overwrite
    )


def load(path: str | os.PathLike[str]) -> DeconvNet:
    """Read a model that `save` wrote, from its file or from the folder of a run.

    Raises a RunError if the file is damaged, has another format, or has tensors that do not match
    its spec.

    Parameters
    ----------
    path
        path of a model file or of a run folder

    Returns
    -------
    DeconvNet
        the model, on the CPU; its `source` is the file

    Examples
    --------
    >>> model = ww.load("mnist")
    >>> model.spec.depth
    2
    """
    path = model_file(path)
    with readable(path, "model file", "copy it again, or train again"):
        fields, tensors = read_checked(path, FORMAT, key="spec")
        with untrusted():  # tables of any types
            spec = spec_of_fields(fields)
        layers = range(1, spec.depth + 1)
        filters = [tensors.pop(f"layer{k}.filters") for k in layers]
        connectivity = [tensors.pop(f"layer{k}.connectivity") for k in layers]
        if tensors:
            raise SpecError(f"no layer has the tensor {min(tensors)!r}")
        model = DeconvNet.from_parts(spec, filters, connectivity, source=path)
    for k, f in enumerate(model.filters, start=1):
        if not f.isfinite().all():
            raise DamagedFilters(k, str(path))
    return model


def model_tensors(model: DeconvNet) -> dict[str, Tensor]:
    """Return the tensors of a model by their names in a file, on the CPU."""
    return layer_tensors(model.filters, model.connectivity)


def write_checked(
    path: Path,
    form: str,
    settings: dict[str, object],
    tensors: Mapping[str, Tensor],
    *,
    key: str = "settings",
    overwrite: bool = False,
) -> None:
    """Write settings and tensors of a format as a file with a checksum, complete or not at all.

    Parameters
    ----------
    key
        the name of the settings in the file's metadata
    overwrite
        also replace a file that something else wrote
    """
    claim([path], overwrite=overwrite or _is_ours(path))
    write_atomic(path, checked_bytes(form, settings, tensors, key=key))


def _is_ours(path: Path) -> bool:
    """Tell whether this program wrote a file of tensors: its format has our name."""
    from safetensors import SafetensorError, safe_open

    if not os.path.isfile(path):
        return False
    try:
        with untrusted(), safe_open(path, framework="pt") as file:
            return str((file.metadata() or {}).get("format", "")).startswith("whatwhere ")
    except (SafetensorError, OSError, ValueError):
        return False


def checked_bytes(
    form: str, settings: dict[str, object], tensors: Mapping[str, Tensor], *, key: str = "settings"
) -> bytes:
    """Return the content of the file that `write_checked` writes."""
    text = canonical(settings)
    metadata = {"format": form, "sha256": checksum(text, tensors), key: text}
    return _tensor_bytes(tensors, metadata)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, complete or not at all."""
    write_atomic(path, _tensor_bytes(tensors, metadata))


def _tensor_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return the content of a safetensors file. Equal tensors and metadata give equal bytes."""
    from safetensors.torch import save as to_bytes

    content = to_bytes({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    start = 8 + int.from_bytes(content[:8], "little")
    header = canonical(
        json.loads(content[8:start])
    ).encode()  # the library's order of metadata varies
    header += b" " * (-len(header) % 8)  # the data begin at a multiple of 8 bytes
    return len(header).to_bytes(8, "little") + header + content[start:]


def read_checked(
    path: Path, form: str, *, key: str = "settings"
) -> tuple[FileFields, dict[str, Tensor]]:
    """Read what `write_checked` wrote; raises a SpecError for another format or damaged content."""
    metadata, tensors = read_tensors(path)
    check_format(metadata.get("format"), form)
    if metadata["sha256"] != checksum(metadata[key], tensors):
        raise SpecError("its checksum does not match its content")
    with untrusted():  # the checksum may be forged with the content
        return checked(json.loads(metadata[key]), dict, key), tensors


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Return the metadata and the tensors of a safetensors file; a ValueError for damaged ones."""
    from safetensors import SafetensorError, safe_open

    open_regular(path).close()  # a pipe would be waited for
    try:
        with untrusted(), safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return file.metadata() or {}, tensors
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def model_file(path: str | os.PathLike[str]) -> Path:
    """Return the file of a path: the path itself, or the model in a run's folder."""
    file = Path(path) / FILE_NAME if os.path.isdir(path) else Path(path)
    if not os.path.isfile(file):
        raise NoSuchRun("the model", file, "there is no such file")
    return file
