"""Models of the Hugging Face Hub, by addresses such as hf://owner/repository/model.safetensors."""

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

from whatwhere.errors import MissingExtra, RunError, printable

PREFIX = "hf://"
_ADDRESS = re.compile(
    r"hf://(?P<repository>[^/@#]+/[^/@#]+)(/(?P<file>[^@#]+))?(@(?P<revision>[^#]+))?"
    r"(#sha256=(?P<sha256>[0-9a-f]{64}))?"
)


class HubFile(NamedTuple):
    """A file of a repository.

    Parameters
    ----------
    repository
        owner and name
    file
        its path in the repository
    revision
        a branch, a tag or a commit; None for the newest
    sha256
        its checksum; None if it is not known
    """

    repository: str
    file: str
    revision: str | None
    sha256: str | None


def parse(address: str) -> HubFile:
    """Return the file of an address hf://owner/repository[/file][@revision][#sha256=…]; without a
    file, model.safetensors.

    >>> parse("hf://ada/strokes@v1").file
    'model.safetensors'
    """
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise RunError(
            f"Cannot read the address {printable(address)}; expected"
            " hf://owner/repository/file.safetensors, optionally with @revision and"
            " #sha256=… (64 digits) after it."
        )
    file = found["file"] or "model.safetensors"
    return HubFile(found["repository"], file, found["revision"], found["sha256"])


def download(address: str) -> Path:
    """Return the local copy of a file of the Hub; if the address has a checksum, it is verified."""
    wanted = parse(address)
    try:
        from huggingface_hub import hf_hub_download
    except ImportError:
        raise MissingExtra("huggingface_hub", f"reading {printable(address)}") from None
    path = Path(hf_hub_download(wanted.repository, wanted.file, revision=wanted.revision))
    if wanted.sha256 is not None:
        actual = hashlib.sha256(path.read_bytes()).hexdigest()
        if actual != wanted.sha256:
            raise RunError(
                f"{printable(address)} has the checksum {actual}; expected {wanted.sha256}. Check"
                " the address, or give the checksum that the author publishes."
            )
    return path
