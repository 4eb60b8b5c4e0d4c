"""Draw the picture of howto/signals.md:  python docs/signals_pictures.py"""

from __future__ import annotations

import runpy
from pathlib import Path

HERE = Path(__file__).parent


def main() -> None:
    """The figure of the example with spikes."""
    figure = runpy.run_path(str(HERE.parent / "examples" / "gallery" / "17_spikes.py"))["figure"]
    figure.savefig(HERE / "images" / "signals.png", dpi=80)


if __name__ == "__main__":
    main()
