"""`whatwhere download`: the files of a data set or a model."""

from pathlib import Path

from whatwhere.app.info import find, show_entries
from whatwhere.commands.builder import command
from whatwhere.commands.outputs import Stages


@command()
def download(name: str, *, from_: Path | None = None, json_: bool = False) -> None:
    """Download the files of a data set or a model, and verify them.

    The environment variable WHATWHERE_DATA sets the folder for downloads.

    Parameters
    ----------
    name
        name of a data set or a model (`whatwhere info` lists them)
    from
        take the files from this folder instead, compressed or not

    Examples
    --------
    $ whatwhere download mnist
    $ whatwhere download mnist --from ~/mnist
    """
    from whatwhere.data import catalogue

    entries = find(name)
    title = f"downloading {name}" if from_ is None else f"copying {name} from {from_}"
    for entry in entries.values():
        if entry.embedded is None:
            with Stages().stage(title, len(entry.files)) as advance:
                catalogue.download(entry, from_, advance)
    show_entries(name, entries, json_)
